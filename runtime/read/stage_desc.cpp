#include "read/stage_desc.h"

#include "base/error.h"
#include "base/versioned.h"

#include <cstdio>

namespace halyard {

namespace {

/// The name of a stage's description, for sentences.
struct Name {
    char text[32];
    Name(int index, const char *stage) { std::snprintf(text, sizeof(text), "tensors[%d].%s", index, stage); }
};

/// Says that a field is not one of 0 … last.
halyard_status fail_value(const Name &name, const char *field, std::int32_t value, std::int32_t last,
                          halyard_error *error) {
    return fail(error, HALYARD_ERROR_UNKNOWN_VALUE, name.text, "->", field, " is ", value, ", but must be 0",
                last == 0 ? Part("") : Part(" to "), last == 0 ? Part("") : Part(last));
}

bool is_within(std::int32_t value, std::int32_t last) { return value >= 0 && value <= last; }

/// Checks what is one of a few numbers.
halyard_status check_choices(const halyard_norm_desc &given, const Name &name, halyard_error *error) {
    struct Field {
        const char *name;
        std::int32_t value, last;
    };
    for (const Field &field :
         {Field{"kind", given.kind, 1}, Field{"width", given.width, 1}, Field{"order", given.order, 1},
          Field{"unit_offset", given.unit_offset, 1}, Field{"rounding", given.rounding, 3},
          Field{"no_eps", given.no_eps, 1}, Field{"has_bias", given.has_bias, 1},
          Field{"weight_per_head", given.weight_per_head, 1}}) {
        if (!is_within(field.value, field.last)) {
            return fail_value(name, field.name, field.value, field.last, error);
        }
    }
    return HALYARD_OK;
}

/// Reads which weights a norm has, and checks what needs them.
halyard_status check_weight(const halyard_norm_desc &given, const Name &name, std::optional<Dtype> *weight,
                            halyard_error *error) {
    *weight = to_dtype(given.weight_dtype);
    if (given.weight_dtype != 0 && !is_input_dtype(*weight)) {
        return fail(error, HALYARD_ERROR_UNKNOWN_VALUE, name.text, "->weight_dtype is ", given.weight_dtype,
                    ", which is no dtype", *weight ? " of weights" : "");
    }
    if (const char *const field = given.unit_offset != 0       ? "unit_offset"
                                  : given.has_bias != 0        ? "has_bias"
                                  : given.weight_per_head != 0 ? "weight_per_head"
                                                               : nullptr;
        field != nullptr && !*weight) {
        return fail(error, HALYARD_ERROR_MISMATCH, name.text, "->", field,
                    " is 1, but there is no weight: weight_dtype is 0");
    }
    if ((given.rounding & HALYARD_NORM_ROUND_AFTER_WEIGHT) != 0 && !*weight) {
        return fail(error, HALYARD_ERROR_MISMATCH, name.text, "->rounding is ", given.rounding,
                    ", with HALYARD_NORM_ROUND_AFTER_WEIGHT (2), but there is no weight: weight_dtype is 0");
    }
    if (given.has_bias != 0 && given.kind != HALYARD_NORM_LAYER) {
        return fail(error, HALYARD_ERROR_MISMATCH, name.text,
                    "->has_bias is 1, but kind is HALYARD_NORM_RMS (0): only layer norms have a bias");
    }
    return HALYARD_OK;
}

}  // namespace

halyard_status read_norm(const halyard_norm_desc *norm, int index, std::int64_t head_dim, NormDesc *out,
                         halyard_error *error) noexcept {
    const Name name(index, "norm");
    halyard_norm_desc given = {};
    HALYARD_TRY(read_struct(norm, name.text, &given, error));
    HALYARD_TRY(check_choices(given, name, error));
    HALYARD_TRY(check_weight(given, name, &out->weight, error));
    const auto eps = static_cast<float>(given.eps);
    if (!(given.eps >= 0.0) || eps - eps != 0.0f) {
        return fail(error, HALYARD_ERROR_SCALE, name.text, "->eps is ", given.eps,
                    ", but must be at least 0, and finite in f32");
    }
    if (given.no_eps != 0 && given.eps != 0.0) {
        return fail(error, HALYARD_ERROR_MISMATCH, name.text, "->eps is ", given.eps, ", but no_eps is 1");
    }
    const bool begins_inside = given.window_offset >= 0 && given.window_offset < head_dim;
    const std::int64_t rest = begins_inside ? head_dim - given.window_offset : 0;
    if (!begins_inside || given.window_size < 0 || given.window_size > rest) {
        return fail(error, HALYARD_ERROR_WINDOW, name.text, "->window_offset is ", given.window_offset,
                    " and window_size ", given.window_size, ", which is not inside a head_dim of ", head_dim);
    }
    out->row = given.width == HALYARD_NORM_ROW;
    if (out->row && (given.window_offset != 0 || given.window_size != 0)) {
        return fail(error, HALYARD_ERROR_MISMATCH, name.text, "->window_", given.window_offset != 0 ? "offset" : "size",
                    " is ", given.window_offset != 0 ? given.window_offset : given.window_size,
                    ", but a norm of rows has no window");
    }
    if (out->row && given.weight_per_head != 0) {
        return fail(error, HALYARD_ERROR_MISMATCH, name.text,
                    "->weight_per_head is 1, but a norm of rows has a weight for each element anyway");
    }
    out->after = given.order == HALYARD_NORM_AFTER;
    out->unit_offset = given.unit_offset != 0;
    out->rounding = given.rounding;
    out->eps = given.no_eps == 0 && given.eps == 0.0 ? 1e-6f : eps;
    out->offset = given.window_offset;
    out->size = given.window_size == 0 ? rest : given.window_size;
    out->layer = given.kind == HALYARD_NORM_LAYER;
    out->has_bias = given.has_bias != 0;
    out->per_head = given.weight_per_head != 0;
    return HALYARD_OK;
}

halyard_status read_scale(const halyard_scale_desc *scale, int index, Dtype out_dtype, ScaleDesc *out,
                          halyard_error *error) noexcept {
    const Name name(index, "scale");
    halyard_scale_desc given = {};
    HALYARD_TRY(read_struct(scale, name.text, &given, error));
    if (!is_within(given.kind, HALYARD_SCALE_DYNAMIC)) {
        return fail_value(name, "kind", given.kind, HALYARD_SCALE_DYNAMIC, error);
    }
    if (!is_within(given.per, HALYARD_SCALE_PER_HEAD)) {
        return fail_value(name, "per", given.per, HALYARD_SCALE_PER_HEAD, error);
    }
    if (given.reserved != 0) {
        return fail_value(name, "reserved", given.reserved, 0, error);
    }
    out->dynamic = given.kind == HALYARD_SCALE_DYNAMIC;
    out->by_head = given.per == HALYARD_SCALE_PER_HEAD;
    if (out->dynamic && given.per != 0) {
        return fail(error, HALYARD_ERROR_MISMATCH, name.text, "->per is ", given.per,
                    ", but dynamic scales are per token and head, which is 0");
    }
    if (out->dynamic && !is_8_bit(out_dtype)) {
        return fail(error, HALYARD_ERROR_MISMATCH, name.text, "->kind is dynamic, but tensors[", index,
                    "].out_dtype is ", name_of(out_dtype), ": dynamic scales are for e4m3, e5m2 and int8");
    }
    return HALYARD_OK;
}

}  // namespace halyard

#include "read/groups.h"

#include "base/error.h"
#include "base/versioned.h"
#include "read/stage_desc.h"

#include <algorithm>
#include <cstdio>

namespace halyard {

namespace {

/// What a preset says; 0 stands for the same defaults as in descriptions. Fields are in the order of rows.
struct Preset {  // NOLINT(*Padding)
    std::int32_t element, scale;
    std::int64_t group;
    float floor;
    std::int64_t data, data_stride, scale_at, scale_stride;
    std::int32_t reciprocal = 0, rounding = 0;
    bool apart = false;
    std::int32_t rule = HALYARD_RULE_LARGEST, packing = 0;
    std::int64_t zero = 0;
    std::int64_t n_grouped = 0, raw = 0, bytes = 0;  // raw: where bf16 begin
};

constexpr std::int32_t int8 = HALYARD_ELEMENT_INT8, e4m3 = HALYARD_ELEMENT_E4M3, f32 = HALYARD_GROUP_SCALE_F32,
                       f16 = HALYARD_GROUP_SCALE_F16, up = HALYARD_GROUP_SCALE_E8M0_UP,
                       of_scale = HALYARD_RECIPROCAL_OF_SCALE, away = HALYARD_ROUNDING_AWAY;
constexpr std::int32_t signed_rule = HALYARD_RULE_SIGNED, range = HALYARD_RULE_RANGE;
constexpr float mla_floor = 1e-4f / 448.0f;  // of the largest magnitude 1e-4

/// In the order of HALYARD_GROUPS_….
constexpr Preset presets[] = {
    {int8, f16, 32, 0, 2, 34, 0, 34, HALYARD_RECIPROCAL_OF_LARGEST},  // GGML_Q8_0
    {int8, f16, 32, 0, 2, 34, 0, 34, of_scale},                       // …_NEON
    {int8, f16, 32, 0, 2, 34, 0, 34, of_scale, away},                 // …_REFERENCE
    {HALYARD_ELEMENT_UINT4, f16, 32, 0, 2, 18, 0, 18, of_scale, 0, false, signed_rule, HALYARD_PACKING_HALVES},  // Q4_0
    {int8, f32, 0, 1e-6f, 0, 0, 0, 4, 0, away, true},                              // VLLM_INT8
    {e4m3, f32, 0, 1e-6f, 0, 0, 0, 4, 0, 0, true},                                 // VLLM_FP8
    {HALYARD_ELEMENT_UINT8, f32, 0, 1e-4f, 8, 0, 0, 0, 0, 0, false, range, 0, 4},  // OPENVINO_U8
    {HALYARD_ELEMENT_UINT4, f32, 0, 1e-4f, 8, 0, 0, 0, 0, 0, false, range, HALYARD_PACKING_HIGH_FIRST, 4},  // …_U4
    {e4m3, f32, 128, mla_floor, 0, 128, 512, 4, 0, 0, false, HALYARD_RULE_LARGEST, 0, 0, 512, 528, 656},    // MLA_V32
    {e4m3, up, 64, mla_floor, 0, 64, 0, 1, 0, 0, true, HALYARD_RULE_LARGEST, 0, 0, 448, 448, 576},          // MLA_V4
    {e4m3, up, 32, mla_floor, 0, 32, 0, 1, 0, 0, true, HALYARD_RULE_LARGEST, 0, 0, 512, 0, 512},            // MLA_V41
    {e4m3, HALYARD_GROUP_SCALE_E8M0_OCP, 32, 0, 1, 33, 0, 33},                                              // MX
};

/// A description and the name of its field, for sentences.
struct Named {
    const halyard_groups_desc &desc;
    const char *name;
    halyard_error *error;

    template <typename... Parts>
    halyard_status refuse(halyard_status status, const Parts &...parts) const {
        return fail(error, status, name, "->", parts...);
    }
};

/// Fills in a preset. Fields that are set beside it have to be what it says.
halyard_status take_preset(halyard_groups_desc &desc, const char *name, halyard_error *error) {
    if (desc.preset < 0 || desc.preset > HALYARD_GROUPS_MX) {
        return fail(error, HALYARD_ERROR_UNKNOWN_VALUE, name, "->preset is ", desc.preset, ", which is no preset");
    }
    if (desc.preset == 0) {
        return HALYARD_OK;
    }
    const Preset &preset = presets[desc.preset - 1];
    halyard_status status = HALYARD_OK;
    const auto take = [&](const char *field, auto &given, auto wanted) {
        if (status == HALYARD_OK && given != 0 && given != wanted) {
            status =
                fail(error, HALYARD_ERROR_MISMATCH, name, "->", field, " is ", given, ", but the preset's is ", wanted);
        }
        given = wanted;
    };
    const auto take_if_set = [&](const char *field, std::int64_t &given, std::int64_t wanted) {
        if (wanted != 0) {  // else it is the head's matter
            take(field, given, wanted);
        }
    };
    take("element", desc.element, preset.element);
    take("packing", desc.packing, preset.packing);
    take("rule", desc.rule, preset.rule);
    take("reciprocal", desc.reciprocal, preset.reciprocal);
    take("rounding", desc.rounding, preset.rounding);
    take("scale_dtype", desc.scale_dtype, preset.scale);
    take("raw_dtype", desc.raw_dtype, preset.raw != 0 ? HALYARD_BF16 : 0);
    auto floor = static_cast<double>(desc.floor);
    take("floor", floor, static_cast<double>(preset.floor));
    desc.floor = preset.floor;
    take_if_set("group", desc.group, preset.group);
    take_if_set("n_grouped", desc.n_grouped, preset.n_grouped);
    take_if_set("record_bytes", desc.record_bytes, preset.bytes);
    take("data_offset", desc.data_offset, preset.data);
    take("data_stride", desc.data_stride, preset.data_stride);
    take("scale_offset", desc.scale_offset, preset.scale_at);
    take("scale_stride", desc.scale_stride, preset.scale_stride);
    take("zero_offset", desc.zero_offset, preset.zero);
    take("zero_stride", desc.zero_stride, std::int64_t{0});
    take("raw_offset", desc.raw_offset, preset.raw);
    take("scales_apart", desc.scales_apart, std::int32_t{preset.apart});
    return status;
}

/// Checks what is one of a few numbers.
halyard_status check_choices(const Named &groups) {
    const halyard_groups_desc &desc = groups.desc;
    struct Field {
        const char *name;
        std::int32_t value, first, last;
    };
    for (const Field &field :
         {Field{"element", desc.element, 1, 6}, Field{"packing", desc.packing, 0, 3}, Field{"rule", desc.rule, 1, 3},
          Field{"reciprocal", desc.reciprocal, 0, 2}, Field{"rounding", desc.rounding, 0, 1},
          Field{"scale_dtype", desc.scale_dtype, 1, 5}, Field{"raw_dtype", desc.raw_dtype, 0, n_input_dtypes},
          Field{"scales_apart", desc.scales_apart, 0, 1}, Field{"reserved", desc.reserved, 0, 0}}) {
        if (field.value < field.first || field.value > field.last) {
            return field.last == 0
                       ? groups.refuse(HALYARD_ERROR_UNKNOWN_VALUE, field.name, " is ", field.value, ", but must be 0")
                       : groups.refuse(HALYARD_ERROR_UNKNOWN_VALUE, field.name, " is ", field.value,
                                       field.value == 0 ? ", not set, but must be " : ", but must be ", field.first,
                                       " to ", field.last);
        }
    }
    return HALYARD_OK;
}

/// Checks that the choices agree with each other.
halyard_status check_agreement(const Named &groups) {
    const halyard_groups_desc &desc = groups.desc;
    const bool is_float = desc.element >= HALYARD_ELEMENT_E4M3;
    const bool is_signed = desc.element == HALYARD_ELEMENT_INT8 || desc.element == HALYARD_ELEMENT_INT4;
    const bool is_4_bit = desc.element == HALYARD_ELEMENT_INT4 || desc.element == HALYARD_ELEMENT_UINT4;
    const bool is_e8m0 = desc.scale_dtype >= HALYARD_GROUP_SCALE_E8M0_UP;
    const bool is_largest = desc.rule == HALYARD_RULE_LARGEST;
    const bool fits_rule = is_largest                         ? is_float || is_signed
                           : desc.rule == HALYARD_RULE_SIGNED ? desc.element == HALYARD_ELEMENT_UINT4
                                                              : !is_float && !is_signed;
    if (!fits_rule) {
        return groups.refuse(HALYARD_ERROR_MISMATCH, "rule is ", desc.rule, ", but element is ", desc.element,
                             ": HALYARD_RULE_LARGEST (1) is for INT8, INT4, E4M3 and E5M2, SIGNED (2) for UINT4, RANGE "
                             "(3) for UINT8 and UINT4");
    }
    if ((desc.packing != 0) != is_4_bit) {
        return groups.refuse(HALYARD_ERROR_MISMATCH, "packing is ", desc.packing, ", but elements have ",
                             is_4_bit ? "4 bits, two of which share a byte" : "8 bits");
    }
    if (desc.reciprocal == HALYARD_RECIPROCAL_OF_LARGEST && (!is_largest || desc.floor != 0.0f)) {
        return groups.refuse(HALYARD_ERROR_MISMATCH,
                             "reciprocal is HALYARD_RECIPROCAL_OF_LARGEST (2), which is for HALYARD_RULE_LARGEST "
                             "without a floor");
    }
    if (desc.rounding != 0 && !is_signed) {
        return groups.refuse(HALYARD_ERROR_MISMATCH,
                             "rounding is HALYARD_ROUNDING_AWAY (1), which is for integers of HALYARD_RULE_LARGEST");
    }
    if (is_e8m0 && (!is_largest || desc.reciprocal != 0)) {
        return groups.refuse(HALYARD_ERROR_MISMATCH, "scale_dtype is ", desc.scale_dtype,
                             ", a power of two, which is for HALYARD_RULE_LARGEST and HALYARD_RECIPROCAL_OF_STORED");
    }
    if (desc.scale_dtype == HALYARD_GROUP_SCALE_E8M0_OCP && !is_float) {
        return groups.refuse(HALYARD_ERROR_MISMATCH,
                             "scale_dtype is HALYARD_GROUP_SCALE_E8M0_OCP (5), which is for E4M3 and E5M2");
    }
    const bool has_floor = desc.rule != HALYARD_RULE_SIGNED && desc.scale_dtype != HALYARD_GROUP_SCALE_E8M0_OCP;
    if (!(desc.floor >= 0.0f) || desc.floor - desc.floor != 0.0f) {
        return groups.refuse(HALYARD_ERROR_SCALE, "floor is ", double(desc.floor),
                             ", but must be at least 0 and finite");
    }
    if (desc.rule == HALYARD_RULE_RANGE ? desc.floor == 0.0f : desc.floor != 0.0f && !has_floor) {
        return groups.refuse(
            HALYARD_ERROR_MISMATCH, "floor is ", double(desc.floor), ", but HALYARD_RULE_",
            desc.rule == HALYARD_RULE_RANGE
                ? "RANGE needs a scale for groups of equal numbers"
                : (desc.rule == HALYARD_RULE_SIGNED ? "SIGNED has none" : "LARGEST with E8M0_OCP has none"));
    }
    return HALYARD_OK;
}

/// Checks that no place is set of what a record has none of.
halyard_status check_unasked(const Named &groups) {
    const halyard_groups_desc &desc = groups.desc;
    if (desc.scales_apart != 0 && desc.rule == HALYARD_RULE_RANGE) {
        return groups.refuse(HALYARD_ERROR_MISMATCH,
                             "scales_apart is 1, but HALYARD_RULE_RANGE has zero points, which lie in the record");
    }
    if (desc.scales_apart == 0 &&
        (desc.scales_stride_block != 0 || desc.scales_stride_token != 0 || desc.scales_stride_head != 0)) {
        return groups.refuse(HALYARD_ERROR_MISMATCH, "scales_stride_… is set, but scales_apart is 0");
    }
    if (desc.rule != HALYARD_RULE_RANGE && (desc.zero_offset != 0 || desc.zero_stride != 0)) {
        return groups.refuse(HALYARD_ERROR_MISMATCH, "zero_offset is ", desc.zero_offset, " and zero_stride ",
                             desc.zero_stride, ", but only HALYARD_RULE_RANGE (3) has zero points");
    }
    if (desc.raw_dtype == 0 && desc.raw_offset != 0) {
        return groups.refuse(HALYARD_ERROR_MISMATCH, "raw_offset is ", desc.raw_offset, ", but raw_dtype is 0");
    }
    return HALYARD_OK;
}

/// Checks that groups and raw elements fill a head.
halyard_status check_shape(const Named &groups, std::int64_t head_dim) {
    const halyard_groups_desc &desc = groups.desc;
    if (desc.n_grouped < 1 || desc.n_grouped > head_dim) {
        return groups.refuse(HALYARD_ERROR_SHAPE, "n_grouped is ", desc.n_grouped, ", but must be 1 to head_dim, ",
                             head_dim);
    }
    const bool is_size = desc.group == 16 || desc.group == 32 || desc.group == 64 || desc.group == 128;
    if (!is_size && desc.group != desc.n_grouped) {
        return groups.refuse(HALYARD_ERROR_SHAPE, "group is ", desc.group,
                             ", but must be 16, 32, 64, 128 or n_grouped, ", desc.n_grouped);
    }
    if (desc.n_grouped % desc.group != 0) {
        return groups.refuse(HALYARD_ERROR_SHAPE, "group is ", desc.group, ", by which ", desc.n_grouped,
                             " elements in groups cannot be divided");
    }
    if (desc.packing != 0 && desc.group % 2 != 0) {
        return groups.refuse(HALYARD_ERROR_SHAPE, "group is ", desc.group, ", but two elements share a byte");
    }
    if ((desc.raw_dtype != 0) != (desc.n_grouped < head_dim)) {
        return groups.refuse(HALYARD_ERROR_SHAPE, "n_grouped is ", desc.n_grouped, " and head_dim ", head_dim,
                             desc.raw_dtype != 0 ? ", which leaves no elements for raw_dtype"
                                                 : ", but raw_dtype is 0: the other elements would be in no place");
    }
    return HALYARD_OK;
}

/// A place in a record, in bytes.
struct Place {
    std::int64_t begin, end;
    const char *name;
};

/// Checks that all places of a record lie apart, and inside it. record_bytes 0 becomes as many as they take.
halyard_status check_places(const Named &groups, GroupsDesc &desc) {
    Place places[3 * max_staged_head / 16 + 1];
    std::size_t n = 0;
    const auto add = [&](const char *name, std::int64_t count, std::int64_t offset, std::int64_t stride,
                         std::int64_t bytes) -> halyard_status {
        constexpr std::int64_t most = std::int64_t{1} << 30;
        if (offset < 0 || stride < 0 || offset > most || stride > most) {
            return groups.refuse(HALYARD_ERROR_SHAPE, name, "_offset is ", offset, " and ", name, "_stride ", stride,
                                 ", but must be 0 to 2^30 bytes");
        }
        for (std::int64_t i = 0; i < count; i++) {
            places[n++] = {offset + i * stride, offset + i * stride + bytes, name};
        }
        return HALYARD_OK;
    };
    HALYARD_TRY(add("scale", desc.n_groups, desc.scale_offset, desc.scale_stride, desc.scale_bytes()));
    if (desc.scales_apart != 0) {
        if (desc.n_groups > 1 && desc.scale_stride < desc.scale_bytes()) {
            return groups.refuse(HALYARD_ERROR_STRIDE, "scale_stride is ", desc.scale_stride,
                                 ", by which two scales would share bytes");
        }
        n = 0;
    }
    HALYARD_TRY(add("data", desc.n_groups, desc.data_offset, desc.data_stride, desc.data_bytes()));
    if (desc.has_zero()) {
        HALYARD_TRY(add("zero", desc.n_groups, desc.zero_offset, desc.zero_stride, desc.scale_bytes()));
    }
    if (desc.raw) {
        HALYARD_TRY(add("raw", 1, desc.raw_offset, 0, desc.n_raw * element_bytes(*desc.raw)));
    }
    std::sort(places, places + n, [](const Place &a, const Place &b) { return a.begin < b.begin; });
    for (std::size_t i = 1; i < n; i++) {
        if (places[i].begin < places[i - 1].end) {
            return groups.refuse(HALYARD_ERROR_STRIDE, places[i].name, "_offset is such that it shares byte ",
                                 places[i].begin, " of the record with ", places[i - 1].name);
        }
    }
    const std::int64_t taken = places[n - 1].end;
    if (desc.record_bytes != 0 && desc.record_bytes < taken) {
        return groups.refuse(HALYARD_ERROR_SHAPE, "record_bytes is ", desc.record_bytes, ", but its places take ",
                             taken);
    }
    desc.record_bytes = desc.record_bytes == 0 ? taken : desc.record_bytes;
    return HALYARD_OK;
}

}  // namespace

float GroupsDesc::greatest() const noexcept {
    switch (element) {
    case HALYARD_ELEMENT_INT8: return greatest_of(Dtype::int8);
    case HALYARD_ELEMENT_UINT8: return 255.0f;
    case HALYARD_ELEMENT_INT4: return 7.0f;
    case HALYARD_ELEMENT_UINT4: return rule == HALYARD_RULE_SIGNED ? -8.0f : 15.0f;
    default: return greatest_of(element == HALYARD_ELEMENT_E4M3 ? Dtype::e4m3 : Dtype::e5m2);
    }
}

namespace {

halyard_status read(const halyard_groups_desc *groups, const char *name, std::int64_t head_dim, GroupsDesc *out,
                    halyard_error *error) {
    *out = {};
    halyard_groups_desc &desc = *out;
    HALYARD_TRY(read_struct(groups, name, &desc, error));
    HALYARD_TRY(take_preset(desc, name, error));
    desc.n_grouped = desc.n_grouped == 0 ? head_dim : desc.n_grouped;
    desc.group = desc.group == 0 ? desc.n_grouped : desc.group;
    const Named named = {desc, name, error};
    HALYARD_TRY(check_choices(named));
    HALYARD_TRY(check_agreement(named));
    HALYARD_TRY(check_unasked(named));
    HALYARD_TRY(check_shape(named, head_dim));
    out->n_groups = desc.n_grouped / desc.group;
    out->n_raw = head_dim - desc.n_grouped;
    out->raw = to_dtype(desc.raw_dtype);
    const std::int64_t preset_bytes = desc.preset != 0 ? presets[desc.preset - 1].bytes : 0;
    desc.record_bytes = preset_bytes != 0 ? 0 : desc.record_bytes;
    HALYARD_TRY(check_places(named, *out));
    if (preset_bytes != 0 && desc.record_bytes != preset_bytes) {
        return named.refuse(HALYARD_ERROR_SHAPE, "preset is ", desc.preset, ", whose records have ", preset_bytes,
                            " bytes, but heads of ", head_dim, " elements take ", desc.record_bytes);
    }
    return HALYARD_OK;
}

}  // namespace

halyard_status read_groups(const halyard_groups_desc *groups, int index, const char *field, std::int64_t head_dim,
                           GroupsDesc *out, halyard_error *error) noexcept {
    char name[40];
    std::snprintf(name, sizeof(name), "tensors[%d].%s", index, field);
    return read(groups, name, head_dim, out, error);
}

}  // namespace halyard

using namespace halyard;

extern "C" {

halyard_status halyard_resolve_groups(const halyard_groups_desc *groups, int64_t head_dim, halyard_groups_desc *out,
                                      halyard_error *error) {
    HALYARD_TRY(check_error(error));
    if (head_dim < 1) {
        return fail(error, HALYARD_ERROR_SHAPE, "head_dim is ", head_dim, ", but must be at least 1");
    }
    if (head_dim > max_staged_head) {
        return fail(error, HALYARD_ERROR_UNSUPPORTED, "head_dim is ", head_dim, ", but heads in groups have at most ",
                    max_staged_head, " elements");
    }
    GroupsDesc desc;
    HALYARD_TRY(read(groups, "groups", head_dim, &desc, error));
    return write_struct<halyard_groups_desc>(desc, "out", out, error);
}

}  // extern "C"

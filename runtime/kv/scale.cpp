#include "kv/scale.h"

#include "base/versioned.h"
#include "kv/block.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <string_view>

namespace halyard {

halyard_status read_scale(const halyard_scale_desc *scale, const char *name, Dtype out_dtype, ScaleDesc *out,
                          halyard_error *error) noexcept {
    halyard_scale_desc given = {};
    HALYARD_TRY(read_struct(scale, name, &given, error));
    HALYARD_TRY(check_choice(name, "kind", given.kind, HALYARD_SCALE_DYNAMIC, error));
    HALYARD_TRY(check_choice(name, "per", given.per, HALYARD_SCALE_PER_HEAD, error));
    HALYARD_TRY(check_choice(name, "reserved", given.reserved, 0, error));
    out->dynamic = given.kind == HALYARD_SCALE_DYNAMIC;
    out->stride_head = given.per == HALYARD_SCALE_PER_HEAD ? 1 : 0;
    const std::string_view kv(name, std::string_view(name).rfind('.'));  // "tensors[0].kv", which has out_dtype
    return check_fields(
        name,
        {{out->dynamic && given.per != 0, "per", given.per, ", but dynamic scales are per token and head, which is 0"},
         {out->dynamic && !is_8_bit(out_dtype), "kind", "dynamic, but ", kv, ".out_dtype is ", name_of(out_dtype),
          ": dynamic scales are for e4m3, e5m2 and int8"}},
        error);
}

// ---- Values --------------------------------------------------------------------------------------------------------

namespace {

/// Whether a scale and its reciprocal are positive and finite.
bool is_scale(float scale) { return scale > 0.0f && scale - scale == 0.0f && 1.0f / scale <= 0x1.fffffep127f; }

// Loads and stores of a dynamic scale in the caller's memory. They are atomic unless the scale is misaligned, because
// another part of the run may be writing the same scale.
bool is_word(const char *at) { return reinterpret_cast<std::uintptr_t>(at) % sizeof(float) == 0; }
float load_scale(const char *at) {
    return is_word(at)
               ? std::bit_cast<float>(__atomic_load_n(reinterpret_cast<const std::uint32_t *>(at), __ATOMIC_RELAXED))
               : read_word<float>(at);
}
void store_scale(char *at, float scale) {
    if (is_word(at)) {
        __atomic_store_n(reinterpret_cast<std::uint32_t *>(at), std::bit_cast<std::uint32_t>(scale), __ATOMIC_RELAXED);
    } else {
        std::memcpy(at, &scale, sizeof(scale));
    }
}

float static_scale(const KvCall &call, int index, std::int64_t i) {
    return read_word<float>(call.data(index, Array::scales), i);
}

float position_scale(const KvCall &call, int index, std::int64_t batch, std::int64_t token, std::int64_t head) {
    return read_word<float>(call.place_of(index, Array::position_scales, batch, token, head));
}

/// The distance between the dynamic scales of two heads, in bytes.
std::int64_t stride_of_scales(const KvCall &call, int index) {
    return call.bound(index, Array::scales_out).elements.strides[2] * std::int64_t{sizeof(float)};
}

/// The address of a token's dynamic scales, from the block's first head on; NULL if the token has no slot.
template <Where where>
char *dynamic_scales_of(const KvCall &call, const Block &block, std::int64_t token) {
    constexpr bool in_cache = where == Where::cache;
    const std::int64_t row = in_cache ? call.slot_of(block, token) : block.token + token;
    return row < 0 ? nullptr
                   : call.place_of(block.index, Array::scales_out, in_cache ? 0 : block.batch, row, block.head);
}

/// Fails because of a number in a tensor's array.
template <typename... Parts>
[[gnu::cold]] halyard_status fail_scale(const KvCall &call, Array array, int index, halyard_error *error,
                                        const Parts &...parts) {
    return fail(error, HALYARD_ERROR_SCALE, NameText(texts_of(array).name, call.given.is_bound, index), parts...);
}

constexpr const char *has_to_be_usable = ", but it and its reciprocal must be positive and finite";

}  // namespace

halyard_status check_input_scales(const KvCall &call, int index, halyard_error *error) noexcept {
    const KvTensorPlan &stages = call.kv_plan().tensors[index];
    const std::int64_t n_static =
        stages.needs(Array::scales) ? stages.scale->count(call.program.tensors[index].n_heads) : 0;
    for (std::int64_t i = 0; i < n_static; i++) {
        if (const float scale = static_scale(call, index, i); !is_scale(scale)) {
            return fail_scale(call, Array::scales, index, error, "[", i, "] is ", double(scale), has_to_be_usable);
        }
    }
    const Lattice &all = call.bound(index, Array::position_scales).elements;
    const auto n = [&](int dim) {  // a stride of 0 shares one scale, which is checked once
        return !stages.position_scales ? 0 : all.strides[dim] == 0 ? 1 : all.shape[dim];
    };
    for (std::int64_t batch = 0; batch < n(0); batch++) {
        for (std::int64_t token = 0; token < n(1); token++) {
            for (std::int64_t head = 0; head < n(2); head++) {
                if (const float scale = position_scale(call, index, batch, token, head); scale - scale != 0.0f) {
                    const TokenNumbers::Name name = call.program.positions.name_of(batch, token);
                    return fail_scale(call, Array::position_scales, index, error, "[batch ", name.batch, ", token ",
                                      name.token, ", head ", head, "] is ", double(scale), ", but must be finite");
                }
            }
        }
    }
    return HALYARD_OK;
}

namespace {

/// Checks the dynamic scales of keys that are re-rotated.
template <Where where>
halyard_status check_dynamic_scales(const KvCall &call, int index, halyard_error *error) noexcept {
    constexpr bool in_cache = where == Where::cache;
    const Positions &tokens = call.program.positions;
    const std::int64_t stride = stride_of_scales(call, index);
    Block row = {};
    row.index = index;
    for (; row.batch < tokens.n_batch; row.batch++) {
        for (std::int64_t token = 0; token < tokens.n_tokens; token++) {
            const char *const scales = dynamic_scales_of<where>(call, row, token);
            for (std::int64_t head = 0; scales != nullptr && head < call.program.tensors[index].n_heads; head++) {
                if (const float scale = load_scale(scales + head * stride); !is_scale(scale)) {
                    return fail_scale(call, Array::scales_out, index, error, in_cache ? "[slot " : "[token ",
                                      in_cache ? call.slot_of(row, token) : tokens.name_of(row.batch, token).token,
                                      ", head ", head, "] is ", double(scale), has_to_be_usable,
                                      scale == 0.0f ? ": no key was stored there" : "");
                }
            }
        }
    }
    return HALYARD_OK;
}

// ---- Steps: the first multiplies the block, the others set the factors by which the store multiplies ---------------

void multiply_by_position_scales(const KvCall &call, Block &block) noexcept {
    block.for_each_head([&](std::int64_t, std::int64_t token, std::int64_t head) {
        const float scale = position_scale(call, block.index, block.batch, block.token + token, block.head + head);
        float *const to = block.work->floats + token * block.strides.token + head * block.strides.head;
        for (std::int64_t i = 0; i < block.strides.head; i++) {
            to[i] *= scale;
        }
    });
}

void set_factors_by_static_scales(const KvCall &call, Block &block) noexcept {
    const ScaleDesc &scale = *call.stages(block).scale;
    const std::int64_t n = scale.count(block.n_heads), first = scale.stride_head * block.head;
    for (std::int64_t i = 0; i < n; i++) {
        block.work->numbers[i] = 1.0f / static_scale(call, block.index, first + i);
    }
    block.factors = {block.work->numbers, {0, scale.stride_head, 0}};
}

/// The block of a key that is re-rotated has elements as stored: then scales are renewed, from the key's old ones.
template <Where where, bool are_renewed>
void make_dynamic_scales(const KvCall &call, Block &block) noexcept {
    const TensorPlan &tensor_plan = call.tensor_plan(block);
    const std::int64_t stride = stride_of_scales(call, block.index);
    float *r = block.work->numbers;
    find_largest(call.kernels(), block.extents(tensor_plan.head_dim), block.floats(), r);
    for (std::int64_t token = 0; token < block.n_tokens; token++) {
        char *const scales = dynamic_scales_of<where>(call, block, token);
        for (std::int64_t head = 0; head < block.n_heads; head++, r++) {
            const float before = are_renewed && scales != nullptr ? load_scale(scales + head * stride) : 1.0f;
            // The rotation may put a pair's whole length into one element, whose scale may then overflow.
            const float scale =
                std::min(before * (*r / greatest_of(tensor_plan.out_dtype)), std::numeric_limits<float>::max());
            const float used = scale >= std::numeric_limits<float>::min() ? scale : 1.0f;  // below, it is not normal
            *r = before / used;
            if (scales != nullptr) {
                store_scale(scales + head * stride, used);
            }
        }
    }
    block.factors = {block.work->numbers, {0, 1, block.n_heads}};
}

}  // namespace

void list_position_scales(const Listing &of) noexcept {
    of.add_if(of.stages.position_scales, "scale by position", multiply_by_position_scales);
}

void list_scale(const Listing &of) noexcept {
    constexpr RunStep *dynamic[2][2] = {
        {make_dynamic_scales<Where::view, false>, make_dynamic_scales<Where::view, true>},
        {make_dynamic_scales<Where::cache, false>, make_dynamic_scales<Where::cache, true>}};
    const bool has_scale = of.stages.scale.has_value(), is_dynamic = has_scale && of.stages.scale->dynamic;
    if (is_dynamic && of.rerotates) {
        of.steps.check_keys = of.to_cache() ? check_dynamic_scales<Where::cache> : check_dynamic_scales<Where::view>;
    }
    of.add_if(is_dynamic, "make dynamic scales", dynamic[of.to_cache()][of.rerotates]);
    of.add_if(has_scale && !is_dynamic && !of.rerotates, "scale", set_factors_by_static_scales);
}

}  // namespace halyard

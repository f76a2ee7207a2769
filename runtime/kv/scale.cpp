#include "kv/scale.h"

#include "base/versioned.h"
#include "kv/block.h"

#include <algorithm>
#include <limits>

namespace halyard {

halyard_status read_scale(const halyard_scale_desc *scale, int index, Dtype out_dtype, ScaleDesc *out,
                          halyard_error *error) noexcept {
    const StageName name(index, "scale");
    halyard_scale_desc given = {};
    HALYARD_TRY(read_struct(scale, name.text, &given, error));
    HALYARD_TRY(check_choice(name.text, "kind", given.kind, HALYARD_SCALE_DYNAMIC, error));
    HALYARD_TRY(check_choice(name.text, "per", given.per, HALYARD_SCALE_PER_HEAD, error));
    HALYARD_TRY(check_choice(name.text, "reserved", given.reserved, 0, error));
    out->dynamic = given.kind == HALYARD_SCALE_DYNAMIC;
    out->by_head = given.per == HALYARD_SCALE_PER_HEAD;
    if (out->dynamic && given.per != 0) {
        return fail(error, HALYARD_ERROR_MISMATCH, name.text, ".per is ", given.per,
                    ", but dynamic scales are per token and head, which is 0");
    }
    if (out->dynamic && !is_8_bit(out_dtype)) {
        return fail(error, HALYARD_ERROR_MISMATCH, name.text, ".kind is dynamic, but tensors[", index,
                    "].kv.out_dtype is ", name_of(out_dtype), ": dynamic scales are for e4m3, e5m2 and int8");
    }
    return HALYARD_OK;
}

// ---- Values --------------------------------------------------------------------------------------------------------

namespace {

/// The name of an array of a tensor, for sentences.
NameText text_of(const KvCall &call, Array array, int index) {
    return {words_of(array).name, call.given.is_bound, index};
}

/// Where a float of an array lies: of a batch row (of a cache's scales 0), token (or slot) and head.
char *find_scale(const KvCall &call, int index, Array array, std::int64_t batch, std::int64_t token,
                 std::int64_t head) {
    const std::int64_t *const strides = call.kv.tensors[index].arrays[static_cast<int>(array)].elements.strides;
    const std::int64_t at = batch * strides[0] + token * strides[1] + head * strides[2];
    return call.arrays.of_tensor[index][static_cast<int>(array)] + at * std::int64_t{sizeof(float)};
}

}  // namespace

namespace {

float static_scale(const KvCall &call, int index, std::int64_t i) {
    return read_word<float>(call.arrays.of_tensor[index][static_cast<int>(Array::scales)] +
                            i * std::int64_t{sizeof(float)});
}

/// What a stride of 0 shares is looked at once.
halyard_status check_position_scales(const KvCall &call, int index, halyard_error *error) {
    const Lattice &all = call.kv.tensors[index].arrays[static_cast<int>(Array::position_scales)].elements;
    const auto n = [&](int dim) { return all.strides[dim] == 0 ? 1 : all.shape[dim]; };
    for (std::int64_t batch = 0; batch < n(0); batch++) {
        for (std::int64_t token = 0; token < n(1); token++) {
            for (std::int64_t head = 0; head < n(2); head++) {
                const auto value =
                    read_word<float>(find_scale(call, index, Array::position_scales, batch, token, head));
                if (value - value != 0.0f) {
                    const TokenNumbers::Name name = call.program.positions.name_of(batch, token);
                    return fail(error, HALYARD_ERROR_SCALE, text_of(call, Array::position_scales, index), "[batch ",
                                name.batch, ", token ", name.token, ", head ", head, "] is ", double(value),
                                ", but must be finite");
                }
            }
        }
    }
    return HALYARD_OK;
}

}  // namespace

halyard_status check_read_scales(const KvCall &call, int index, halyard_error *error) noexcept {
    const KvTensor &stages = call.kv_plan().tensors[index];
    const std::int64_t n =
        stages.asks_for(Array::scales) ? stages.scale->count(call.program.tensors[index].n_heads) : 0;
    for (std::int64_t i = 0; i < n; i++) {
        if (const float scale = static_scale(call, index, i); !is_scale(scale)) {
            return fail(error, HALYARD_ERROR_SCALE, text_of(call, Array::scales, index), "[", i, "] is ",
                        double(scale), ", but it and its reciprocal must be positive and finite");
        }
    }
    return stages.position_scales ? check_position_scales(call, index, error) : HALYARD_OK;
}

halyard_status check_moved_scales(const KvCall &call, int index, halyard_error *error) noexcept {
    const KvTensor &stages = call.kv_plan().tensors[index];
    const Positions &tokens = call.program.positions;
    const bool is_dynamic = stages.scale && stages.scale->dynamic;
    for (std::int64_t at = 0; is_dynamic && at < tokens.count(); at++) {
        const std::int64_t batch = at / tokens.n_tokens, token = at % tokens.n_tokens;
        const std::int64_t row = stages.cache ? call.kv.slots.of_token(call.arrays.slots, at) : token;
        for (std::int64_t head = 0; row >= 0 && head < call.program.tensors[index].n_heads; head++) {
            const float scale =
                load_scale(find_scale(call, index, Array::scales_out, stages.cache ? 0 : batch, row, head));
            if (!is_scale(scale)) {
                const std::int64_t name = stages.cache ? row : tokens.name_of(batch, token).token;
                return fail(error, HALYARD_ERROR_SCALE, text_of(call, Array::scales_out, index),
                            stages.cache ? "[slot " : "[token ", name, ", head ", head, "] is ", double(scale),
                            ", but it and its reciprocal must be positive and finite",
                            scale == 0.0f ? ": no key was stored there" : "");
            }
        }
    }
    return HALYARD_OK;
}

// ---- Steps ---------------------------------------------------------------------------------------------------------

namespace {

/// Loads a block's scales by position, [token][head].
void load_position_scales(const KvCall &call, const Block &block) {
    float *s = block.work->numbers;
    for (std::int64_t token = 0; token < block.n_tokens; token++) {
        for (std::int64_t head = 0; head < block.n_heads; head++, s++) {
            *s = read_word<float>(find_scale(call, block.index, Array::position_scales, block.batch,
                                             block.token + token, block.head + head));
        }
    }
}

}  // namespace

void multiply_by_position_scales(const KvCall &call, Block &block) noexcept {
    load_position_scales(call, block);
    const std::int64_t head_dim = call.desc(block).head_dim;
    const float *s = block.work->numbers;
    for (std::int64_t token = 0; token < block.n_tokens; token++) {
        for (std::int64_t head = 0; head < block.n_heads; head++, s++) {
            float *const to = block.work->floats + token * block.strides.token + head * block.strides.head;
            for (std::int64_t i = 0; i < head_dim; i++) {
                to[i] *= *s;
            }
        }
    }
}

void take_position_scales(const KvCall &call, Block &block) noexcept {
    load_position_scales(call, block);
    block.factors = {block.work->numbers, {0, 1, block.n_heads}};
}

void take_static_scales(const KvCall &call, Block &block) noexcept {
    const ScaleDesc &scale = *call.stages(block).scale;
    const std::int64_t n = scale.count(block.n_heads), first = scale.by_head ? block.head : 0;
    float *const r = block.work->numbers;
    for (std::int64_t i = 0; i < n; i++) {
        r[i] = 1.0f / static_scale(call, block.index, first + i);
    }
    block.factors = {r, {0, scale.by_head ? 1 : 0, 0}};
}

void make_dynamic_scales(const KvCall &call, Block &block) noexcept {
    const TensorPlan &desc = call.desc(block);
    const bool has_cache = call.stages(block).cache.has_value();
    float *r = block.work->numbers;
    find_largest(call.kernels(), block.extents(desc.head_dim), block.floats(), r);
    for (std::int64_t token = 0; token < block.n_tokens; token++) {
        const std::int64_t row = has_cache ? call.slot_of(block, token) : block.token + token;
        for (std::int64_t head = 0; head < block.n_heads; head++, r++) {
            char *const where = row < 0 ? nullptr
                                        : find_scale(call, block.index, Array::scales_out, has_cache ? 0 : block.batch,
                                                     row, block.head + head);
            const float before = call.kv.rerotates && row >= 0 ? load_scale(where) : 1.0f;
            // The rotation may turn the longest pair into one element, for which no finite scale is large enough.
            const float scale =
                std::min(before * (*r / greatest_of(desc.out_dtype)), std::numeric_limits<float>::max());
            const float used = scale >= std::numeric_limits<float>::min() ? scale : 1.0f;  // below, it is not normal
            *r = before / used;
            if (row >= 0) {
                store_scale(where, used);
            }
        }
    }
    block.factors = {block.work->numbers, {0, 1, block.n_heads}};
}

}  // namespace halyard

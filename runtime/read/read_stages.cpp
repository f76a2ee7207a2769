#include "read/read_stages.h"

#include "base/error.h"
#include "base/versioned.h"
#include "read/areas.h"
#include "read/token_records.h"

#include <algorithm>
#include <bit>
#include <cstdio>

namespace halyard {

namespace {

halyard_status check_count(std::int64_t given, std::int64_t needed, const char *field, int index,
                           halyard_error *error) {
    return given == needed ? HALYARD_OK
                           : fail(error, HALYARD_ERROR_SHAPE, "stages[", index, "].", field, " is ", given,
                                  ", but must be ", needed);
}

/// The memory of dense rows; false where they leave the address space.
bool find_dense_range(const void *data, std::int64_t n_rows, std::int64_t n_columns, std::int64_t element_bytes,
                      MemoryRange *out) {
    const std::int64_t dense[] = {n_columns, 1};
    return find_memory_range<2>(data, {n_rows, n_columns}, dense, element_bytes, out);
}

/// A cache as the output of a tensor, which it is walked as.
void set_cache_strides(int index, const Spans &spans, Run &run) {
    const TensorDesc &desc = run.plan->tensors[index];
    const CacheDesc &cache = *desc.cache;
    RunTensor &tensor = run.tensors[index];
    tensor.out = {0, 0, tensor.n_heads > 1 ? cache.stride_head : 0, 0};
    cache.is_linear(desc.out_dim(), &tensor.out.element);
    if (tensor.in_place) {
        tensor.x = tensor.y;
        tensor.in = tensor.out;
    }
    tensor.within_int32 = spans.x[index].n_bytes() <= INT32_MAX && spans.y[index].n_bytes() <= INT32_MAX;
}

/// Says which array is not there that a tensor's stages ask for, or is there for nothing.
[[gnu::cold]] halyard_status fail_arrays(const Run &run, unsigned given, int index, halyard_error *error) {
    static constexpr const char *asked_by[] = {"a norm with a weight",
                                               "a norm with a bias",
                                               "static scales",
                                               "dynamic scales",
                                               "a cache",
                                               "scales by position",
                                               "groups with scales apart",
                                               "from_groups with scales apart"};
    const auto first = static_cast<StageArray>(std::countr_zero(given ^ run.plan->tensors[index].asked));
    const bool is_needed = run.plan->tensors[index].asks_for(first);
    return fail(error, is_needed ? HALYARD_ERROR_NULL_POINTER : HALYARD_ERROR_MISMATCH, StageName(run, first, index),
                is_needed ? " is NULL" : " is set", ", but tensors[", index, is_needed ? "] has " : "] does not have ",
                asked_by[first]);
}

/// Finds the memory of an array that a tensor's stages ask for; false where it leaves the address space.
bool find_range(const Run &run, int index, StageArray array, MemoryRange *out) {
    const TensorDesc &desc = run.plan->tensors[index];
    const RunStages &stages = run.stages[index];
    const std::int64_t n_heads = run.tensors[index].n_heads;
    switch (array) {
    case weight_array:
    case bias_array:
        return find_dense_range(stages.data(array), desc.norm->n_rows_of_weights(n_heads), desc.norm->size,
                                element_bytes(*desc.norm->weight), out);
    case scales_array: return find_dense_range(stages.data(array), desc.scale->count(n_heads), 1, sizeof(float), out);
    case scales_out_array: return find_memory_range(scales_out_of(run, index), out);
    case cache_array: return find_memory_range(cache_of(run, index), out);
    case position_scales_array:
        return find_memory_range<3>(stages.data(array), {run.n_batch, run.n_tokens, n_heads}, stages.position_strides,
                                    sizeof(float), out);
    case group_scales_array: return find_memory_range(group_scales_of(run, index), out);
    case from_group_scales_array: return find_memory_range(from_group_scales_of(run, index), out);
    }
    return false;
}

}  // namespace

halyard_status place_stages(const StagePointers &given, int index, Run &run, Spans &spans,
                            halyard_error *error) noexcept {
    const TensorDesc &desc = run.plan->tensors[index];
    RunStages &stages = run.stages[index];
    unsigned brought = 0;
    for (int array = 0; array < n_stage_arrays; array++) {
        brought |= unsigned{given[array] != nullptr} << array;
        stages.arrays[array] = {static_cast<char *>(const_cast<void *>(given[array])), {0, 0}};
    }
    if (brought != desc.asked) {
        return fail_arrays(run, brought, index, error);
    }
    if (desc.cache) {
        run.tensors[index].y = stages.data(cache_array);
    }
    for (unsigned left = desc.asked; left != 0; left &= left - 1) {
        const auto array = static_cast<StageArray>(std::countr_zero(left));
        if (!find_range(run, index, array, &stages.arrays[array].range)) {
            return fail(error, HALYARD_ERROR_OVERFLOW, StageName(run, array, index), " leaves the address space");
        }
    }
    if (desc.cache) {
        MemoryRange &cache = stages.arrays[cache_array].range;
        cache.end -= static_cast<std::uintptr_t>(desc.cache->overhang * element_bytes(desc.out_dtype));
        spans.y[index] = cache;
        set_cache_strides(index, spans, run);
    }
    return HALYARD_OK;
}

halyard_status check_static_scales(const Run &run, int index, halyard_error *error) noexcept {
    const TensorDesc &desc = run.plan->tensors[index];
    const bool is_static = desc.scale && !desc.scale->dynamic;
    const std::int64_t n = is_static ? desc.scale->count(run.tensors[index].n_heads) : 0;
    for (std::int64_t i = 0; i < n; i++) {
        const auto scale = read_word<float>(run.stages[index].data(scales_array) + i * std::int64_t{sizeof(float)});
        if (!is_scale(scale)) {
            return fail(error, HALYARD_ERROR_SCALE, StageName(run, scales_array, index), "[", i, "] is ", double(scale),
                        ", but it and its reciprocal must be positive and finite");
        }
    }
    return HALYARD_OK;
}

halyard_status check_position_scales(const Run &run, int index, halyard_error *error) noexcept {
    const RunStages &stages = run.stages[index];
    const std::int64_t(&strides)[3] = stages.position_strides;
    const auto n_apart = [&](std::int64_t n, int dim) { return strides[dim] == 0 ? 1 : n; };  // 0 where there are none
    const bool has = stages.data(position_scales_array) != nullptr && run.tensors[index].n_heads != 0;
    for (std::int64_t batch = 0; has && batch < n_apart(run.n_batch, 0); batch++) {
        for (std::int64_t token = 0; token < n_apart(run.n_tokens, 1); token++) {
            for (std::int64_t head = 0; head < n_apart(run.tensors[index].n_heads, 2); head++) {
                const std::int64_t at = batch * strides[0] + token * strides[1] + head * strides[2];
                const auto scale =
                    read_word<float>(stages.data(position_scales_array) + at * std::int64_t{sizeof(float)});
                if (scale - scale != 0.0f) {
                    return fail(error, HALYARD_ERROR_SCALE, StageName(run, position_scales_array, index), "[batch ",
                                batch, ", token ", token, ", head ", head, "] is ", double(scale),
                                ", but must be finite");
                }
            }
        }
    }
    return HALYARD_OK;
}

halyard_status check_moved_scales(const Run &run, int index, halyard_error *error) noexcept {
    const TensorDesc &desc = run.plan->tensors[index];
    if (desc.groups) {
        return check_moved_records(run, index, error);
    }
    const RunStages &stages = run.stages[index];
    const bool is_dynamic = desc.scale && desc.scale->dynamic && run.tensors[index].n_heads != 0;
    for (std::int64_t batch = 0; batch < run.n_batch && is_dynamic; batch++) {
        for (std::int64_t token = 0; token < run.n_tokens; token++) {
            const std::int64_t row = desc.cache ? run.slots.of_token(batch * run.n_tokens + token) : token;
            for (std::int64_t head = 0; head < run.tensors[index].n_heads && row >= 0; head++) {
                const std::int64_t at = (desc.cache ? 0 : batch * stages.stride_batch) + row * stages.stride_token +
                                        head * stages.stride_head;
                const float scale = load_scale(stages.data(scales_out_array) + at * std::int64_t{sizeof(float)});
                if (!is_scale(scale)) {
                    return fail(error, HALYARD_ERROR_SCALE, StageName(run, scales_out_array, index),
                                desc.cache ? "[slot " : "[token ", row, ", head ", head, "] is ", double(scale),
                                ", but it and its reciprocal must be positive and finite",
                                scale == 0.0f ? ": no key was stored there" : "");
                }
            }
        }
    }
    return HALYARD_OK;
}

namespace {

/// Where scales of groups lie from block (or batch row), token and head to the next: as described, or dense.
void set_group_strides(const std::optional<GroupsDesc> &groups, std::int64_t n_tokens, std::int64_t n_heads,
                       GroupStrides &scales) {
    scales = {0, 0, 0};
    if (!groups || !groups->scales_apart) {
        return;
    }
    scales = groups->strides;
    if (!scales.are_zero()) {
        return;
    }
    scales.stride_head = groups->n_groups * groups->scale_stride;
    scales.stride_token = n_heads * scales.stride_head;
    // Beyond what an address can be, saturated: the memory range says so.
    if (__builtin_mul_overflow(n_tokens, scales.stride_token, &scales.stride_batch)) {
        scales.stride_batch = INT64_MAX;
    }
}

/// Refuses strides of scales that nothing asks for.
halyard_status check_unasked_strides(const halyard_stages &given, const TensorDesc &desc, int index,
                                     halyard_error *error) {
    const bool writes_scales = desc.asks_for(scales_out_array);
    for (int i = 0; i < 3; i++) {
        if (given.stride_scales[i] != 0 && (!writes_scales || (i == 0 && desc.cache))) {
            return fail(error, HALYARD_ERROR_MISMATCH, "stages[", index, "].stride_scales[", i, "] is ",
                        given.stride_scales[i], ", but ",
                        !writes_scales ? "no scales are written"
                                       : "in a cache scales have no batch: theirs are 0, slot, head");
        }
        if (given.stride_position_scales[i] != 0 && !desc.position_scales) {
            return fail(error, HALYARD_ERROR_MISMATCH, "stages[", index, "].stride_position_scales[", i, "] is ",
                        given.stride_position_scales[i], ", but tensors[", index, "] does not have scales by position");
        }
    }
    return HALYARD_OK;
}

/// Reads the stages of one tensor, which has elements.
halyard_status read_stages_of(const halyard_stages &given, int index, Run &run, Spans &spans, halyard_error *error) {
    const TensorDesc &desc = run.plan->tensors[index];
    const std::int64_t n_heads = run.tensors[index].n_heads;
    RunStages &stages = run.stages[index];
    const bool writes_scales = desc.asks_for(scales_out_array);
    HALYARD_TRY(check_unasked_strides(given, desc, index, error));
    // Strides that are never walked may be anything.
    stages.stride_batch = writes_scales && run.n_batch > 1 && !desc.cache ? given.stride_scales[0] : 0;
    stages.stride_token = writes_scales && (run.n_tokens > 1 || desc.cache) ? given.stride_scales[1] : 0;
    stages.stride_head = writes_scales && n_heads > 1 ? given.stride_scales[2] : 0;
    const std::int64_t shape[] = {run.n_batch, run.n_tokens, n_heads};
    for (int i = 0; i < 3; i++) {
        stages.position_strides[i] = desc.position_scales && shape[i] > 1 ? given.stride_position_scales[i] : 0;
    }
    set_group_strides(desc.groups, desc.cache ? desc.cache->block_size : run.n_tokens, n_heads, stages.group_scales);
    set_group_strides(desc.from_groups, run.n_tokens, n_heads, stages.from_group_scales);
    const StagePointers pointers = {
        given.weight,          given.bias,         given.scales,           given.scales_out, given.cache,
        given.position_scales, given.group_scales, given.from_group_scales};
    HALYARD_TRY(place_stages(pointers, index, run, spans, error));
    if (desc.cache && !elements_are_apart(cache_of(run, index))) {
        return fail(error, HALYARD_ERROR_STRIDE, "x[", index, "] has ", n_heads, " heads, but two elements of so many ",
                    "could meet in tensors[", index, "].cache, whose stride_head is ", desc.cache->stride_head,
                    ", stride_token ", desc.cache->stride_token, " and stride_block ", desc.cache->stride_block);
    }
    if (writes_scales && !elements_are_apart(scales_out_of(run, index))) {
        return fail(error, HALYARD_ERROR_STRIDE, "stages[", index, "].stride_scales is ", given.stride_scales[0], ", ",
                    given.stride_scales[1], ", ", given.stride_scales[2], ", by which two scales could meet");
    }
    if (desc.asks_for(group_scales_array) && !elements_are_apart(group_scales_of(run, index))) {
        return fail(error, HALYARD_ERROR_STRIDE, "tensors[", index,
                    "].groups->scales_stride_… are such that two scales could meet");
    }
    const std::int64_t n_weights = desc.asks_for(weight_array) ? desc.norm->n_weights(n_heads) : 0;
    const std::int64_t n_scales = desc.asks_for(scales_array) ? desc.scale->count(n_heads) : 0;
    HALYARD_TRY(check_count(given.n_weights, n_weights, "n_weights", index, error));
    HALYARD_TRY(check_count(given.n_scales, n_scales, "n_scales", index, error));
    HALYARD_TRY(check_static_scales(run, index, error));
    return check_position_scales(run, index, error);
}

[[gnu::cold]] halyard_status fail_no_stages(const TensorDesc &desc, int index, bool no_slots, halyard_error *error) {
    const bool has_scales_apart = desc.asks_for(group_scales_array) || desc.asks_for(from_group_scales_array);
    return fail(error, HALYARD_ERROR_NULL_POINTER,
                desc.cache && no_slots ? "args.stages and args.slots are NULL" : "args.stages is NULL",
                ", but tensors[", index, "] has ",
                desc.cache             ? "a cache"
                : desc.scale           ? "a scale"
                : desc.position_scales ? "scales by position"
                : has_scales_apart     ? "groups with scales apart"
                                       : "a norm with a weight");
}

/// Says what is wrong with stages of another size, or with a reserved field that is set.
[[gnu::cold]] halyard_status fail_stages(int index, const halyard_stages &stages, halyard_error *error) {
    char name[24];
    std::snprintf(name, sizeof(name), "stages[%d]", index);
    HALYARD_TRY(check_struct(&stages, name, error));
    return fail(error, HALYARD_ERROR_UNKNOWN_VALUE, name, ".reserved is ", stages.reserved, ", but must be 0");
}

}  // namespace

halyard_status read_stages(const halyard_slots *slots, const halyard_stages *stages, Run &run, Spans &spans,
                           halyard_error *error) noexcept {
    std::int64_t n_slots = INT64_MAX;
    bool has_cache = false, stores = false;
    run.writes_views = false;
    static constexpr halyard_stages none = {};
    for (int i = 0; i < run.plan->n_tensors; i++) {
        const TensorDesc &desc = run.plan->tensors[i];
        const halyard_stages *given = &none;
        if (stages != nullptr) {
            given = &stages[i];
            if (given->size != sizeof(halyard_stages) || given->reserved != 0) {
                return fail_stages(i, *given, error);
            }
        } else if (desc.asked != 0) {
            return fail_no_stages(desc, i, slots == nullptr, error);
        }
        if (desc.cache) {
            has_cache = true;
            n_slots = std::min(n_slots, desc.cache->n_slots);
        }
        if (run.tensors[i].n_heads != 0) {
            stores = stores || desc.cache;
            run.writes_views = run.writes_views || !desc.cache;
            HALYARD_TRY(read_stages_of(*given, i, run, spans, error));
        }
    }
    if (!has_cache && slots != nullptr) {
        return fail(error, HALYARD_ERROR_MISMATCH, "args.slots is set, but no tensor of the plan has a cache");
    }
    if (has_cache && slots == nullptr) {
        return fail_null(error, "args.slots");
    }
    if (!stores) {
        return HALYARD_OK;
    }
    HALYARD_TRY(read_slots(slots, run.n_batch, run.n_tokens, n_slots, &run.slots, error));
    if (run.plan->rerotates && run.slots.may_be_doubled) {
        return fail(error, HALYARD_ERROR_MISMATCH,
                    "slots.policy is HALYARD_SLOTS_RANGE_ONLY, but a key must not be "
                    "rotated twice, which HALYARD_SLOTS_CHECK makes sure of");
    }
    return HALYARD_OK;
}

}  // namespace halyard

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

halyard_status fail_space(const Run &run, const char *field, int index, halyard_error *error) {
    return fail(error, HALYARD_ERROR_OVERFLOW, StageName(run, field, index), " leaves the address space");
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
    static constexpr struct {
        const char *name, *what;
    } arrays[] = {{"weight", "a norm with a weight"},
                  {"bias", "a norm with a bias"},
                  {"scales", "static scales"},
                  {"scales_out", "dynamic scales"},
                  {"cache", "a cache"},
                  {"position_scales", "scales by position"},
                  {"group_scales", "groups with scales_apart"},
                  {"from_group_scales", "from_groups with scales_apart"}};
    const int first = std::countr_zero(given ^ run.plan->tensors[index].asked);
    const bool is_needed = (given >> first & 1) == 0;
    return fail(error, is_needed ? HALYARD_ERROR_NULL_POINTER : HALYARD_ERROR_MISMATCH,
                StageName(run, arrays[first].name, index), is_needed ? " is NULL" : " is set", ", but tensors[", index,
                is_needed ? "] has " : "] does not have ", arrays[first].what);
}

/// The arrays that a run brings.
unsigned list_arrays(const StagePointers &given) {
    const auto bit = [](const void *data, unsigned array) { return data == nullptr ? 0 : array; };
    return bit(given.weight, weight_array) | bit(given.bias, bias_array) | bit(given.scales, scales_array) |
           bit(given.scales_out, scales_out_array) | bit(given.cache, cache_array) |
           bit(given.position_scales, position_scales_array) | bit(given.group_scales, group_scales_array) |
           bit(given.from_group_scales, from_group_scales_array);
}

/// Finds the memory of the weights or biases of a tensor's norm.
bool find_range_of_weights(const Run &run, int index, const char *data, MemoryRange *out) {
    const NormDesc &norm = *run.plan->tensors[index].norm;
    return find_dense_range(data, norm.n_rows_of_weights(run.tensors[index].n_heads), norm.size,
                            element_bytes(*norm.weight), out);
}

/// Finds the memory of the arrays that few tensors have. (Apart, because the others' calls are shorter without it.)
[[gnu::noinline]] halyard_status find_rare_ranges(const Run &run, int index, RunStages &stages, halyard_error *error) {
    const TensorDesc &desc = run.plan->tensors[index];
    const std::int64_t n_heads = run.tensors[index].n_heads;
    if ((desc.asked & bias_array) != 0 && !find_range_of_weights(run, index, stages.bias, &stages.bias_memory)) {
        return fail_space(run, "bias", index, error);
    }
    if ((desc.asked & scales_out_array) != 0 &&
        !find_memory_range(scales_out_of(run, index), &stages.scales_out_memory)) {
        return fail_space(run, "scales_out", index, error);
    }
    if ((desc.asked & scales_array) != 0 &&
        !find_dense_range(stages.scales, desc.scale->by_head ? n_heads : 1, desc.scale->by_channel ? desc.head_dim : 1,
                          sizeof(float), &stages.scales_memory)) {
        return fail_space(run, "scales", index, error);
    }
    const std::int64_t shape[] = {run.n_batch, run.n_tokens, n_heads};
    if (desc.position_scales && !find_memory_range(stages.position_scales, shape, stages.position_strides,
                                                   sizeof(float), &stages.position_scales_memory)) {
        return fail_space(run, "position_scales", index, error);
    }
    if (stages.group_scales.data != nullptr &&
        !find_memory_range(group_scales_of(run, index, *desc.groups, stages.group_scales, desc.cache.has_value()),
                           &stages.group_scales.memory)) {
        return fail_space(run, "group_scales", index, error);
    }
    if (stages.from_group_scales.data != nullptr &&
        !find_memory_range(group_scales_of(run, index, *desc.from_groups, stages.from_group_scales, false),
                           &stages.from_group_scales.memory)) {
        return fail_space(run, "from_group_scales", index, error);
    }
    return HALYARD_OK;
}

}  // namespace

halyard_status place_stages(const StagePointers &given, int index, Run &run, Spans &spans,
                            halyard_error *error) noexcept {
    const TensorDesc &desc = run.plan->tensors[index];
    RunTensor &tensor = run.tensors[index];
    RunStages &stages = run.stages[index];
    if (const unsigned arrays = list_arrays(given); arrays != desc.asked) {
        return fail_arrays(run, arrays, index, error);
    }
    stages.weight = static_cast<const char *>(given.weight);
    stages.bias = static_cast<const char *>(given.bias);
    stages.scales = reinterpret_cast<const char *>(given.scales);
    stages.scales_out = reinterpret_cast<char *>(given.scales_out);
    stages.position_scales = reinterpret_cast<const char *>(given.position_scales);
    stages.group_scales.data = static_cast<char *>(given.group_scales);
    stages.from_group_scales.data = static_cast<char *>(const_cast<void *>(given.from_group_scales));
    stages.weight_memory = stages.bias_memory = stages.scales_memory = stages.scales_out_memory =
        stages.position_scales_memory = stages.group_scales.memory = stages.from_group_scales.memory = {0, 0};
    if (desc.cache) {
        tensor.y = static_cast<char *>(given.cache);
        if (!find_memory_range(cache_of(run, index), &spans.y[index])) {
            return fail_space(run, "cache", index, error);
        }
        spans.y[index].end -= static_cast<std::uintptr_t>(desc.cache->overhang * element_bytes(desc.out_dtype));
        set_cache_strides(index, spans, run);
    }
    if ((desc.asked & weight_array) != 0 && !find_range_of_weights(run, index, stages.weight, &stages.weight_memory)) {
        return fail_space(run, "weight", index, error);
    }
    return (desc.asked & ~(weight_array | cache_array)) == 0 ? HALYARD_OK : find_rare_ranges(run, index, stages, error);
}

halyard_status check_static_scales(const Run &run, int index, halyard_error *error) noexcept {
    const TensorDesc &desc = run.plan->tensors[index];
    const bool is_static = desc.scale && !desc.scale->dynamic;
    const std::int64_t n = is_static ? desc.scale->count(run.tensors[index].n_heads, desc.head_dim) : 0;
    for (std::int64_t i = 0; i < n; i++) {
        const auto scale = read_word<float>(run.stages[index].scales + i * std::int64_t{sizeof(float)});
        if (!is_scale(scale)) {
            return fail(error, HALYARD_ERROR_SCALE, StageName(run, "scales", index), "[", i, "] is ", double(scale),
                        ", but it and its reciprocal must be positive and finite");
        }
    }
    return HALYARD_OK;
}

halyard_status check_position_scales(const Run &run, int index, halyard_error *error) noexcept {
    const RunStages &stages = run.stages[index];
    const std::int64_t(&strides)[3] = stages.position_strides;
    const auto n_apart = [&](std::int64_t n, int dim) { return strides[dim] == 0 ? 1 : n; };  // 0 where there are none
    const bool has = stages.position_scales != nullptr && run.tensors[index].n_heads != 0;
    for (std::int64_t batch = 0; has && batch < n_apart(run.n_batch, 0); batch++) {
        for (std::int64_t token = 0; token < n_apart(run.n_tokens, 1); token++) {
            for (std::int64_t head = 0; head < n_apart(run.tensors[index].n_heads, 2); head++) {
                const std::int64_t at = batch * strides[0] + token * strides[1] + head * strides[2];
                const auto scale = read_word<float>(stages.position_scales + at * std::int64_t{sizeof(float)});
                if (scale - scale != 0.0f) {
                    return fail(error, HALYARD_ERROR_SCALE, StageName(run, "position_scales", index), "[batch ", batch,
                                ", token ", token, ", head ", head, "] is ", double(scale), ", but must be finite");
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
                const float scale = load_scale(stages.scales_out + at * std::int64_t{sizeof(float)});
                if (!is_scale(scale)) {
                    return fail(error, HALYARD_ERROR_SCALE, StageName(run, "scales_out", index),
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
                       GroupScales &scales) {
    scales.stride_batch = scales.stride_token = scales.stride_head = 0;
    if (!groups || !groups->scales_apart) {
        return;
    }
    const std::int64_t(&given)[3] = groups->scales_strides;
    const bool is_dense = given[0] == 0 && given[1] == 0 && given[2] == 0;
    scales.stride_head = is_dense ? groups->n_groups * groups->scale_stride : given[2];
    scales.stride_token = is_dense ? n_heads * scales.stride_head : given[1];
    // Beyond what an address can be, saturated: the memory range says so.
    if (!is_dense) {
        scales.stride_batch = given[0];
    } else if (__builtin_mul_overflow(n_tokens, scales.stride_token, &scales.stride_batch)) {
        scales.stride_batch = INT64_MAX;
    }
}

/// Refuses strides of scales that nothing asks for.
halyard_status check_unasked_strides(const halyard_stages &given, const TensorDesc &desc, int index,
                                     halyard_error *error) {
    const bool writes_scales = (desc.asked & scales_out_array) != 0;
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
    const bool writes_scales = (desc.asked & scales_out_array) != 0;
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
    const StagePointers pointers = {given.weight,          given.scales, given.scales_out,   given.cache,
                                    given.position_scales, given.bias,   given.group_scales, given.from_group_scales};
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
    if (stages.group_scales.data != nullptr &&
        !elements_are_apart(group_scales_of(run, index, *desc.groups, stages.group_scales, desc.cache.has_value()))) {
        return fail(error, HALYARD_ERROR_STRIDE, "tensors[", index,
                    "].groups->scales_stride_… are such that two scales could meet");
    }
    const bool has_weight = (desc.asked & weight_array) != 0, is_static = (desc.asked & scales_array) != 0;
    HALYARD_TRY(
        check_count(given.n_weights, has_weight ? desc.norm->n_weights(n_heads) : 0, "n_weights", index, error));
    HALYARD_TRY(check_count(given.n_scales, is_static ? desc.scale->count(n_heads, desc.head_dim) : 0, "n_scales",
                            index, error));
    HALYARD_TRY(check_static_scales(run, index, error));
    return check_position_scales(run, index, error);
}

bool has_scales_apart(const TensorDesc &desc) {
    return (desc.groups && desc.groups->scales_apart) || (desc.from_groups && desc.from_groups->scales_apart);
}

[[gnu::cold]] halyard_status fail_no_stages(const TensorDesc &desc, int index, halyard_error *error) {
    return fail(error, HALYARD_ERROR_NULL_POINTER, "args.stages is NULL, but tensors[", index, "] has ",
                desc.cache               ? "a cache"
                : desc.scale             ? "a scale"
                : desc.position_scales   ? "scales by position"
                : has_scales_apart(desc) ? "groups with scales_apart"
                                         : "a norm with a weight");
}

/// Reads stages that have an earlier version's size, or says what is wrong with them.
[[gnu::cold]] halyard_status view_other_stages(int index, halyard_stages *copy, const halyard_stages **stages,
                                               halyard_error *error) {
    char name[24];
    std::snprintf(name, sizeof(name), "stages[%d]", index);
    HALYARD_TRY(view_struct(*stages, name, copy, stages, error));
    return (*stages)->reserved == 0 ? HALYARD_OK
                                    : fail(error, HALYARD_ERROR_UNKNOWN_VALUE, name, ".reserved is ",
                                           (*stages)->reserved, ", but must be 0");
}

}  // namespace

halyard_status read_stages(const halyard_slots *slots, const halyard_stages *stages, Run &run, Spans &spans,
                           halyard_error *error) noexcept {
    std::int64_t n_slots = INT64_MAX;
    bool has_cache = false, stores = false;
    static constexpr halyard_stages none = {};
    for (int i = 0; i < run.plan->n_tensors; i++) {
        const TensorDesc &desc = run.plan->tensors[i];
        const halyard_stages *given = &none;
        halyard_stages copy;
        if (stages != nullptr) {
            given = element_of(stages, i);
            if (given->size != sizeof(halyard_stages) || given->reserved != 0) {
                HALYARD_TRY(view_other_stages(i, &copy, &given, error));
            }
        } else if (desc.asked != 0 || desc.scale || has_scales_apart(desc)) {
            return fail_no_stages(desc, i, error);
        }
        if (desc.cache) {
            has_cache = true;
            n_slots = std::min(n_slots, desc.cache->n_slots);
        }
        if (run.tensors[i].n_heads != 0) {
            stores = stores || desc.cache;
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

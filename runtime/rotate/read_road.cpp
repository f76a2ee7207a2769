#include "rotate/read_road.h"

#include "base/error.h"
#include "base/versioned.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace halyard {

namespace {

/// What is asked of the pointer, and the count, that a stage needs or not.
halyard_status check_given(bool is_needed, const void *data, const char *field, const char *why, int index,
                           halyard_error *error) {
    if (is_needed && data == nullptr) {
        return fail(error, HALYARD_ERROR_NULL_POINTER, "stages[", index, "].", field, " is NULL, but tensors[", index,
                    "] has ", why);
    }
    if (!is_needed && data != nullptr) {
        return fail(error, HALYARD_ERROR_MISMATCH, "stages[", index, "].", field, " is set, but tensors[", index,
                    "] does not have ", why);
    }
    return HALYARD_OK;
}

halyard_status check_count(std::int64_t given, std::int64_t needed, const char *field, int index,
                           halyard_error *error) {
    return given == needed ? HALYARD_OK
                           : fail(error, HALYARD_ERROR_SHAPE, "stages[", index, "].", field, " is ", given,
                                  ", but must be ", needed);
}

/// Where the scales of a tensor are written, which have the shape of its tokens or of its cache's slots.
Lattice scales_out_of(const Run &run, int index) {
    const TensorDesc &desc = run.plan->tensors[index].desc;
    const RunStages &stages = run.stages[index];
    return {stages.scales_out,
            sizeof(float),
            {desc.cache ? 1 : run.n_batch, desc.cache ? desc.cache->n_slots : run.n_tokens, run.tensors[index].n_heads,
             1, 1, 1},
            {stages.stride_batch, stages.stride_token, stages.stride_head, 0, 0, 0}};
}

Lattice cache_of(const Run &run, int index) {
    const TensorDesc &desc = run.plan->tensors[index].desc;
    return desc.cache->elements(run.tensors[index].y, desc.out_dtype, run.tensors[index].n_heads, desc.head_dim);
}

/// The memory of dense rows; false where they leave the address space.
bool find_dense_range(const void *data, std::int64_t n_rows, std::int64_t n_columns, std::int64_t element_bytes,
                      MemoryRange *out) {
    const std::int64_t dense[] = {n_columns, 1};
    return find_memory_range<2>(data, {n_rows, n_columns}, dense, element_bytes, out);
}

halyard_status fail_space(const char *field, int index, halyard_error *error) {
    return fail(error, HALYARD_ERROR_OVERFLOW, "stages[", index, "].", field, " leaves the address space");
}

/// Finds out which kernel rotates a tensor from its input to a cache, and whether that has offsets of 32 bits.
void find_cache_kernel(int index, const Spans &spans, Run &run) {
    const halyard_plan::Tensor &planned = run.plan->tensors[index];
    const CacheDesc &cache = *planned.desc.cache;
    RunTensor &tensor = run.tensors[index];
    tensor.out = {0, 0, tensor.n_heads > 1 ? cache.stride_head : 0, 0};
    cache.is_linear(planned.desc.head_dim, &tensor.out.element);
    if (tensor.in_place) {
        tensor.x = tensor.y;
        tensor.in = tensor.out;
    }
    RunTensor steps = tensor;  // a step from token to token may be any sum of these
    steps.out.token = cache.stride_block | cache.stride_tile_tokens | cache.stride_token;
    tensor.kernel = &find_kernel(planned, steps, tensor.in_place ? Place::in_place : Place::out_of_place);
    tensor.within_int32 = spans.x[index].n_bytes() <= INT32_MAX && spans.y[index].n_bytes() <= INT32_MAX;
}

}  // namespace

halyard_status place_stages(const StagePointers &given, int index, Run &run, Spans &spans,
                            halyard_error *error) noexcept {
    const TensorDesc &desc = run.plan->tensors[index].desc;
    RunTensor &tensor = run.tensors[index];
    RunStages &stages = run.stages[index];
    const std::int64_t n_heads = tensor.n_heads;
    const bool has_weight = desc.norm && desc.norm->weight;
    const bool is_static = desc.scale && !desc.scale->dynamic, is_dynamic = desc.scale && desc.scale->dynamic;
    halyard_status status = check_given(has_weight, given.weight, "weight", "a norm with a weight", index, error);
    if (status == HALYARD_OK) {
        status = check_given(is_static, given.scales, "scales", "static scales", index, error);
    }
    if (status == HALYARD_OK) {
        status = check_given(is_dynamic, given.scales_out, "scales_out", "dynamic scales", index, error);
    }
    if (status == HALYARD_OK) {
        status = check_given(desc.cache.has_value(), given.cache, "cache", "a cache", index, error);
    }
    if (status != HALYARD_OK) {
        return status;
    }
    stages.weight = static_cast<const char *>(given.weight);
    stages.scales = reinterpret_cast<const char *>(given.scales);
    stages.scales_out = reinterpret_cast<char *>(given.scales_out);
    stages.weight_memory = stages.scales_memory = stages.scales_out_memory = {0, 0};
    if (desc.cache) {
        tensor.y = static_cast<char *>(given.cache);
        if (!find_memory_range(cache_of(run, index), &spans.y[index])) {
            return fail_space("cache", index, error);
        }
        find_cache_kernel(index, spans, run);
    }
    if (has_weight && !find_dense_range(stages.weight, desc.norm->row ? n_heads : 1, desc.norm->size,
                                        element_bytes(*desc.norm->weight), &stages.weight_memory)) {
        return fail_space("weight", index, error);
    }
    if (is_dynamic && !find_memory_range(scales_out_of(run, index), &stages.scales_out_memory)) {
        return fail_space("scales_out", index, error);
    }
    if (is_static &&
        !find_dense_range(stages.scales, desc.scale->by_head ? n_heads : 1, desc.scale->by_channel ? desc.head_dim : 1,
                          sizeof(float), &stages.scales_memory)) {
        return fail_space("scales", index, error);
    }
    return HALYARD_OK;
}

halyard_status check_static_scales(const Run &run, int index, halyard_error *error) noexcept {
    const TensorDesc &desc = run.plan->tensors[index].desc;
    const bool is_static = desc.scale && !desc.scale->dynamic;
    const std::int64_t n = is_static ? desc.scale->count(run.tensors[index].n_heads, desc.head_dim) : 0;
    for (std::int64_t i = 0; i < n; i++) {
        const auto scale = read_word<float>(run.stages[index].scales + i * std::int64_t{sizeof(float)});
        if (!is_scale(scale)) {
            return fail(error, HALYARD_ERROR_SCALE, "stages[", index, "].scales[", i, "] is ", double(scale),
                        ", but it and its reciprocal must be positive and finite");
        }
    }
    return HALYARD_OK;
}

halyard_status check_moved_scales(const Run &run, int index, halyard_error *error) noexcept {
    const TensorDesc &desc = run.plan->tensors[index].desc;
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
                    return fail(error, HALYARD_ERROR_SCALE, "stages[", index, "].scales_out[",
                                desc.cache ? "slot " : "token ", row, ", head ", head, "] is ", double(scale),
                                ", but it and its reciprocal must be positive and finite: no key was stored there");
                }
            }
        }
    }
    return HALYARD_OK;
}

namespace {

/// Reads the stages of one tensor, which has elements.
halyard_status read_stages(const halyard_stages &given, int index, Run &run, Spans &spans, halyard_error *error) {
    const TensorDesc &desc = run.plan->tensors[index].desc;
    const std::int64_t n_heads = run.tensors[index].n_heads;
    RunStages &stages = run.stages[index];
    if (desc.norm && desc.norm->row && n_heads > max_staged_row / desc.head_dim) {
        return fail(error, HALYARD_ERROR_UNSUPPORTED, "x[", index, "] has rows of ", n_heads, " x ", desc.head_dim,
                    " elements, but a norm works on at most ", max_staged_row);
    }
    stages.stride_batch = run.n_batch > 1 && !desc.cache ? given.stride_scales[0] : 0;
    stages.stride_token = given.stride_scales[1];
    stages.stride_head = n_heads > 1 ? given.stride_scales[2] : 0;
    if (run.n_tokens == 1 && !desc.cache) {
        stages.stride_token = 0;
    }
    const StagePointers pointers = {given.weight, given.scales, given.scales_out, given.cache};
    if (const halyard_status status = place_stages(pointers, index, run, spans, error)) {
        return status;
    }
    if (desc.cache && !elements_are_apart(cache_of(run, index))) {
        return fail(error, HALYARD_ERROR_STRIDE, "tensors[", index, "].cache->stride_head is ", desc.cache->stride_head,
                    ", by which two elements of ", n_heads, " heads could meet");
    }
    if (desc.scale && desc.scale->dynamic && !elements_are_apart(scales_out_of(run, index))) {
        return fail(error, HALYARD_ERROR_STRIDE, "stages[", index, "].stride_scales is ", given.stride_scales[0], ", ",
                    given.stride_scales[1], ", ", given.stride_scales[2], ", by which two scales could meet");
    }
    const bool has_weight = desc.norm && desc.norm->weight, is_static = desc.scale && !desc.scale->dynamic;
    halyard_status status =
        check_count(given.n_weights, has_weight ? desc.norm->count(n_heads) : 0, "n_weights", index, error);
    if (status == HALYARD_OK) {
        status = check_count(given.n_scales, is_static ? desc.scale->count(n_heads, desc.head_dim) : 0, "n_scales",
                             index, error);
    }
    return status != HALYARD_OK ? status : check_static_scales(run, index, error);
}

}  // namespace

halyard_status read_road(const halyard_slots *slots, const halyard_stages *stages, Run &run, Spans &spans,
                         halyard_error *error) noexcept {
    std::int64_t n_slots = INT64_MAX;
    bool has_cache = false, stores = false;
    for (int i = 0; i < run.plan->n_tensors; i++) {
        const TensorDesc &desc = run.plan->tensors[i].desc;
        halyard_stages given = {};
        if (stages != nullptr) {
            char name[24];
            std::snprintf(name, sizeof(name), "stages[%d]", i);
            const halyard_stages *const element = element_of(stages, i);
            if (const halyard_status status = read_struct(element, name, &given, error)) {
                return status;
            }
            if (given.reserved != 0) {
                return fail(error, HALYARD_ERROR_UNKNOWN_VALUE, name, ".reserved is ", given.reserved,
                            ", but must be 0");
            }
        } else if ((desc.norm && desc.norm->weight) || desc.scale || desc.cache) {
            return fail(error, HALYARD_ERROR_NULL_POINTER, "args.stages is NULL, but tensors[", i, "] has ",
                        desc.cache   ? "a cache"
                        : desc.scale ? "a scale"
                                     : "a norm with a weight");
        }
        if (desc.cache) {
            has_cache = true;
            n_slots = std::min(n_slots, desc.cache->n_slots);
        }
        if (run.tensors[i].n_heads != 0) {
            stores = stores || desc.cache;
            if (const halyard_status status = read_stages(given, i, run, spans, error)) {
                return status;
            }
        }
    }
    if (!has_cache && slots != nullptr) {
        return fail(error, HALYARD_ERROR_MISMATCH, "args.slots is set, but no tensor of the plan has a cache");
    }
    if (has_cache && slots == nullptr) {
        return fail_null(error, "args.slots");
    }
    const halyard_status status =
        stores ? read_slots(slots, run.n_batch, run.n_tokens, n_slots, &run.slots, error) : HALYARD_OK;
    if (status == HALYARD_OK && stores && run.plan->rerotates && run.slots.may_be_doubled) {
        return fail(error, HALYARD_ERROR_MISMATCH,
                    "slots.policy is HALYARD_SLOTS_RANGE_ONLY, but a key must not be "
                    "rotated twice, which HALYARD_SLOTS_CHECK makes sure of");
    }
    return status;
}

// ---- Overlaps ------------------------------------------------------------------------------------------------------

namespace {

/// Which elements an area holds: all of its span, or those of a lattice, which is worked out where spans overlap.
enum class Elements { all, of_x, of_y, of_cache, of_scales_out };

/// Memory that a run reads or writes.
struct Area {
    const char *name;
    int index;  // -1: there is one
    MemoryRange span;
    Elements elements;
};

/// What a run reads, then what it writes.
struct Areas {
    static constexpr int most = 6 * HALYARD_MAX_TENSORS + 7;
    Area list[most];
    int n = 0;

    void add(const char *name, int index, const MemoryRange &span, Elements elements = Elements::all) {
        if (span.begin != span.end) {
            list[n++] = {name, index, span, elements};
        }
    }
};

}  // namespace

halyard_status check_road_overlaps(const Run &run, const halyard_tensor *x, const halyard_tensor *y, const Spans &spans,
                                   halyard_error *error) noexcept {
    Areas areas;
    const int n_tensors = run.plan->n_tensors;
    for (int i = 0; i < n_tensors; i++) {
        if (run.tensors[i].n_heads == 0) {
            continue;
        }
        areas.add("x", i, spans.x[i], Elements::of_x);
        areas.add("stages.weight", i, run.stages[i].weight_memory);
        areas.add("stages.scales", i, run.stages[i].scales_memory);
    }
    areas.add("positions.data", -1, run.positions.memory);
    if (run.plan->rerotates) {
        areas.add("from_positions.data", -1, run.from_positions.memory);
    }
    if (run.angles != nullptr) {
        areas.add("the cos rows of the angle source", -1, run.angles->cos_memory);
        areas.add("the sin rows of the angle source", -1, run.angles->sin_memory);
        areas.add("the index of the angle source", -1, run.angles->index_memory);
    }
    if (run.slots.data != nullptr) {
        areas.add("slots.data", -1, run.slots.memory);
    }
    const int n_read = areas.n;
    for (int i = 0; i < n_tensors; i++) {
        if (run.tensors[i].n_heads != 0) {
            const bool has_cache = run.plan->tensors[i].desc.cache.has_value();
            areas.add(has_cache ? "stages.cache" : "y", i, spans.y[i], has_cache ? Elements::of_cache : Elements::of_y);
            areas.add("stages.scales_out", i, run.stages[i].scales_out_memory, Elements::of_scales_out);
        }
    }
    if (run.slots.data != nullptr) {
        areas.add("slots.scratch", -1, run.slots.scratch_memory);
    }
    const auto lattice_of_area = [&](const Area &area) {
        switch (area.elements) {
        case Elements::of_x: return lattice_of(x[area.index]);
        case Elements::of_y: return lattice_of(y[area.index]);
        case Elements::of_cache: return cache_of(run, area.index);
        case Elements::of_scales_out: return scales_out_of(run, area.index);
        case Elements::all: break;
        }
        return Lattice{};
    };
    const auto may_meet = [&](const Area &a, const Area &b) {
        return a.span.overlaps(b.span) && (a.elements == Elements::all || b.elements == Elements::all ||
                                           may_share_bytes(lattice_of_area(a), lattice_of_area(b)));
    };
    for (int i = n_read; i < areas.n; i++) {
        const Area &written = areas.list[i];
        for (int j = 0; j < i; j++) {
            const Area &other = areas.list[j];
            const bool is_its_input =
                written.elements == Elements::of_y && other.elements == Elements::of_x && written.index == other.index;
            if ((is_its_input && run.tensors[written.index].in_place) || !may_meet(written, other)) {
                continue;
            }
            const TensorDesc &desc = run.plan->tensors[written.index < 0 ? 0 : written.index].desc;
            const bool converts = is_its_input && desc.dtype != desc.out_dtype;
            char names[2][40];
            for (const int k : {0, 1}) {
                const Area &area = k == 0 ? written : other;
                if (area.index < 0) {
                    std::snprintf(names[k], sizeof(names[k]), "%s", area.name);
                } else if (std::strncmp(area.name, "stages.", 7) == 0) {
                    std::snprintf(names[k], sizeof(names[k]), "stages[%d]%s", area.index, area.name + 6);
                } else {
                    std::snprintf(names[k], sizeof(names[k]), "%s[%d]", area.name, area.index);
                }
            }
            return fail(error, HALYARD_ERROR_OVERLAP, names[0], " shares elements with ", names[1],
                        converts ? ", but only an output of its input's dtype can be in place" : "");
        }
    }
    return HALYARD_OK;
}

}  // namespace halyard

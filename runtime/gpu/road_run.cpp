#include "gpu/road_run.h"

#include "base/error.h"
#include "gpu/road_launch.h"
#include "gpu/token_block.h"
#include "gpu/view.h"

#include <algorithm>

namespace halyard::gpu {

namespace {

// why_not: what each part of a tensor asks for that no kernel does, in words; NULL if kernels do it all.

const char *why_not(const GroupsDesc &groups) {
    if (groups.element == Dtype::uint8 || groups.scale == GroupScale::f16) {
        return ".groups->preset is of ggml or OpenVINO, of which no kernel of a device stores records";
    }
    return groups.group % FlatMemory::quad_bytes != 0
               ? ".groups has groups that are no multiples of the 16 elements that a device stores at once"
               : nullptr;
}

const char *why_not(const NormDesc &norm) {
    if (norm.layer) {
        return ".norm->kind is HALYARD_NORM_LAYER (1), but on a device norms are HALYARD_NORM_RMS";
    }
    if (norm.per_head) {
        return ".norm->weight_per_head is 1, but on a device all heads have the same weights";
    }
    if (norm.row) {
        return ".norm->width is HALYARD_NORM_ROW (1), but on a device norms are of heads";
    }
    return norm.after ? ".norm->order is HALYARD_NORM_AFTER (1), but on a device norms come before the rotation"
                      : nullptr;
}

const char *why_not(const ScaleDesc &scale) {
    if (scale.dynamic) {
        return ".scale->kind is HALYARD_SCALE_DYNAMIC (1), but on a device scales are static";
    }
    return scale.by_head ? ".scale->per is not HALYARD_SCALE_PER_TENSOR (0), but on a device a tensor has one scale"
                         : nullptr;
}

/// Of heads with so many elements.
const char *why_not(const CacheDesc &cache, std::int64_t n_elements) {
    std::int64_t stride_element = 0;
    if (!cache.is_linear(n_elements, &stride_element) || stride_element != 1) {
        return ".cache has heads that are not dense, which no kernel of a device stores";
    }
    if (cache.tile_tokens < cache.block_size && cache.stride_tile_tokens != cache.tile_tokens * cache.stride_token) {
        return ".cache has tiles of tokens, which no kernel of a device stores";
    }
    return cache.n_slots > INT32_MAX ? ".cache->n_slots is more than the 2^31 - 1 that a kernel of a device counts"
                                     : nullptr;
}

const char *why_not(const TensorDesc &desc) {
    const auto divides = [&](Dtype dtype) {
        return desc.head_dim * element_bytes(dtype) % std::int64_t{wide_bytes} == 0;
    };
    if (desc.from_groups) {
        return ".from_groups is set, but no kernel of a device reads records";
    }
    if (desc.hadamard != 0) {
        return ".hadamard is set, but no kernel of a device transforms";
    }
    for (const char *const reason :
         {desc.groups ? why_not(*desc.groups) : nullptr, desc.norm ? why_not(*desc.norm) : nullptr,
          desc.scale ? why_not(*desc.scale) : nullptr, desc.cache ? why_not(*desc.cache, desc.out_dim()) : nullptr}) {
        if (reason != nullptr) {
            return reason;
        }
    }
    if (desc.position_scales) {
        return ".position_scales is 1, but on a device nothing is scaled by position";
    }
    if (!divides(desc.dtype) || !divides(desc.groups ? desc.dtype : desc.out_dtype)) {
        return ".head_dim is no multiple of 16 bytes, in dtype or out_dtype, by which a device loads and stores heads";
    }
    return desc.head_dim > most_road_elements
               ? ".head_dim is more than the 640 elements that a device norms, converts or stores by slot"
               : nullptr;
}

RoadTensor tensor_of(const GpuRun &arguments, int index) {
    const RunTensor &tensor = arguments.run.tensors[index];
    RoadTensor road = {};
    road.desc = &arguments.run.plan->tensors[index];
    road.x = address_of(tensor.x);
    road.y = address_of(tensor.y);
    road.in = strides_in_block(arguments.run, tensor.in);
    road.out = strides_in_block(arguments.run, tensor.out);
    road.out.element = road.desc->cache ? 1 : tensor.out.element;
    road.n_heads = tensor.n_heads;
    road.x_begin = arguments.spans.x[index].begin;
    road.y_begin = arguments.spans.y[index].begin;
    if (road.desc->groups && road.desc->groups->scales_apart) {
        const RunStages &stages = arguments.run.stages[index];
        const GroupStrides &scales = stages.group_scales;
        const bool has_blocks = road.desc->cache && road.desc->cache->n_slots > road.desc->cache->block_size;
        const std::int64_t head = road.n_heads > 1 ? scales.stride_head : 0;
        const RunTensor::Strides of_view = {scales.stride_batch, scales.stride_token, head, 0};
        road.scales = address_of(stages.data(group_scales_array));
        road.scales_begin = stages.memory(group_scales_array).begin;
        road.scale_strides = road.desc->cache ? of_view : strides_in_block(arguments.run, of_view);
        road.scale_strides.batch = has_blocks ? scales.stride_batch : 0;
    }
    if (road.desc->norm && road.desc->norm->weight) {
        road.weight = address_of(arguments.run.stages[index].data(weight_array));
    }
    const char *const scale = arguments.run.stages[index].data(scales_array);
    road.reciprocal = road.desc->scale ? 1.0f / read_word<float>(scale) : 1.0f;  // checked before
    return road;
}

LaunchPositions slots_of(const GpuRun &arguments, const Block &block, std::int64_t batch) {
    const CheckedSlots &slots = arguments.run.slots;
    return slots.data == nullptr ? LaunchPositions{} : numbers_of(arguments.run, slots, block, batch);
}

/// Tokens that one launch can take, of all tensors.
Block block_of(const GpuRun &arguments) {
    const Run &run = arguments.run;
    const CheckedSlots &slots = run.slots;
    const bool has_dense_slots = slots.data == nullptr || slots.stride_batch == run.n_tokens * slots.stride_token;
    const Block one_by_one = {run.n_batch, run.n_tokens, false};
    Block block = one_by_one;
    for (int i = 0; i < run.plan->n_tensors; i++) {
        RunTensor tensor = run.tensors[i];
        if (tensor.n_heads == 0) {
            continue;
        }
        const TensorDesc &desc = run.plan->tensors[i];
        if (desc.cache) {
            tensor.out.token = 1;
            tensor.out.batch = run.n_tokens;
        }
        const GroupStrides &scales = run.stages[i].group_scales;
        const bool has_dense_scales = desc.cache || !desc.groups || !desc.groups->scales_apart || run.n_tokens == 1 ||
                                      scales.stride_batch == run.n_tokens * scales.stride_token;
        block = split(run, tensor);
        if (!block.is_joined || !has_dense_scales || (run.n_tokens > 1 && !has_dense_slots)) {
            return one_by_one;
        }
    }
    return block;
}

/// Enqueues a check that sets the error word if a slot is out of range.
int enqueue_slots_check(const GpuRun &arguments, const Block &block, Call &call) {
    const Covered covered = {-1, static_cast<std::int32_t>(arguments.run.slots.n_slots - 1), 1};
    return in_steps(block.n_batch, 1, [&](std::int64_t batch, std::int64_t) {
        return check_on_device(slots_of(arguments, block, batch), {}, block.n_tokens, covered, HALYARD_ERROR_SLOT,
                               address_of(arguments.given.error_word), call);
    });
}

/// The tensors of one launch for each batch row.
int enqueue_together(const GpuRun &arguments, const Block &block, const int *indices, int n, Call &call) {
    const Run &run = arguments.run;
    return in_steps(block.n_batch, 1, [&](std::int64_t batch, std::int64_t) {
        RoadPiece piece = {};
        piece.n_tensors = n;
        for (int i = 0; i < n; i++) {
            const RunTensor &tensor = run.tensors[indices[i]];
            RoadTensor &road = piece.tensors[i] = tensor_of(arguments, indices[i]);
            road.x = moved(road.x, batch * tensor.in.batch * element_bytes(road.desc->dtype));
            if (!road.desc->cache) {
                road.y = moved(road.y, batch * tensor.out.batch * element_bytes(road.desc->out_dtype));
                road.scales = moved(road.scales, batch * run.stages[indices[i]].group_scales.stride_batch);
            }
        }
        piece.rotary_dim = run.plan->rotary_dim;
        piece.n_tokens = block.n_tokens;
        piece.positions = positions_of(arguments, block, batch);
        piece.slots = slots_of(arguments, block, batch);
        piece.n_slots = run.slots.data == nullptr ? 0 : run.slots.n_slots;
        piece.stores_bad = !run.plan->rotates || run.bad_position != BadPosition::error;
        return take_road_on_device(arguments.launch, piece, call);
    });
}

}  // namespace

halyard_status check_road_plan(const PlanDesc &plan, halyard_error *error) noexcept {
    if (plan.rerotates) {
        return fail(error, HALYARD_ERROR_UNSUPPORTED,
                    "rerotates is 1, but on a device this version moves no keys from position to position");
    }
    for (int i = 0; i < plan.n_tensors && !plan.only_rotates; i++) {
        if (const char *const reason = why_not(plan.tensors[i])) {
            return fail(error, HALYARD_ERROR_UNSUPPORTED, "tensors[", i, "]", reason);
        }
    }
    return HALYARD_OK;
}

halyard_status check_road(const GpuRun &arguments, halyard_error *error) noexcept {
    const Block block = block_of(arguments);
    for (int i = 0; i < arguments.run.plan->n_tensors; i++) {
        const char *const reason = arguments.run.tensors[i].n_heads == 0 ? "" : why_not(tensor_of(arguments, i));
        if (reason[0] != '\0') {
            return fail(error, HALYARD_ERROR_UNSUPPORTED, "tensor ", i, " ", reason);
        }
    }
    HALYARD_TRY(check_positions_of(arguments, block, error));
    const LaunchPositions slots = slots_of(arguments, block, 0);
    const char *const reason = slots.place != 0 ? why_not(slots, 1) : "";
    return reason[0] == '\0' ? HALYARD_OK : fail(error, HALYARD_ERROR_UNSUPPORTED, "slots ", reason);
}

int enqueue_road(const GpuRun &arguments, Call &call) noexcept {
    const Run &run = arguments.run;
    const Block block = block_of(arguments);
    int status = 0;
    if (arguments.given.error_word != nullptr && run.slots.data != nullptr) {
        status = enqueue_slots_check(arguments, block, call);
    }
    bool is_done[HALYARD_MAX_TENSORS] = {};
    for (int i = 0; i < run.plan->n_tensors && status == 0; i++) {
        int together[HALYARD_MAX_TENSORS], n = 0;
        for (int j = i; j < run.plan->n_tensors; j++) {
            const TensorDesc &desc = run.plan->tensors[j];
            const auto shares = [&](int other) {
                const TensorDesc &its = run.plan->tensors[other];
                return its.dtype == desc.dtype && its.head_dim == desc.head_dim;
            };
            if (run.tensors[j].n_heads != 0 && !is_done[j] && std::all_of(together, together + n, shares)) {
                together[n++] = j;
                is_done[j] = true;
            }
        }
        if (n != 0) {
            status = enqueue_together(arguments, block, together, n, call);
        }
    }
    return status;
}

}  // namespace halyard::gpu

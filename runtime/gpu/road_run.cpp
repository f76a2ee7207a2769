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

const char *why_not(const TensorPlan &desc, const KvTensor &stages) {
    if (stages.from_groups) {
        return ".from_groups is set, but no kernel of a device reads records";
    }
    if (stages.hadamard != 0) {
        return ".hadamard is set, but no kernel of a device transforms";
    }
    for (const char *const reason :
         {stages.groups ? why_not(*stages.groups) : nullptr, stages.norm ? why_not(*stages.norm) : nullptr,
          stages.scale ? why_not(*stages.scale) : nullptr,
          stages.cache ? why_not(*stages.cache, desc.out_dim) : nullptr}) {
        if (reason != nullptr) {
            return reason;
        }
    }
    if (stages.position_scales) {
        return ".position_scales is 1, but on a device nothing is scaled by position";
    }
    const std::int64_t out_bytes = stages.groups ? desc.bytes : desc.out_bytes;
    if (desc.head_dim * std::min(desc.bytes, out_bytes) % std::int64_t{wide_bytes} != 0) {  // one divides the other
        return ".head_dim is no multiple of 16 bytes, in dtype or out_dtype, by which a device loads and stores heads";
    }
    return desc.head_dim > most_road_elements
               ? ".head_dim is more than the 640 elements that a device norms, converts or stores by slot"
               : nullptr;
}

/// Where memory begins that reaches from `data` on.
Address begin_of(const void *data, const Reach &reach) { return address_of(data) - reach.below; }

RoadTensor tensor_of(const GpuRun &run, int index, std::int64_t batch) {
    const ProgramTensor &tensor = run.program.tensors[index];
    RoadTensor road = {};
    road.desc = &run.program.plan->tensors[index];
    road.stages = &run.program.plan->kv->tensors[index];
    const void *const x = run.pointers->x[index];
    road.x = moved(address_of(x), batch * tensor.x.batch * road.desc->bytes);
    road.x_begin = begin_of(x, tensor.x.reach);
    road.in = strides_of(tensor.x);
    if (road.stages->cache) {
        road.y = address_of(run.data(index, Array::cache));
        road.y_begin = begin_of(run.data(index, Array::cache), run.bound(index, Array::cache).reach);
    } else {
        const void *const y = run.pointers->y[index];
        road.y = moved(address_of(y), batch * tensor.y.batch * road.desc->out_bytes);
        road.y_begin = begin_of(y, tensor.y.reach);
        road.out = strides_of(tensor.y);
    }
    road.n_heads = tensor.n_heads;
    if (const char *const scales = run.data(index, Array::group_scales)) {
        const BoundArray &bound = run.bound(index, Array::group_scales);
        const auto walked = [&](int dim) { return bound.elements.shape[dim] > 1 ? bound.elements.strides[dim] : 0; };
        road.scales = moved(address_of(scales), road.stages->cache ? 0 : batch * walked(0));
        road.scales_begin = begin_of(scales, bound.reach);
        road.scale_block = road.stages->cache ? walked(0) : 0;
        road.scale_token = walked(1);
        road.scale_head = walked(2);
    }
    road.weight = address_of(run.data(index, Array::weight));
    road.reciprocal = road.stages->scale ? 1.0f / read_word<float>(run.data(index, Array::scales)) : 1.0f;
    return road;
}

LaunchPositions slots_of(const GpuRun &run, std::int64_t batch) {
    const Slots &slots = run.kv.slots;
    return slots.is_given ? numbers_of(slots, address_of(run.arrays.slots), batch) : LaunchPositions{};
}

/// Tokens that one launch can take, of all tensors.
Block block_of(const GpuRun &run) {
    const Positions &positions = run.program.positions;
    const Slots &slots = run.kv.slots;
    bool can_join = !slots.is_given || rows_follow(positions, slots.stride_batch, slots.stride_token);
    for (int i = 0; i < run.program.plan->n_tensors; i++) {
        const ProgramTensor &tensor = run.program.tensors[i];
        if (tensor.n_heads == 0) {
            continue;
        }
        can_join = can_join && rows_follow(positions, tensor.x.batch, tensor.x.token);
        if (run.program.plan->kv->tensors[i].cache) {
            continue;  // slots say where tokens go
        }
        can_join = can_join && rows_follow(positions, tensor.y.batch, tensor.y.token);
        if (run.data(i, Array::group_scales) != nullptr) {
            const std::int64_t *const strides = run.bound(i, Array::group_scales).elements.strides;
            can_join = can_join && rows_follow(positions, strides[0], strides[1]);
        }
    }
    return split(positions, can_join);
}

/// Enqueues a check that sets the error word if a slot is out of range.
int enqueue_slots_check(const GpuRun &run, const Block &block, Call &call) {
    const Covered covered = {-1, static_cast<std::int32_t>(run.kv.slots.n_slots - 1), 1};
    return in_steps(block.n_batch, 1, [&](std::int64_t batch, std::int64_t) {
        return check_on_device(slots_of(run, batch), {}, block.n_tokens, covered, HALYARD_ERROR_SLOT,
                               address_of(run.given.error_word), call);
    });
}

/// The tensors of one launch for each batch row.
int enqueue_together(const GpuRun &run, const Block &block, const int *indices, int n, Call &call) {
    return in_steps(block.n_batch, 1, [&](std::int64_t batch, std::int64_t) {
        RoadPiece piece = {};
        piece.n_tensors = n;
        for (int i = 0; i < n; i++) {
            piece.tensors[i] = tensor_of(run, indices[i], batch);
        }
        piece.rotary_dim = run.program.plan->rotary_dim;
        piece.n_tokens = block.n_tokens;
        piece.positions = positions_of(run, batch);
        piece.slots = slots_of(run, batch);
        piece.n_slots = run.kv.slots.is_given ? run.kv.slots.n_slots : 0;
        piece.stores_bad = run.program.angles == nullptr || run.program.bad_position != BadPosition::error;
        return take_road_on_device(run.launch, piece, call);
    });
}

}  // namespace

halyard_status check_road_plan(const halyard_plan &plan, halyard_error *error) noexcept {
    if (kv_of(plan).rerotates) {
        return fail(error, HALYARD_ERROR_UNSUPPORTED,
                    "rerotates is 1, but on a device this version moves no keys from position to position");
    }
    for (int i = 0; i < plan.n_tensors && plan.kv != nullptr; i++) {
        if (const char *const reason = why_not(plan.tensors[i], plan.kv->tensors[i])) {
            return fail(error, HALYARD_ERROR_UNSUPPORTED, "tensors[", i, "]", reason);
        }
    }
    return HALYARD_OK;
}

halyard_status check_road(const GpuRun &run, halyard_error *error) noexcept {
    for (int i = 0; i < run.program.plan->n_tensors; i++) {
        const char *const reason = run.program.tensors[i].n_heads == 0 ? "" : why_not(tensor_of(run, i, 0));
        if (reason[0] != '\0') {
            return fail(error, HALYARD_ERROR_UNSUPPORTED, "tensor ", i, " ", reason);
        }
    }
    HALYARD_TRY(check_positions_of(run, error));
    const char *const reason = run.kv.slots.is_given ? why_not(slots_of(run, 0), 1) : "";
    return reason[0] == '\0' ? HALYARD_OK : fail(error, HALYARD_ERROR_UNSUPPORTED, "slots ", reason);
}

int enqueue_road(const GpuRun &run, Call &call) noexcept {
    const halyard_plan &plan = *run.program.plan;
    const Block block = block_of(run);
    int status = 0;
    if (run.given.error_word != nullptr && run.kv.slots.is_given) {
        status = enqueue_slots_check(run, block, call);
    }
    bool is_done[HALYARD_MAX_TENSORS] = {};
    for (int i = 0; i < plan.n_tensors && status == 0; i++) {
        int together[HALYARD_MAX_TENSORS], n = 0;
        for (int j = i; j < plan.n_tensors; j++) {
            const TensorPlan &desc = plan.tensors[j];
            const auto shares = [&](int other) {
                const TensorPlan &its = plan.tensors[other];
                return its.dtype == desc.dtype && its.head_dim == desc.head_dim;
            };
            if (run.program.tensors[j].n_heads != 0 && !is_done[j] && std::all_of(together, together + n, shares)) {
                together[n++] = j;
                is_done[j] = true;
            }
        }
        if (n != 0) {
            status = enqueue_together(run, block, together, n, call);
        }
    }
    return status;
}

}  // namespace halyard::gpu

#include "gpu/kv_run.h"

#include "base/error.h"
#include "gpu/kv_launch.h"
#include "gpu/token_block.h"
#include "gpu/view.h"

#include <algorithm>

namespace halyard::gpu {

namespace {

/// Where memory begins that reaches from `data` on.
Address begin_of(const void *data, const Reach &reach) { return address_of(data) - reach.below; }

KvPiece piece_of(const GpuRun &run, int index, std::int64_t batch) {
    const ProgramTensor &tensor = run.program.tensors[index];
    KvPiece piece = {};
    piece.desc = &run.program.plan->tensors[index];
    piece.stages = &run.program.plan->kv->tensors[index];
    const void *const x = run.pointers->x[index];
    piece.x = moved(address_of(x), batch * tensor.x.batch * piece.desc->bytes);
    piece.x_begin = begin_of(x, tensor.x.reach);
    piece.in = strides_of(tensor.x);
    if (piece.stages->cache) {
        piece.y = address_of(run.data(index, Array::cache));
        piece.y_begin = begin_of(run.data(index, Array::cache), run.bound(index, Array::cache).reach);
    } else {
        const void *const y = run.pointers->y[index];
        piece.y = moved(address_of(y), batch * tensor.y.batch * piece.desc->out_bytes);
        piece.y_begin = begin_of(y, tensor.y.reach);
        piece.out = strides_of(tensor.y);
    }
    piece.n_heads = tensor.n_heads;
    piece.weight = address_of(run.data(index, Array::weight));
    piece.reciprocal = piece.stages->scale ? 1.0f / read_word<float>(run.data(index, Array::scales)) : 1.0f;
    return piece;
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
        if (!run.program.plan->kv->tensors[i].cache) {  // else slots say where tokens go
            can_join = can_join && rows_follow(positions, tensor.y.batch, tensor.y.token);
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

/// The tensors of a launch that have heads, for each batch row.
int enqueue_launch(const GpuRun &run, const Block &block, const KvLaunch &launch, Call &call) {
    return in_steps(block.n_batch, 1, [&](std::int64_t batch, std::int64_t) {
        KvPieces pieces = {};
        pieces.kernel = launch.kernel;
        for (int i = 0; i < launch.n_tensors; i++) {
            if (run.program.tensors[launch.tensors[i]].n_heads != 0) {
                pieces.tensors[pieces.n_tensors++] = piece_of(run, launch.tensors[i], batch);
            }
        }
        if (pieces.n_tensors == 0) {
            return 0;
        }
        pieces.n_tokens = block.n_tokens;
        pieces.positions = positions_of(run, batch);
        pieces.slots = slots_of(run, batch);
        pieces.n_slots = run.kv.slots.is_given ? run.kv.slots.n_slots : 0;
        pieces.stores_bad = run.program.angles == nullptr || run.program.bad_position != BadPosition::error;
        return launch_kv(run.launch, pieces, call);
    });
}

}  // namespace

halyard_status check_kv_run(const GpuRun &run, halyard_error *error) noexcept {
    for (int i = 0; i < run.program.plan->n_tensors; i++) {
        const char *const reason = run.program.tensors[i].n_heads == 0 ? "" : why_not(piece_of(run, i, 0));
        if (reason[0] != '\0') {
            return fail(error, HALYARD_ERROR_UNSUPPORTED, "tensor ", i, " ", reason);
        }
    }
    HALYARD_TRY(check_positions_of(run, error));
    const char *const reason = run.kv.slots.is_given ? why_not(slots_of(run, 0), 1) : "";
    return reason[0] == '\0' ? HALYARD_OK : fail(error, HALYARD_ERROR_UNSUPPORTED, "slots ", reason);
}

int enqueue_kv(const halyard_gpu_plan &plan, const GpuRun &run, Call &call) noexcept {
    const Block block = block_of(run);
    int status = 0;
    if (run.given.error_word != nullptr && run.kv.slots.is_given) {
        status = enqueue_slots_check(run, block, call);
    }
    for (int i = 0; i < plan.n_launches && status == 0; i++) {
        status = enqueue_launch(run, block, plan.launches[i], call);
    }
    return status;
}

}  // namespace halyard::gpu

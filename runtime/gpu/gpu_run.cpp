// halyard_run_gpu: what a run launches.
#include "base/error.h"
#include "gpu/kv_run.h"
#include "gpu/token_block.h"

#include <algorithm>
#include <cstdint>

namespace halyard::gpu {

namespace {

/// How many tensors from `index` on are adjacent heads of one buffer, as q and k of a packed QKV are. At least 1.
int count_adjacent(const GpuRun &run, int index) {
    const halyard_plan &plan = *run.program.plan;
    int n = 1;
    for (; index + n < plan.n_tensors; n++) {
        const int at = index + n;
        const ProgramTensor &last = run.program.tensors[at - 1], &next = run.program.tensors[at];
        const TensorPlan &a = plan.tensors[at - 1], &b = plan.tensors[at];
        const auto same = [&](const Side &s, const Side &t) {
            const bool heads_alike = last.n_heads == 1 || next.n_heads == 1 || s.head == t.head;
            return s.batch == t.batch && s.token == t.token && s.element == t.element && heads_alike;
        };
        const bool alike = a.dtype == b.dtype && a.pairing == b.pairing && a.out_pairing == b.out_pairing &&
                           a.rotary_offset == b.rotary_offset && a.head_dim == b.head_dim && last.n_heads != 0 &&
                           next.n_heads != 0 && last.in_place == next.in_place && same(last.x, next.x) &&
                           same(last.y, next.y);
        if (!alike) {
            break;
        }
        // Where a tensor has a single head, the distance to its neighbour is the stride.
        const auto follows = [&](const void *const *data, const Side &s, const Side &t) {
            const std::int64_t step = last.n_heads > 1 ? s.head : next.n_heads > 1 ? t.head : a.head_dim;
            return step > 0 && address_of(data[at]) == moved(address_of(data[at - 1]), last.n_heads * step * a.bytes);
        };
        if (!follows(run.pointers->x, last.x, next.x) || !follows(run.pointers->y, last.y, next.y)) {
            break;
        }
    }
    return n;
}

/// Fills in a piece for tensors index … index + n - 1; its places and positions are still to be set.
DevicePiece piece_of(const GpuRun &run, int index, int n, std::int64_t n_tokens) {
    const ProgramTensor &tensor = run.program.tensors[index];
    const TensorPlan &desc = run.program.plan->tensors[index];
    DevicePiece piece = {};
    piece.dtype = desc.dtype;
    piece.pairing = desc.pairing;
    piece.out_pairing = desc.out_pairing;
    piece.in_place = tensor.in_place;
    piece.in = strides_of(tensor.x);
    piece.out = strides_of(tensor.y);
    piece.rotary_dim = run.program.plan->rotary_dim;
    piece.n_tokens = n_tokens;
    for (int i = index; i < index + n; i++) {
        piece.n_heads += run.program.tensors[i].n_heads;
    }
    if (n > 1 && tensor.n_heads == 1) {
        const ProgramTensor &next = run.program.tensors[index + 1];
        piece.in.head = next.n_heads > 1 ? next.x.head : desc.head_dim;
        piece.out.head = next.n_heads > 1 ? next.y.head : desc.head_dim;
    }
    return piece;
}

/// One launch for each batch row that needs its own, and the columns beside the window.
int enqueue(const GpuRun &run, int index, int n, Call &call) {
    const ProgramTensor &tensor = run.program.tensors[index];
    const TensorPlan &desc = run.program.plan->tensors[index];
    const Block block = split(run.program.positions, tensor.is_even);
    DevicePiece piece = piece_of(run, index, n, block.n_tokens);
    return in_steps(block.n_batch, 1, [&](std::int64_t batch, std::int64_t) {
        const Address x = moved(address_of(run.pointers->x[index]), batch * tensor.x.batch * desc.bytes);
        const Address y = moved(address_of(run.pointers->y[index]), batch * tensor.y.batch * desc.bytes);
        piece.positions = positions_of(run, batch);
        piece.x = moved(x, tensor.x.window);
        piece.y = moved(y, tensor.y.window);
        int status = rotate_on_device(run.launch, piece, call);
        if (status == 0 && !tensor.in_place) {
            const std::int64_t after = desc.rotary_offset + piece.rotary_dim;
            piece.x = x;
            piece.y = y;
            status = copy_on_device(piece, desc.rotary_offset, call);
            piece.x = moved(x, after * piece.in.element * desc.bytes);
            piece.y = moved(y, after * piece.out.element * desc.bytes);
            status = status != 0 ? status : copy_on_device(piece, desc.head_dim - after, call);
        }
        return status;
    });
}

int enqueue_check(const GpuRun &run, Call &call) {
    // Positions do not depend on tensors. Those of tokens that are stored nowhere are not looked at.
    const Slots &slots = run.kv.slots;
    const bool by_slot = stores_in_caches_only(run.program, run.kv);
    const Block block = split(run.program.positions,
                              !by_slot || rows_follow(slots, slots.stride_batch, slots.stride_token));
    const std::int64_t n = by_slot ? block.n_batch : std::min(block.n_batch, run.program.positions.n_distinct());
    return in_steps(n, 1, [&](std::int64_t batch, std::int64_t) {
        const LaunchPositions its_slots =
            by_slot ? numbers_of(slots, address_of(run.arrays.slots), batch) : LaunchPositions{};
        return check_on_device(positions_of(run, batch), its_slots, block.n_tokens,
                               positions_of_source(*run.launch.angles), HALYARD_ERROR_POSITION,
                               address_of(run.given.error_word), call);
    });
}

/// Refuses what no kernel can rotate.
halyard_status check_rotations(const GpuRun &run, halyard_error *error) {
    for (int i = 0; i < run.program.plan->n_tensors; i++) {
        if (run.program.tensors[i].n_heads == 0) {
            continue;
        }
        DevicePiece piece = piece_of(run, i, 1, 0);
        piece.x = address_of(run.pointers->x[i]);
        piece.y = address_of(run.pointers->y[i]);
        const char *const reason = why_not(piece);
        if (reason[0] != '\0') {
            return fail(error, HALYARD_ERROR_UNSUPPORTED, "tensor ", i, " ", reason);
        }
        HALYARD_TRY(check_positions_of(run, error));
    }
    return HALYARD_OK;
}

}  // namespace

}  // namespace halyard::gpu

using namespace halyard;
using namespace halyard::gpu;

extern "C" halyard_status halyard_run_gpu(const halyard_gpu_plan *plan, const halyard_gpu_run_args *args,
                                          halyard_error *error) {
    HALYARD_TRY(check_error(error));
    HALYARD_TRY(check_given(plan, "plan", error));
    GpuRun run;
    HALYARD_TRY(read_gpu_run(*plan, args, &run, error));
    const Program &program = run.program;
    if (program.is_empty) {
        return HALYARD_OK;
    }
    const bool only_rotates = plan->checks.kv == nullptr;
    HALYARD_TRY(only_rotates ? check_rotations(run, error) : check_kv_run(run, error));
    Call call = {plan->queue.context, run.given.stream, ""};
    int status = 0;
    if (run.given.error_word != nullptr && program.angles != nullptr && program.bad_position == BadPosition::error) {
        status = enqueue_check(run, call);
    }
    if (status == 0 && !only_rotates) {
        status = enqueue_kv(*plan, run, call);
    }
    for (int i = 0; i < plan->checks.n_tensors && status == 0 && only_rotates;) {
        const int n = count_adjacent(run, i);
        if (program.tensors[i].n_heads != 0) {
            status = enqueue(run, i, n, call);
        }
        i += n;
    }
    return status == 0
               ? HALYARD_OK
               : fail(error, HALYARD_ERROR_DEVICE,
                      "the device refused: ", call.message[0] != '\0' ? call.message : "the driver does not say why",
                      " (", status, ")");
}

// halyard_run_gpu: what a run launches.
#include "base/error.h"
#include "gpu/road_run.h"
#include "gpu/token_block.h"

#include <cstdint>

namespace halyard::gpu {

namespace {

/// How many tensors from `index` on are adjacent heads of one buffer, as q and k of a packed QKV are. At least 1.
int count_adjacent(const GpuRun &arguments, int index) {
    const PlanDesc &plan = *arguments.run.plan;  // NOLINT(*NullDereference): read_run has set it
    int n = 1;
    for (; index + n < plan.n_tensors; n++) {
        const RunTensor &last = arguments.run.tensors[index + n - 1], &next = arguments.run.tensors[index + n];
        const TensorDesc &a = plan.tensors[index + n - 1], &b = plan.tensors[index + n];
        const auto same = [](const RunTensor::Strides &s, const RunTensor::Strides &t, std::int64_t heads_s,
                             std::int64_t heads_t) {
            const bool heads_alike = heads_s == 1 || heads_t == 1 || s.head == t.head;
            return s.batch == t.batch && s.token == t.token && s.element == t.element && heads_alike;
        };
        const bool alike = a.dtype == b.dtype && a.pairing == b.pairing && a.out_pairing == b.out_pairing &&
                           a.rotary_offset == b.rotary_offset && a.head_dim == b.head_dim &&
                           last.in_place == next.in_place && last.n_heads != 0 && next.n_heads != 0 &&
                           same(last.in, next.in, last.n_heads, next.n_heads) &&
                           same(last.out, next.out, last.n_heads, next.n_heads);
        if (!alike) {
            break;
        }
        // Where a tensor has a single head, the distance to its neighbour is the stride.
        const std::int64_t bytes = element_bytes(a.dtype);
        const auto follows = [&](const char *data, const char *next_data, std::int64_t stride,
                                 std::int64_t next_stride) {
            const std::int64_t step = last.n_heads > 1 ? stride : next.n_heads > 1 ? next_stride : a.head_dim;
            return step > 0 && next_data == data + last.n_heads * step * bytes;
        };
        if (!follows(last.x, next.x, last.in.head, next.in.head) ||
            !follows(last.y, next.y, last.out.head, next.out.head)) {
            break;
        }
    }
    return n;
}

/// Fills in a piece for tensors index … index + n - 1; its places are still to be set.
DevicePiece piece_of(const GpuRun &arguments, int index, int n, const Block &block) {
    const RunTensor &tensor = arguments.run.tensors[index];
    const TensorDesc &desc = arguments.run.plan->tensors[index];
    DevicePiece piece = {};
    piece.dtype = desc.dtype;
    piece.pairing = desc.pairing;
    piece.out_pairing = desc.out_pairing;
    piece.in_place = tensor.in_place;
    piece.in = strides_in_block(arguments.run, tensor.in);
    piece.out = strides_in_block(arguments.run, tensor.out);
    piece.rotary_dim = arguments.run.plan->rotary_dim;
    piece.n_tokens = block.n_tokens;
    for (int i = index; i < index + n; i++) {
        piece.n_heads += arguments.run.tensors[i].n_heads;
    }
    if (n > 1 && tensor.n_heads == 1) {
        const RunTensor &next = arguments.run.tensors[index + 1];
        piece.in.head = next.n_heads > 1 ? next.in.head : desc.head_dim;
        piece.out.head = next.n_heads > 1 ? next.out.head : desc.head_dim;
    }
    return piece;
}

/// One launch for each batch row that needs its own, and the columns beside the window.
int enqueue(const GpuRun &arguments, int index, int n, Call &call) {
    const RunTensor &tensor = arguments.run.tensors[index];
    const TensorDesc &desc = arguments.run.plan->tensors[index];
    const Block block = split(arguments.run, tensor);
    const std::int64_t bytes = element_bytes(desc.dtype), window = desc.rotary_offset;
    DevicePiece piece = piece_of(arguments, index, n, block);
    return in_steps(block.n_batch, 1, [&](std::int64_t batch, std::int64_t) {
        const Address x = moved(address_of(tensor.x), batch * tensor.in.batch * bytes);
        const Address y = moved(address_of(tensor.y), batch * tensor.out.batch * bytes);
        piece.positions = positions_of(arguments, block, batch);
        piece.x = moved(x, window * piece.in.element * bytes);
        piece.y = moved(y, window * piece.out.element * bytes);
        int status = rotate_on_device(arguments.launch, piece, call);
        if (status == 0 && !tensor.in_place) {
            const std::int64_t after = window + piece.rotary_dim;
            piece.x = x;
            piece.y = y;
            status = copy_on_device(piece, window, call);
            piece.x = moved(x, after * piece.in.element * bytes);
            piece.y = moved(y, after * piece.out.element * bytes);
            status = status != 0 ? status : copy_on_device(piece, desc.head_dim - after, call);
        }
        return status;
    });
}

int enqueue_check(const GpuRun &arguments, Call &call) {
    // Positions do not depend on tensors, so a tensor that is as dense as can be decides which rows are joined.
    RunTensor dense = {};
    dense.in.token = dense.out.token = 1;
    dense.in.batch = dense.out.batch = arguments.run.n_tokens;
    const Run &run = arguments.run;
    const TokenNumbers *const slots = run.tokens().slots;
    const bool are_dense =
        slots == nullptr || run.n_tokens == 1 || slots->stride_batch == run.n_tokens * slots->stride_token;
    const Block block = are_dense ? split(run, dense) : Block{run.n_batch, run.n_tokens, false};
    const bool is_shared = slots == nullptr && run.positions.stride_batch == 0 && !block.is_joined;
    return in_steps(is_shared ? 1 : block.n_batch, 1, [&](std::int64_t batch, std::int64_t) {
        const auto its_slots = slots == nullptr ? LaunchPositions{} : numbers_of(run, *slots, block, batch);
        return check_on_device(positions_of(arguments, block, batch), its_slots, block.n_tokens,
                               positions_of_source(*arguments.launch.angles), HALYARD_ERROR_POSITION,
                               address_of(arguments.given.error_word), call);
    });
}

/// Refuses what no kernel can rotate.
halyard_status check_rotations(const GpuRun &arguments, halyard_error *error) {
    for (int i = 0; i < arguments.run.plan->n_tensors; i++) {
        if (arguments.run.tensors[i].n_heads == 0) {
            continue;
        }
        const Block block = split(arguments.run, arguments.run.tensors[i]);
        DevicePiece piece = piece_of(arguments, i, 1, block);
        piece.x = address_of(arguments.run.tensors[i].x);
        piece.y = address_of(arguments.run.tensors[i].y);
        const char *const reason = why_not(piece);
        if (reason[0] != '\0') {
            return fail(error, HALYARD_ERROR_UNSUPPORTED, "tensor ", i, " ", reason);
        }
        HALYARD_TRY(check_positions_of(arguments, block, error));
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
    GpuRun arguments = {};
    HALYARD_TRY(read_gpu_run(*plan, args, &arguments, error));
    if (arguments.run.is_empty) {
        return HALYARD_OK;
    }
    const bool only_rotates = plan->checks.only_rotates;
    HALYARD_TRY(only_rotates ? check_rotations(arguments, error) : check_road(arguments, error));
    Call call = {plan->queue.context, arguments.given.stream, ""};
    int status = 0;
    if (arguments.given.error_word != nullptr && plan->checks.rotates &&
        arguments.run.bad_position == BadPosition::error) {
        status = enqueue_check(arguments, call);
    }
    if (status == 0 && !only_rotates) {
        status = enqueue_road(arguments, call);
    }
    for (int i = 0; i < plan->checks.n_tensors && status == 0 && only_rotates;) {
        const int n = count_adjacent(arguments, i);
        if (arguments.run.tensors[i].n_heads != 0) {
            status = enqueue(arguments, i, n, call);
        }
        i += n;
    }
    return status == 0
               ? HALYARD_OK
               : fail(error, HALYARD_ERROR_DEVICE,
                      "the device refused: ", call.message[0] != '\0' ? call.message : "the driver does not say why",
                      " (", status, ")");
}

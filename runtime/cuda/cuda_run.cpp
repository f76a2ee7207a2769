// halyard_run_cuda: what a run launches.
#include "cuda/cuda_run.h"

#include "base/error.h"

#include <algorithm>
#include <cstdint>

namespace halyard::cuda {

namespace {

/// Launches, and the tokens that each takes. Batch rows are joined where they follow each other as tokens do.
struct Block {
    std::int64_t n_batch, n_tokens;
};

/// Whether what each token has follows from batch row to batch row as from token to token.
bool rows_follow(const TokenNumbers &tokens, std::int64_t stride_batch, std::int64_t stride_token) {
    return tokens.n_batch == 1 || stride_batch == tokens.n_tokens * stride_token;
}

bool slots_follow(const CudaRun &run) {
    return rows_follow(run.program.positions, run.kv.slots.stride_batch, run.kv.slots.stride_token);
}

/// can_join: whether tensors, and what else tokens have beside positions, follow so.
Block split(const Positions &positions, bool can_join) {
    can_join =
        can_join && !positions.is_consecutive && rows_follow(positions, positions.stride_batch, positions.stride_token);
    return can_join ? Block{1, positions.count()} : Block{positions.n_batch, positions.n_tokens};
}

// ---- Rotations -----------------------------------------------------------------------------------------------------

/// How many tensors from `index` on are adjacent heads of one buffer, as q and k of a packed QKV are. At least 1.
int count_adjacent(const CudaRun &run, int index) {
    const halyard_plan &plan = *run.program.plan;
    int n = 1;
    for (; index + n < plan.n_tensors; n++) {
        const int at = index + n;
        const ProgramTensor &last = run.program.tensors[at - 1], &next = run.program.tensors[at];
        const TensorPlan &a = plan.tensors[at - 1], &b = plan.tensors[at];
        // Where a tensor has a single head, the distance to its neighbour is the stride.
        const auto follows = [&](const void *const *data, const Side &s, const Side &t) {
            const std::int64_t step = last.n_heads > 1 ? s.head : next.n_heads > 1 ? t.head : a.head_dim;
            const bool heads_alike = last.n_heads == 1 || next.n_heads == 1 || s.head == t.head;
            return s.batch == t.batch && s.token == t.token && s.element == t.element && heads_alike && step > 0 &&
                   address_of(data[at]) == moved(address_of(data[at - 1]), last.n_heads * step * a.bytes);
        };
        const bool alike = a.dtype == b.dtype && a.pairing == b.pairing && a.out_pairing == b.out_pairing &&
                           a.rotary_offset == b.rotary_offset && a.head_dim == b.head_dim && last.n_heads != 0 &&
                           next.n_heads != 0 && last.in_place == next.in_place;
        if (!alike || !follows(run.pointers->x, last.x, next.x) || !follows(run.pointers->y, last.y, next.y)) {
            break;
        }
    }
    return n;
}

/// Fills in a piece for tensors index … index + n - 1; its places and positions are still to be set.
DevicePiece piece_of(const CudaRun &run, int index, int n, std::int64_t n_tokens) {
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
int enqueue_rotation(const CudaRun &run, int index, int n, Call &call) {
    const ProgramTensor &tensor = run.program.tensors[index];
    const TensorPlan &desc = run.program.plan->tensors[index];
    const Block block = split(run.program.positions, tensor.is_even);
    DevicePiece piece = piece_of(run, index, n, block.n_tokens);
    return in_steps(block.n_batch, 1, [&](std::int64_t batch, std::int64_t) {
        const Address x = moved(address_of(run.pointers->x[index]), batch * tensor.x.batch * desc.bytes);
        const Address y = moved(address_of(run.pointers->y[index]), batch * tensor.y.batch * desc.bytes);
        piece.positions = run.positions(batch);
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

int enqueue_rotations(const CudaRun &run, Call &call) {
    int status = 0;
    for (int i = 0; i < run.program.plan->n_tensors && status == 0;) {
        const int n = count_adjacent(run, i);
        status = run.program.tensors[i].n_heads == 0 ? 0 : enqueue_rotation(run, i, n, call);
        i += n;
    }
    return status;
}

// ---- The KV path ---------------------------------------------------------------------------------------------------

KvPiece kv_piece_of(const CudaRun &run, int index, std::int64_t batch) {
    const ProgramTensor &tensor = run.program.tensors[index];
    const TensorPlan &desc = run.program.plan->tensors[index];
    const KvTensor &stages = run.program.plan->kv->tensors[index];
    KvPiece piece = {};
    piece.desc = &desc;
    piece.stages = &stages;
    piece.x = moved(address_of(run.pointers->x[index]), batch * tensor.x.batch * desc.bytes);
    piece.in = strides_of(tensor.x);
    if (stages.cache) {
        piece.y = address_of(run.data(index, Array::cache));
    } else {
        piece.y = moved(address_of(run.pointers->y[index]), batch * tensor.y.batch * desc.out_bytes);
        piece.out = strides_of(tensor.y);
    }
    piece.n_heads = tensor.n_heads;
    piece.weight = address_of(run.data(index, Array::weight));
    piece.reciprocal = stages.scale ? 1.0f / read_word<float>(run.data(index, Array::scales)) : 1.0f;
    return piece;
}

/// Tokens that one launch can take, of all tensors.
Block kv_block_of(const CudaRun &run) {
    const Positions &positions = run.program.positions;
    bool can_join = !run.kv.slots.is_given || slots_follow(run);
    for (int i = 0; i < run.program.plan->n_tensors; i++) {
        const ProgramTensor &tensor = run.program.tensors[i];
        const bool has_cache = run.program.plan->kv->tensors[i].cache.has_value();  // then slots say where tokens go
        can_join = can_join && (tensor.n_heads == 0 ||
                                (rows_follow(positions, tensor.x.batch, tensor.x.token) &&
                                 (has_cache || rows_follow(positions, tensor.y.batch, tensor.y.token))));
    }
    return split(positions, can_join);
}

/// The tensors of a launch that have heads, for each batch row.
int enqueue_kv(const CudaRun &run, const Block &block, const KvLaunch &launch, Call &call) {
    return in_steps(block.n_batch, 1, [&](std::int64_t batch, std::int64_t) {
        KvPieces pieces = {};
        pieces.kernel = launch.kernel;
        for (int i = 0; i < launch.n_tensors; i++) {
            if (run.program.tensors[launch.tensors[i]].n_heads != 0) {
                pieces.tensors[pieces.n_tensors++] = kv_piece_of(run, launch.tensors[i], batch);
            }
        }
        pieces.n_tokens = block.n_tokens;
        pieces.positions = run.positions(batch);
        pieces.slots = run.slots(batch);
        pieces.n_slots = run.kv.slots.is_given ? run.kv.slots.n_slots : 0;
        pieces.stores_bad = run.program.angles == nullptr || run.program.bad_position != BadPosition::error;
        return pieces.n_tensors == 0 ? 0 : launch_kv(run.launch, pieces, call);
    });
}

// ---- Both ----------------------------------------------------------------------------------------------------------

/// Checks that set the error word: if a position has no angles, and if a slot is out of range.
int enqueue_checks(const CudaRun &run, Call &call) {
    const Positions &positions = run.program.positions;
    const Slots &slots = run.kv.slots;
    const Address word = address_of(run.given.error_word);
    int status = 0;
    if (word != 0 && run.program.angles != nullptr && run.program.bad_position == BadPosition::error) {
        // Positions do not depend on tensors. Those of tokens that are stored nowhere are not looked at.
        const bool by_slot = stores_in_caches_only(run.program, run.kv);
        const Block block = split(positions, !by_slot || slots_follow(run));
        const std::int64_t n = by_slot ? block.n_batch : std::min(block.n_batch, positions.n_distinct());
        status = in_steps(n, 1, [&](std::int64_t batch, std::int64_t) {
            return check_on_device(run.positions(batch), by_slot ? run.slots(batch) : LaunchPositions{},
                                   block.n_tokens, positions_of_source(*run.launch.angles), HALYARD_ERROR_POSITION,
                                   word, call);
        });
    }
    if (status == 0 && word != 0 && slots.is_given) {
        const Covered covered = {-1, static_cast<std::int32_t>(slots.n_slots - 1), 1};
        const Block block = kv_block_of(run);
        status = in_steps(block.n_batch, 1, [&](std::int64_t batch, std::int64_t) {
            return check_on_device(run.slots(batch), {}, block.n_tokens, covered, HALYARD_ERROR_SLOT, word, call);
        });
    }
    return status;
}

/// Refuses memory that no kernel of the plan can take as it lies.
halyard_status check_layouts(const CudaRun &run, halyard_error *error) {
    for (int i = 0; i < run.program.plan->n_tensors; i++) {
        const char *reason = "";
        if (run.program.tensors[i].n_heads != 0 && run.program.plan->kv != nullptr) {
            reason = why_not(kv_piece_of(run, i, 0));
        } else if (run.program.tensors[i].n_heads != 0) {
            DevicePiece piece = piece_of(run, i, 1, 0);
            piece.x = address_of(run.pointers->x[i]);
            piece.y = address_of(run.pointers->y[i]);
            reason = why_not(piece);
        }
        if (reason[0] != '\0') {
            return fail(error, HALYARD_ERROR_UNSUPPORTED, "tensor ", i, " ", reason);
        }
    }
    const char *const of_positions = why_not(run.positions(0), run.launch.angles->source.axes.n_axes);
    const char *const of_slots = run.kv.slots.is_given ? why_not(run.slots(0), 1) : "";
    if (of_positions[0] != '\0') {
        return fail(error, HALYARD_ERROR_UNSUPPORTED, "positions ", of_positions);
    }
    return of_slots[0] == '\0' ? HALYARD_OK : fail(error, HALYARD_ERROR_UNSUPPORTED, "slots ", of_slots);
}

}  // namespace

}  // namespace halyard::cuda

using namespace halyard;
using namespace halyard::cuda;

extern "C" halyard_status halyard_run_cuda(const halyard_cuda_plan *plan, const halyard_cuda_run_args *args,
                                          halyard_error *error) {
    HALYARD_TRY(check_error(error));
    HALYARD_TRY(check_given(plan, "plan", error));
    CudaRun run;
    HALYARD_TRY(read_cuda_run(*plan, args, &run, error));
    if (run.program.is_empty) {
        return HALYARD_OK;
    }
    HALYARD_TRY(check_layouts(run, error));
    Call call = {plan->queue.context, run.given.stream, ""};
    int status = enqueue_checks(run, call);
    if (status == 0 && plan->checks.kv == nullptr) {
        status = enqueue_rotations(run, call);
    }
    for (int i = 0; i < plan->n_launches && status == 0; i++) {
        status = enqueue_kv(run, kv_block_of(run), plan->launches[i], call);
    }
    return status == 0
               ? HALYARD_OK
               : fail(error, HALYARD_ERROR_DEVICE,
                      "the device refused: ", call.message[0] != '\0' ? call.message : "the driver does not say why",
                      " (", status, ")");
}

// halyard_run_cuda: checks a run's arguments as for the CPU, and that its memory is on the device; launches kernels.
#include "base/error.h"
#include "base/versioned.h"
#include "cuda/cuda_plan.h"
#include "cuda/driver.h"
#include "kv/memory.h"

#include <algorithm>
#include <cstdint>
#include <optional>

namespace halyard::cuda {

namespace {

/// The positions or slots of a batch row's tokens, as launches take them.
LaunchPositions numbers_of(const TokenNumbers &numbers, Address place, std::int64_t batch,
                           std::int64_t stride_axis = 0) {
    return {moved(place, batch * numbers.stride_batch * numbers.element_bytes()),
            numbers.is_int64 ? 2 : 1,
            0,
            numbers.is_consecutive ? 1 : 0,
            numbers.stride_token,
            stride_axis};
}

/// How many launches a run takes, and the tokens of each: one for each batch row, or one for all evenly spaced rows.
struct Launches {
    std::int64_t count, n_tokens;
};

/// A run's checked arguments. Addresses are of device memory.
struct CudaRun {
    halyard_cuda_run_args given;
    Launch launch;
    Program program;
    KvProgram kv_program;
    std::optional<RunPointers> pointers;
    KvPointers arrays;
    Launches kv_launches;  // of the KV path

    const char *data(int tensor, Array array) const { return arrays.of_tensor[tensor][static_cast<int>(array)]; }

    /// The positions, and the slots, of a batch row's tokens.
    LaunchPositions positions(std::int64_t batch) const {
        const Positions &all = program.positions;
        const Address place =
            all.is_given ? address_of(pointers->all.positions) : address_of_zero_position(*launch.angles);
        return numbers_of(all, place, batch, all.stride_axis);
    }
    LaunchPositions slots(std::int64_t batch) const {
        return kv_program.slots.is_given ? numbers_of(kv_program.slots, address_of(arrays.slots), batch)
                                         : LaunchPositions{};
    }
};

// ---- Arguments -----------------------------------------------------------------------------------------------------

/// Refuses forms of slots that only the CPU can read.
halyard_status check_policy(const halyard_slots &slots, halyard_error *error) {
    if (slots.policy == HALYARD_SLOTS_CHECK) {
        return fail(error, HALYARD_ERROR_UNSUPPORTED,
                    "args.kv.slots.policy is HALYARD_SLOTS_CHECK (0), but a device "
                    "does not look for doubled slots: it must be HALYARD_SLOTS_RANGE_ONLY (1)");
    }
    return slots.consecutive == 0 ? HALYARD_OK
                                  : fail(error, HALYARD_ERROR_UNSUPPORTED, "args.kv.slots.consecutive is ",
                                         slots.consecutive, ", but a device reads every token's slot: it must be 0");
}

/// Refuses scales in device memory, because the call reads scales on the host.
halyard_status check_scales(const CudaRun &run, MemoryQueries &queries, halyard_error *error) {
    const NeededArrays &read = run.kv_program.needed[false];
    for (int i = 0; i < read.n; i++) {
        const auto [tensor, array] = read.list[i];
        if (array == Array::scales && queries.is_device_memory(run.data(tensor, array))) {
            return fail(error, HALYARD_ERROR_UNSUPPORTED, NameText(texts_of(array).name, false, tensor),
                        " is device memory, but the call reads scales on the host");
        }
    }
    return HALYARD_OK;
}

/// Checks the arguments as those of a run on the CPU with the same tensors and the device's angles, and binds them.
halyard_status bind_as_cpu_run(const halyard_cuda_plan &plan, CudaRun &out, MemoryQueries &queries,
                               halyard_error *error) {
    const halyard_cuda_run_args &given = out.given;
    halyard_run_args checked = {};
    checked.size = sizeof(checked);
    checked.bad_position = given.bad_position;
    checked.angles = &plan.angles->device.source;
    checked.positions = given.positions;
    checked.x = given.x;
    checked.y = given.y;
    checked.kv = given.kv;
    checked.n_tensors = given.n_tensors;
    checked.reserved = given.reserved;
    HALYARD_TRY(bind(&plan.checks, &checked, HALYARD_CUDA, &out.program, error));
    HALYARD_TRY(bind_kv(out.program, checked, &out.kv_program, error));
    if (out.program.angles == nullptr) {
        out.program.positions.is_consecutive = false;  // positions are not used, so batch rows may be joined
    }
    out.arrays = kv_pointers(plan.checks, given.kv);
    HALYARD_TRY(check_scales(out, queries, error));
    return check_kv_memory(out.program, out.kv_program, out.pointers.emplace(out.program, checked).all, out.arrays,
                           error);
}

/// Checks with the driver that all memory is on the plan's device, and that the error word is not part of an array.
halyard_status check_device_memory(const CudaRun &run, MemoryQueries &queries, halyard_error *error) {
    const Lattice word = {run.given.error_word, 4, {1, 1, 1, 1, 1, 1}, {}};
    const MemoryRange of_word = {address_of(word.data), address_of(word.data) + (word.data != nullptr ? 4 : 0)};
    halyard_status status = HALYARD_OK;
    const auto check = [&](const Listed &of, const auto &elements) {
        const auto text = [&] { return NameText(*of.name, false, of.tensor); };
        if (of.name == &texts_of(Array::scales).name) {
            return;  // in host memory
        }
        if (status == HALYARD_OK && of.data != nullptr) {
            const MemoryInfo info = queries.describe(of.data);
            status = !info.is_known ? fail(error, HALYARD_ERROR_UNSUPPORTED, text(),
                                           " is memory that the CUDA driver does not know")
                     : info.is_of_device
                         ? HALYARD_OK
                         : fail(error, HALYARD_ERROR_MISMATCH, text(), " lies on another device than the plan's");
        }
        bool overlaps = status == HALYARD_OK && of.span.overlaps(of_word);
        if constexpr (!std::is_null_pointer_v<std::decay_t<decltype(elements)>>) {
            overlaps = overlaps && may_share_bytes(word, elements());
        }
        if (overlaps) {
            status = fail(error, HALYARD_ERROR_OVERLAP, "args.error_word shares elements with ", text());
        }
    };
    if (!run.program.is_empty) {
        list_kv_memory({run.program, run.kv_program, run.pointers->all, run.arrays}, check);
    }
    const ArgumentName word_name = {"args.error_word"};
    check(Listed{&word_name, 0, true, true, word.data, {}}, nullptr);
    return status;
}

/// Checks the arguments of a run and fills in *out.
halyard_status read_cuda_run(const halyard_cuda_plan &plan, const halyard_cuda_run_args *args, CudaRun *out,
                             halyard_error *error) {
    HALYARD_TRY(read_struct(args, "args", &out->given, error));
    const halyard_cuda_run_args &given = out->given;
    HALYARD_TRY(check_kv_args(plan.checks, given.kv, error));
    const bool has_slots = given.kv != nullptr && given.kv->slots != nullptr;
    if (given.bad_position != HALYARD_BAD_POSITION_ERROR && given.error_word != nullptr && !has_slots) {
        return fail(error, HALYARD_ERROR_MISMATCH,
                    "args.error_word is set, but nothing would write it: bad_position is ", given.bad_position,
                    ", not HALYARD_BAD_POSITION_ERROR (0), and there are no slots");
    }
    if (reinterpret_cast<std::uintptr_t>(given.error_word) % 4 != 0) {
        return fail(error, HALYARD_ERROR_UNSUPPORTED, "args.error_word is not aligned to 4 bytes");
    }
    HALYARD_TRY(has_slots ? check_policy(*given.kv->slots, error) : HALYARD_OK);
    out->launch = {&plan.angles->device, plan.checks.sin_sign, given.bad_position == HALYARD_BAD_POSITION_CLAMP};
    MemoryQueries queries(plan.queue);
    HALYARD_TRY(bind_as_cpu_run(plan, *out, queries, error));
    return check_device_memory(*out, queries, error);
}

// ---- Launches ------------------------------------------------------------------------------------------------------

/// Whether the last token of a batch row and the first of the next are stride_token apart, so that rows can be joined.
bool can_join_batch_rows(const TokenNumbers &tokens, std::int64_t stride_batch, std::int64_t stride_token) {
    return stride_batch == tokens.n_tokens * stride_token;
}

bool can_join_slot_rows(const CudaRun &run) {
    return can_join_batch_rows(run.program.positions, run.kv_program.slots.stride_batch,
                               run.kv_program.slots.stride_token);
}

/// can_join says whether tensors and slots allow rows to be joined; this function also looks at the positions.
Launches split_into_launches(const Positions &positions, bool can_join) {
    can_join = can_join && !positions.is_consecutive &&
               can_join_batch_rows(positions, positions.stride_batch, positions.stride_token);
    return can_join ? Launches{1, positions.count()} : Launches{positions.n_batch, positions.n_tokens};
}

/// The heads of a tensor in a batch row. If the output is a cache, y is not set.
Heads heads_of(const CudaRun &run, int index, std::int64_t batch) {
    const TensorProgram &tensor = run.program.tensors[index];
    const TensorPlan &tensor_plan = run.program.plan->tensors[index];
    Heads heads = {&tensor_plan, 0, 0, {}, {}, tensor.n_heads, tensor.in_place};
    if (tensor.n_heads != 0) {
        heads.x = moved(address_of(run.pointers->x[index]), batch * tensor.x.batch * tensor_plan.bytes);
        heads.in = strides_of(tensor.x);
    }
    if (tensor.n_heads != 0 && tensor_plan.writes_y) {
        heads.y = moved(address_of(run.pointers->y[index]), batch * tensor.y.batch * tensor_plan.out_bytes);
        heads.out = strides_of(tensor.y);
    }
    return heads;
}

// ---- Rotations -----------------------------------------------------------------------------------------------------

/// Appends another tensor's heads if they are adjacent, as in a packed QKV, and returns whether they are.
bool append(Heads &to, const Heads &next) {
    const TensorPlan &a = *to.tensor_plan, &b = *next.tensor_plan;
    const auto step = [&](const Strides &s, const Strides &t) {  // from head to head; a single head has no such stride
        return to.n_heads > 1 ? s.head : next.n_heads > 1 ? t.head : a.head_dim;
    };
    const auto follow = [&](const Strides &s, const Strides &t, Address first, Address second) {
        return s.token == t.token && s.element == t.element && step(s, t) > 0 &&
               (next.n_heads == 1 || t.head == step(s, t)) && second == moved(first, to.n_heads * step(s, t) * a.bytes);
    };
    if (a.dtype != b.dtype || a.pairing != b.pairing || a.out_pairing != b.out_pairing ||
        a.rotary_offset != b.rotary_offset || a.head_dim != b.head_dim || to.in_place != next.in_place ||
        !follow(to.in, next.in, to.x, next.x) || !follow(to.out, next.out, to.y, next.y)) {
        return false;
    }
    to.in.head = step(to.in, next.in);
    to.out.head = step(to.out, next.out);
    to.n_heads += next.n_heads;
    return true;
}

/// Enqueues the rotation of heads, and copies of the elements beside the window: one launch for each block of tokens.
/// `heads` are those of the first batch row, and `tensor` is the first of the tensors that they belong to.
int enqueue_rotation(const CudaRun &run, const TensorProgram &tensor, const Heads &heads, Call &call) {
    const Launches launches = split_into_launches(run.program.positions, tensor.n_together == run.program.positions.count());
    const TensorPlan &tensor_plan = *heads.tensor_plan;
    const std::int64_t rotary_dim = run.program.plan->rotary_dim, first = tensor_plan.rotary_offset,
                       end = first + rotary_dim;
    return until_error(launches.count, [&](std::int64_t batch) {
        const auto piece_at = [&](std::int64_t column, std::int64_t window, std::int64_t n_columns) {
            DevicePiece piece = {heads, window, n_columns, launches.n_tokens, run.positions(batch)};
            piece.x = moved(heads.x, (batch * tensor.x.batch + column * heads.in.element) * tensor_plan.bytes);
            piece.y = moved(heads.y, (batch * tensor.y.batch + column * heads.out.element) * tensor_plan.bytes);
            return piece;
        };
        int status = rotate_on_device(run.launch, piece_at(first, rotary_dim, rotary_dim / 2), call);
        for (const auto &[begin, n] : {std::pair(std::int64_t{0}, first), {end, tensor_plan.head_dim - end}}) {
            status = status != 0 || tensor.in_place ? status : copy_on_device(piece_at(begin, 0, n), call);
        }
        return status;
    });
}

int enqueue_rotations(const CudaRun &run, Call &call) {
    const auto &tensors = run.program.tensors;
    int status = 0;
    for (int i = 0; i < run.program.plan->n_tensors && status == 0;) {
        const TensorProgram &first = tensors[i];
        Heads heads = heads_of(run, i++, 0);
        while (heads.n_heads != 0 && i < run.program.plan->n_tensors && tensors[i].n_heads != 0 &&
               first.x.batch == tensors[i].x.batch && first.y.batch == tensors[i].y.batch &&
               append(heads, heads_of(run, i, 0))) {
            i++;
        }
        status = heads.n_heads == 0 ? 0 : enqueue_rotation(run, first, heads, call);
    }
    return status;
}

// ---- The KV path ---------------------------------------------------------------------------------------------------

KvPiece kv_piece_of(const CudaRun &run, int index, std::int64_t batch) {
    const KvTensorPlan &stages = run.program.plan->kv_plan->tensors[index];
    KvPiece piece = {heads_of(run, index, batch), &stages, address_of(run.data(index, Array::weight)), 1.0f};
    if (stages.cache) {
        piece.y = address_of(run.data(index, Array::cache));
    }
    if (stages.scale) {
        piece.reciprocal = 1.0f / read_word<float>(run.data(index, Array::scales));
    }
    return piece;
}

/// How the KV path's tokens are split into launches.
Launches split_kv_into_launches(const CudaRun &run) {
    const Positions &positions = run.program.positions;
    bool can_join = !run.kv_program.slots.is_given || can_join_slot_rows(run);
    for (int i = 0; i < run.program.plan->n_tensors; i++) {
        const TensorProgram &tensor = run.program.tensors[i];
        const bool has_cache =
            run.program.plan->kv_plan->tensors[i].cache.has_value();  // then slots say where tokens go
        can_join = can_join && (tensor.n_heads == 0 ||
                                (can_join_batch_rows(positions, tensor.x.batch, tensor.x.token) &&
                                 (has_cache || can_join_batch_rows(positions, tensor.y.batch, tensor.y.token))));
    }
    return split_into_launches(positions, can_join);
}

/// Enqueues a KvLaunch for each batch row. Leaves out tensors with zero heads.
int enqueue_kv(const CudaRun &run, const KvLaunch &launch, Call &call) {
    return until_error(run.kv_launches.count, [&](std::int64_t batch) {
        KvPieces pieces = {};
        pieces.kernel = launch.kernel;
        for (int i = 0; i < launch.n_tensors; i++) {
            if (run.program.tensors[launch.tensors[i]].n_heads != 0) {
                pieces.tensors[pieces.n_tensors++] = kv_piece_of(run, launch.tensors[i], batch);
            }
        }
        pieces.n_tokens = run.kv_launches.n_tokens;
        pieces.positions = run.positions(batch);
        pieces.slots = run.slots(batch);
        pieces.n_slots = run.kv_program.slots.is_given ? run.kv_program.slots.n_slots : 0;
        pieces.stores_bad = run.program.angles == nullptr || run.program.bad_position != BadPosition::error;
        return pieces.n_tensors == 0 ? 0 : launch_kv(run.launch, pieces, call);
    });
}

// ---- Both ----------------------------------------------------------------------------------------------------------

/// Enqueues the checks that set the error word: one for positions that the source does not cover, one for slots out of
/// range.
int enqueue_checks(const CudaRun &run, Call &call) {
    const Positions &positions = run.program.positions;
    const Slots &slots = run.kv_program.slots;
    const Address word = address_of(run.given.error_word);
    int status = 0;
    if (word != 0 && run.program.angles != nullptr && run.program.bad_position == BadPosition::error) {
        // All tensors have the same positions. Those of tokens that are stored nowhere are not checked.
        const bool by_slot = stores_in_caches_only(run.program, run.kv_program);
        const Launches launches = split_into_launches(positions, !by_slot || can_join_slot_rows(run));
        const std::int64_t n = by_slot ? launches.count : std::min(launches.count, positions.n_distinct());
        status = until_error(n, [&](std::int64_t batch) {
            return check_on_device(run.positions(batch), by_slot ? run.slots(batch) : LaunchPositions{},
                                   launches.n_tokens, positions_of_source(*run.launch.angles), HALYARD_ERROR_POSITION,
                                   word, call);
        });
    }
    if (status == 0 && word != 0 && slots.is_given) {
        const ValidRange valid = {-1, static_cast<std::int32_t>(slots.n_slots - 1), 1};
        status = until_error(run.kv_launches.count, [&](std::int64_t batch) {
            return check_on_device(run.slots(batch), {}, run.kv_launches.n_tokens, valid, HALYARD_ERROR_SLOT, word,
                                   call);
        });
    }
    return status;
}

/// Refuses alignments and strides that no kernel of the plan supports.
halyard_status check_layouts(const CudaRun &run, halyard_error *error) {
    const bool is_kv = run.program.plan->kv_plan != nullptr;
    const auto check = [&](const char *reason, const auto &...what) {
        return reason == nullptr ? HALYARD_OK : fail(error, HALYARD_ERROR_UNSUPPORTED, what..., " ", reason);
    };
    for (int i = 0; i < run.program.plan->n_tensors; i++) {
        if (run.program.tensors[i].n_heads != 0) {
            const char *const reason = is_kv ? why_not(kv_piece_of(run, i, 0)) : why_not(heads_of(run, i, 0));
            HALYARD_TRY(check(reason, "tensors[", i, "]"));
        }
    }
    // Positions and slots are checked for the most tokens that one launch may have.
    const std::int64_t n_tokens = split_into_launches(run.program.positions, true).n_tokens;
    HALYARD_TRY(check(why_not(run.positions(0), n_tokens, run.launch.angles->source.axes.n_axes), "positions"));
    return check(run.kv_program.slots.is_given ? why_not(run.slots(0), run.kv_launches.n_tokens, 1) : nullptr, "slots");
}

}  // namespace

}  // namespace halyard::cuda

using namespace halyard;
using namespace halyard::cuda;

extern "C" halyard_status halyard_run_cuda(const halyard_cuda_plan *plan, const halyard_cuda_run_args *args,
                                           halyard_error *error) {
    HALYARD_TRY(check_error_size(error));
    HALYARD_TRY(check_given(plan, "plan", error));
    CudaRun run;
    HALYARD_TRY(read_cuda_run(*plan, args, &run, error));
    if (run.program.is_empty) {
        return HALYARD_OK;
    }
    if (plan->checks.kv_plan != nullptr) {
        run.kv_launches = split_kv_into_launches(run);
    }
    HALYARD_TRY(check_layouts(run, error));
    Call call = {plan->queue.context, run.given.stream, ""};
    int status = enqueue_checks(run, call);
    if (status == 0 && plan->checks.kv_plan == nullptr) {
        status = enqueue_rotations(run, call);
    }
    for (int i = 0; i < plan->n_launches && status == 0; i++) {
        status = enqueue_kv(run, plan->launches[i], call);
    }
    return status == 0
               ? HALYARD_OK
               : fail(error, HALYARD_ERROR_DEVICE,
                      "the device refused: ", call.message[0] != '\0' ? call.message : "the driver does not say why",
                      " (", status, ")");
}

// Runs a plan: with rows where they lie or made a block at a time, on one thread or on those of an executor.
#include "walk/run.h"

#include "base/error.h"
#include "base/storage.h"
#include "read/read_stages.h"
#include "walk/blocks.h"
#include "walk/choose.h"
#include "walk/piece.h"
#include "walk/rows.h"

#include <algorithm>
#include <atomic>

namespace halyard {

bool find_rows(const Run &run, const CheckedPositions &positions, std::int64_t first, std::int64_t n,
               std::int32_t *rows) noexcept {
    std::int64_t batch = first == 0 ? 0 : first / run.n_tokens;
    std::int64_t token = first - batch * run.n_tokens;
    bool found = true;
    for (std::int64_t i = 0; i < n; i++) {
        rows[i] = run.angles->find_row(positions.at(batch, token), run.bad_position);
        found = found && rows[i] >= 0;
        if (++token == run.n_tokens) {
            token = 0;
            batch++;
        }
    }
    return found;
}

namespace {

/// Below this much data for each thread, handing work over (2.5 us) costs more than it saves. Two threads of a spinning
/// pool against one, in place, heads of 128 in the L2 cache: f32 0.78 times as fast with 128 KiB each and 1.12 times
/// with 256 KiB, bf16 and f16 0.9 and 0.8 times with 16 KiB and 1.5 and 1.3 times with 64 KiB (Zen 4, x86_avx2,
/// 2026-11).
constexpr std::int64_t bytes_worth_a_thread(Dtype dtype) {
    constexpr std::int64_t kib = 1024;
    switch (dtype) {
    case Dtype::f32: return 256 * kib;
    case Dtype::f16:
    case Dtype::bf16:
    case Dtype::e4m3:
    case Dtype::e5m2:
    case Dtype::int8:
    case Dtype::uint8: return 48 * kib;
    }
    return 0;
}

// ---- Work ----------------------------------------------------------------------------------------------------------

constexpr Share all_heads = {0, 1};

/// A set of a run's tensors, a bit for each.
using TensorSet = std::uint32_t;
constexpr TensorSet all_tensors = (1u << HALYARD_MAX_TENSORS) - 1;

/// Does one tensor for n tokens that follow each other, of the given batch row or, if it has just one, of all.
void do_tokens(const Run &run, int index, std::int64_t batch, std::int64_t token, std::int64_t n_tokens,
               const Rows &rows, const Share &share) {
    const TensorDesc &desc = run.plan->tensors[index];
    const RunTensor &tensor = run.tensors[index];
    const bool by_batch = run.n_tokens == 1;
    Stretch stretch;
    stretch.n_tokens = n_tokens;
    stretch.first_head = first_of_share(tensor.n_heads, share);
    stretch.n_heads = end_of_share(tensor.n_heads, share) - stretch.first_head;
    if (stretch.n_heads == 0) {
        return;  // there are more shares than heads
    }
    const auto offset = [&](const RunTensor::Strides &strides) {
        return batch * strides.batch + token * strides.token + stretch.first_head * strides.head;
    };
    stretch.first = batch * run.n_tokens + token;
    stretch.x = tensor.x + offset(tensor.in) * element_bytes(desc.dtype);
    stretch.y = tensor.y + offset(tensor.out) * element_bytes(desc.out_dtype);
    stretch.in_token = by_batch ? tensor.in.batch : tensor.in.token;
    stretch.out_token = by_batch ? tensor.out.batch : tensor.out.token;
    if (run.plan->only_rotates || (!desc.is_staged && !desc.cache)) {
        rotate_stretch(run, index, tensor, stretch, rows);
        return;
    }
    stretch.scales_out = nullptr;  // of tensors without such scales nothing reads them, but parts are copies
    stretch.position_scales = nullptr;
    stretch.scales_token = stretch.position_scales_token = 0;
    if (desc.is_staged) {
        const RunStages &stages = run.stages[index];
        const std::int64_t of_token =
            desc.cache ? 0 : batch * stages.stride_batch + token * stages.stride_token;  // by slot, else
        const std::int64_t of_head = of_token + stretch.first_head * stages.stride_head;
        char *const scales_out = stages.data(scales_out_array);
        stretch.scales_out = scales_out == nullptr ? nullptr : scales_out + of_head * std::int64_t{sizeof(float)};
        stretch.scales_token = by_batch && !desc.cache ? stages.stride_batch : stages.stride_token;
        if (desc.position_scales) {
            const std::int64_t(&strides)[3] = stages.position_strides;
            const std::int64_t at = batch * strides[0] + token * strides[1] + stretch.first_head * strides[2];
            stretch.position_scales = stages.data(position_scales_array) + at * std::int64_t{sizeof(float)};
            stretch.position_scales_token = strides[by_batch ? 0 : 1];
        }
        take_road(run, index, stretch, rows);
    } else {
        for_each_part(run, desc, stretch, rows,
                      [&](const Stretch &part, const Rows &its) { rotate_stretch(run, index, tensor, part, its); });
    }
}

// Tensors that rotate pairs behind those of the first rows that are made have no stages.
static_assert(max_staged_head <= made_floats);

/// Does n tokens, counted through all batch rows. With later pairs only tensors that rotate are left to do.
void do_with(const Run &run, std::int64_t first, std::int64_t n, const Rows &rows, const Share &share,
             TensorSet tensors) {
    for (int index = 0; index < run.plan->n_tensors; index++) {
        const RunTensor &tensor = run.tensors[index];
        const TensorDesc &desc = run.plan->tensors[index];
        if (tensor.n_heads == 0 || (tensors >> index & 1) == 0 || (rows.first_pair != 0 && !desc.rotates)) {
            continue;
        }
        if (run.n_tokens == 1) {  // batch rows of one token follow each other like tokens
            do_tokens(run, index, first, 0, n, rows, share);
            continue;
        }
        const bool joined =
            run.n_batch == 1 || (!desc.is_staged && !desc.cache && tokens_are_evenly_apart(run, tensor));
        for (std::int64_t i = 0; i < n;) {
            const std::int64_t at = first + i;
            const std::int64_t batch = at < run.n_tokens ? 0 : at / run.n_tokens;
            const std::int64_t token = at - batch * run.n_tokens;
            const std::int64_t n_here = joined ? n - i : std::min(n - i, run.n_tokens - token);
            Rows rows_here = rows;
            rows_here.row_of_token += rows.row_of_token == nullptr ? 0 : i;
            do_tokens(run, index, batch, token, n_here, rows_here, share);
            i += n_here;
        }
    }
}

/// Rotates at most max_piece_tokens with rows where they lie in memory.
void rotate_directly(const Run &run, std::int64_t first, std::int64_t n, const std::int32_t *row_of_token,
                     const Share &share, TensorSet tensors) {
    const halyard_angle_source &angles = *run.angles;
    const Rows rows = {static_cast<const char *>(angles.cos_rows),
                       static_cast<const char *>(angles.sin_rows),
                       angles.n_rows,
                       angles.stride_row,
                       0,
                       angles.rotary_dim / 2,
                       row_of_token};
    do_with(run, first, n, rows, share, tensors);
}

/// Rotates tokens first … last - 1 with rows that are made a block at a time: those of positions, or of moves.
void rotate_with_made_rows(const Run &run, std::int64_t first, std::int64_t last, const Share &share,
                           TensorSet tensors) {
    float made[made_floats];
    std::int32_t row_of_move[max_piece_tokens];
    const std::int64_t n_pairs = run.angles->rotary_dim / 2;
    const RowBlock block = row_block(run.angles->rotary_dim);
    for (std::int64_t at = first, n_tokens = 0; at < last; at += n_tokens) {
        for (std::int64_t pair = 0; pair < n_pairs; pair += block.n_pairs) {
            const std::int64_t n = std::min(n_pairs - pair, block.n_pairs);
            if (run.plan->rerotates) {
                n_tokens = make_moved_rows(run.moves(), plan_of(run).row_kernels, {run.n_tokens, at, last}, pair, n,
                                           made, row_of_move);
            } else {
                n_tokens = std::min(last - at, block.n_tokens);
                const RowTokens tokens = {&run.positions, run.bad_position, run.n_tokens, at, n_tokens};
                make_rows(*run.angles, plan_of(run).row_kernels, tokens, pair, n, {made, 2 * n, n});
            }
            const Rows rows = {reinterpret_cast<const char *>(made),
                               reinterpret_cast<const char *>(made + n),
                               block.n_tokens,
                               2 * n,
                               pair,
                               n,
                               run.plan->rerotates ? row_of_move : row_after_row.data()};
            do_with(run, at, n_tokens, rows, share, tensors);
        }
    }
}

/// Does tokens first … last - 1, whose positions were checked before.
void do_range(const Run &run, std::int64_t first, std::int64_t last, const Share &share, TensorSet tensors) {
    if (!run.plan->rotates) {
        do_with(run, first, last - first, Rows{}, share, tensors);
        return;
    }
    if (run.plan->rerotates || !run.angles->is_direct) {
        rotate_with_made_rows(run, first, last, share, tensors);
        return;
    }
    std::int32_t rows[max_piece_tokens];
    for (std::int64_t at = first; at < last; at += max_piece_tokens) {
        const std::int64_t n = std::min(last - at, max_piece_tokens);
        if (!find_rows(run, run.positions, at, n, rows)) {
            // They were checked, so such a token is not written, or another thread is writing the positions. Any row
            // within bounds will do.
            std::replace_if(
                rows, rows + n, [](std::int32_t row) { return row < 0; }, run.angles->identity_row);
        }
        rotate_directly(run, at, n, rows, share, tensors);
    }
}

/// Does the tokens whose slots belong to this task. Tokens with one slot then belong to one task, which keeps the later
/// one. Slots go to tasks in turn, 16 at a time so that calls stay long.
void do_own_slots(const Run &run, const Share &share, TensorSet tensors) {
    const std::int64_t n = run.n_batch * run.n_tokens, together = 16;
    const auto is_own = [&](std::int64_t token) {
        const std::int64_t slot = run.slots.of_token(token);
        return slot >= 0 && slot / together % share.count == share.index;
    };
    for (std::int64_t first = 0, last = 0; first < n; first = last + 1) {
        for (last = first; last < n && is_own(last);) {
            last++;
        }
        if (first < last) {
            do_range(run, first, last, all_heads, tensors);
        }
    }
}

/// Does one of `share.count` shares of a run, whose positions and slots were checked before.
void do_share(const Run &run, const Share &share) {
    const std::int64_t n = run.n_batch * run.n_tokens;
    const std::int64_t first = first_of_share(n, share), last = end_of_share(n, share);
    TensorSet by_slot = 0, by_row = 0;
    const bool may_be_doubled = run.slots.data != nullptr && run.slots.may_be_doubled;
    for (int i = 0; i < run.plan->n_tensors && !run.plan->only_rotates && share.count > 1; i++) {
        const TensorDesc &desc = run.plan->tensors[i];
        const TensorSet bit = 1u << i;
        if (desc.cache && may_be_doubled) {
            by_slot |= bit;
        } else if (desc.norm && desc.norm->row) {
            by_row |= bit;
        }
    }
    // Whole tokens keep each row of angles with one thread, but few tokens would be shared unevenly.
    if (n < 4 * share.count) {
        do_range(run, 0, n, share, all_tensors & ~by_slot & ~by_row);
        if (by_row != 0) {
            do_range(run, first, last, all_heads, by_row);
        }
    } else {
        do_range(run, first, last, all_heads, all_tensors & ~by_slot);
    }
    if (by_slot != 0) {
        do_own_slots(run, share, by_slot);
    }
}

// ---- Threads -------------------------------------------------------------------------------------------------------

struct SharedRun {
    const Run *run;
    std::int64_t n_tasks;
    std::atomic<std::int64_t> n_done{0};
    std::atomic<std::int64_t> n_refused{0};
    std::atomic<std::uint64_t> started[1024 / 64] = {};  // a bit for each task; an executor has at most 1024 threads

    /// Whether the task exists and nobody has begun it. In place, a task done twice would rotate twice.
    bool may_start(std::int64_t index) {
        const std::uint64_t bit = std::uint64_t(1) << (index & 63);
        return index >= 0 && index < n_tasks && (started[index / 64].fetch_or(bit) & bit) == 0;
    }

    static void task(void *data, std::int64_t index) {
        auto &shared = *static_cast<SharedRun *>(data);
        if (!shared.may_start(index)) {
            shared.n_refused.fetch_add(1);
            return;
        }
        do_share(*shared.run, {index, shared.n_tasks});
        shared.n_done.fetch_add(1, std::memory_order_acq_rel);
    }
};

halyard_status run_on_executor(const Run &run, std::int64_t n_tasks, halyard_error *error) {
    const halyard_executor &executor = run.executor;
    SharedRun shared;
    shared.run = &run;
    shared.n_tasks = n_tasks;
    std::int32_t result = -1;
    try {
        result = executor.parallel_for(executor.context, n_tasks, &SharedRun::task, &shared);
    } catch (...) {
        return fail(error, HALYARD_ERROR_EXECUTOR, "executor.parallel_for threw an exception");
    }
    if (result != 0) {
        return fail(error, HALYARD_ERROR_EXECUTOR, "executor.parallel_for returned ", result);
    }
    const std::int64_t done = shared.n_done.load(std::memory_order_acquire);
    if (done != n_tasks) {
        return fail(error, HALYARD_ERROR_EXECUTOR, "executor.parallel_for ran ", done, " of ", n_tasks, " tasks");
    }
    if (shared.n_refused.load() != 0) {
        return fail(error, HALYARD_ERROR_EXECUTOR,
                    "executor.parallel_for ran a task twice, or one that does not exist");
    }
    return HALYARD_OK;
}

/// How many threads have enough to do.
std::int64_t count_worthwhile_threads(const Run &run) {
    double threads = 0.0;
    for (int i = 0; i < run.plan->n_tensors; i++) {
        const TensorDesc &desc = run.plan->tensors[i];
        const std::int64_t width = desc.rotates && !desc.is_staged ? run.plan->rotary_dim : desc.head_dim;
        const std::int64_t tokens = run.n_batch * run.n_tokens;
        // Inputs of stride 0 on their way to a cache may have more elements than int64 can count.
        threads += static_cast<double>(tokens) * static_cast<double>(run.tensors[i].n_heads * width) *
                   static_cast<double>(element_bytes(desc.dtype)) /
                   static_cast<double>(bytes_worth_a_thread(desc.dtype));
    }
    return static_cast<std::int64_t>(std::min(threads, 1024.0));  // an executor has no more
}

}  // namespace

std::int64_t count_tasks(const Run &run) noexcept {
    return run.executor.n_threads <= 1
               ? 1
               : std::clamp<std::int64_t>(count_worthwhile_threads(run), 1, run.executor.n_threads);
}

halyard_status do_run(const Run &run, halyard_error *error) noexcept {
    if (run.is_empty) {
        return HALYARD_OK;
    }
    const std::int64_t n = run.n_batch * run.n_tokens;
    const std::int64_t n_tasks = count_tasks(run);
    if (run.slots.data != nullptr) {
        HALYARD_TRY(check_slots(run.slots, error));
    }
    std::int32_t rows[max_piece_tokens];
    if (n <= max_piece_tokens && n_tasks <= 1 && run.share.count == 1 && run.plan->rotates && !run.plan->rerotates &&
        run.angles->is_direct && find_rows(run, run.positions, 0, n, rows)) {
        // Few tokens: one look at each position checks it and finds its row.
        rotate_directly(run, 0, n, rows, all_heads, all_tensors);
        return HALYARD_OK;
    }
    if (run.plan->rotates) {
        HALYARD_TRY(run.plan->rerotates
                        ? check_moves(run.moves(), run.tokens(), error)
                        : check_positions(*run.angles, run.positions, run.bad_position, run.tokens(), error));
    }
    for (int i = 0; i < run.plan->n_tensors && run.plan->rerotates; i++) {
        HALYARD_TRY(check_moved_scales(run, i, error));
    }
    if (n_tasks > 1) {
        return run_on_executor(run, n_tasks, error);
    }
    do_share(run, run.share);
    return HALYARD_OK;
}

}  // namespace halyard

using namespace halyard;

extern "C" halyard_status halyard_run(const halyard_plan *plan, const halyard_run_args *args, halyard_error *error) {
    HALYARD_TRY(check_error(error));
    Run run;
    Spans spans;
    HALYARD_TRY(read_run(plan, args, HALYARD_CPU, &run, &spans, error));
    choose_kernels(run);
    return do_run(run, error);
}

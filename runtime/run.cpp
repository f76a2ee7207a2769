#include "run.h"

#include "error.h"
#include "piece.h"
#include "tensor.h"

#include <algorithm>
#include <atomic>
#include <cstring>

namespace halyard {

namespace {

/// Below this much data for each thread, handing work over costs more than it saves: two threads of a spinning pool
/// lose at 32 KiB each and win at 64 KiB (Zen 4, 2026-11).
constexpr std::int64_t bytes_worth_a_thread = 64 * 1024;

// ---- Work ----------------------------------------------------------------------------------------------------------

/// Copies elements first … last - 1 of each head of a piece of work, where x and y are the first token's first head.
void copy_columns(const char *x, const halyard_tensor &in, std::int64_t in_token, char *y, const halyard_tensor &out,
                  std::int64_t out_token, std::int64_t n_tokens, std::int64_t n_heads, std::int64_t first,
                  std::int64_t last) {
    if (first >= last) {
        return;
    }
    const std::int64_t bytes = element_bytes(in.dtype);
    for (std::int64_t token = 0; token < n_tokens; token++) {
        for (std::int64_t head = 0; head < n_heads; head++) {
            const char *from = x + (token * in_token + head * in.strides[2] + first * in.strides[3]) * bytes;
            char *to = y + (token * out_token + head * out.strides[2] + first * out.strides[3]) * bytes;
            if (in.strides[3] == 1 && out.strides[3] == 1) {
                std::memcpy(to, from, static_cast<std::size_t>((last - first) * bytes));
                continue;
            }
            for (std::int64_t i = first; i < last; i++) {
                std::memcpy(to, from, static_cast<std::size_t>(bytes));
                from += in.strides[3] * bytes;
                to += out.strides[3] * bytes;
            }
        }
    }
}

PairStrides pair_strides(const halyard_tensor &tensor, std::int32_t pairing, std::int64_t rotary_dim,
                         std::int64_t stride_token) {
    const std::int64_t element = tensor.strides[3];
    const bool half = pairing == HALYARD_PAIRING_HALF;
    return {half ? element : 2 * element, half ? rotary_dim / 2 * element : element, tensor.strides[2], stride_token};
}

/// Where a share of n things begins, the first shares being larger by one where they cannot be equal.
std::int64_t first_of_share(std::int64_t n, std::int64_t share, std::int64_t n_shares) {
    return n / n_shares * share + std::min(share, n % n_shares);
}

/// Rotates heads [share of n_shares] of one tensor for tokens that follow each other in one batch row.
void rotate_tokens(const Run &run, int index, std::int64_t batch, std::int64_t token, std::int64_t n_tokens,
                   const std::int64_t *rows, std::int64_t stride_in, std::int64_t stride_out, std::int64_t share,
                   std::int64_t n_shares) {
    const halyard_plan::Tensor &planned = run.plan->tensors[index];
    const halyard_tensor &x = run.x[index], &y = run.y[index];
    const std::int64_t bytes = element_bytes(x.dtype), heads = x.shape[2];
    const std::int64_t first_head = n_shares == 1 ? 0 : first_of_share(heads, share, n_shares);
    const std::int64_t n_heads = n_shares == 1 ? heads : first_of_share(heads, share + 1, n_shares) - first_head;
    const auto start = [&](const halyard_tensor &t) {
        return static_cast<char *>(t.data) +
               (batch * t.strides[0] + token * t.strides[1] + first_head * t.strides[2]) * bytes;
    };
    const char *from = start(x);
    char *to = start(y);
    const std::int64_t window = planned.desc.rotary_offset, rotary_dim = run.plan->rotary_dim;
    const Piece piece = {x.dtype,
                         from + window * x.strides[3] * bytes,
                         to + window * y.strides[3] * bytes,
                         pair_strides(x, planned.desc.pairing, rotary_dim, stride_in),
                         pair_strides(y, planned.desc.out_pairing, rotary_dim, stride_out),
                         rotary_dim / 2,
                         n_heads,
                         n_tokens,
                         run.angles->cos_rows,
                         run.angles->sin_rows,
                         run.angles->n_rows,
                         run.angles->stride_row,
                         rows,
                         run.plan->sin_sign};
    rotate_piece(*run.kernels[index], piece);
    if (!run.in_place[index]) {
        copy_columns(from, x, stride_in, to, y, stride_out, n_tokens, n_heads, 0, window);
        copy_columns(from, x, stride_in, to, y, stride_out, n_tokens, n_heads, window + rotary_dim, x.shape[3]);
    }
}

/// Looks up the rows of n tokens, counted through all batch rows; false when one has none under the policy.
bool find_rows(const Run &run, std::int64_t first, std::int64_t n, std::int64_t *rows) {
    std::int64_t batch = first == 0 ? 0 : first / run.n_tokens;
    std::int64_t token = first - batch * run.n_tokens;
    bool found = true;
    for (std::int64_t i = 0; i < n; i++) {
        rows[i] = run.angles->find_row(run.positions.at(batch, token), run.bad_position);
        found = found && rows[i] >= 0;
        if (++token == run.n_tokens) {
            token = 0;
            batch++;
        }
    }
    return found;
}

/// Rotates a share of the heads of n tokens, counted through all batch rows.
void rotate_rows(const Run &run, std::int64_t first, std::int64_t n, const std::int64_t *rows, std::int64_t share,
                 std::int64_t n_shares) {
    for (int t = 0; t < run.plan->n_tensors; t++) {
        const halyard_tensor &x = run.x[t], &y = run.y[t];
        if (x.shape[2] == 0) {
            continue;
        }
        // Batch rows that follow each other like tokens are tokens.
        const bool one_each = run.n_tokens == 1;
        const auto joins = [&](const halyard_tensor &tensor) {
            return tensor.strides[0] == run.n_tokens * tensor.strides[1];
        };
        const bool joined = one_each || run.n_batch == 1 || (joins(x) && joins(y));
        const int token_dim = one_each ? 0 : 1;
        for (std::int64_t i = 0; i < n;) {
            const std::int64_t at = first + i;
            const std::int64_t batch = one_each ? at : at < run.n_tokens ? 0 : at / run.n_tokens;
            const std::int64_t token = at - batch * run.n_tokens;
            const std::int64_t n_here = joined ? n - i : std::min(n - i, run.n_tokens - token);
            rotate_tokens(run, t, batch, token, n_here, rows + i, x.strides[token_dim], y.strides[token_dim], share,
                          n_shares);
            i += n_here;
        }
    }
}

/// The same for any number of tokens whose positions were checked before.
void rotate_range(const Run &run, std::int64_t first, std::int64_t last, std::int64_t share, std::int64_t n_shares) {
    std::int64_t rows[max_piece_tokens];
    for (std::int64_t at = first; at < last; at += max_piece_tokens) {
        const std::int64_t n = std::min(last - at, max_piece_tokens);
        if (!find_rows(run, at, n, rows)) {
            // Another thread must be writing the positions: then any row will do that is not out of bounds.
            std::replace_if(rows, rows + n, [](std::int64_t row) { return row < 0; }, run.angles->identity_row);
        }
        rotate_rows(run, at, n, rows, share, n_shares);
    }
}

// ---- Threads -------------------------------------------------------------------------------------------------------

struct SharedRun {
    const Run *run;
    std::int64_t n_tasks;
    bool by_heads;
    std::atomic<std::int64_t> n_done{0};
    std::atomic<std::int64_t> n_refused{0};
    std::atomic<std::uint64_t> started[1024 / 64] = {};  // a bit for each task; an executor has at most 1024 threads

    /// Whether a task is ours to do, and nobody has begun it: in place, doing it twice would turn twice.
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
        const std::int64_t n = shared.run->n_batch * shared.run->n_tokens;
        if (shared.by_heads) {
            rotate_range(*shared.run, 0, n, index, shared.n_tasks);
        } else {
            rotate_range(*shared.run, first_of_share(n, index, shared.n_tasks),
                         first_of_share(n, index + 1, shared.n_tasks), 0, 1);
        }
        shared.n_done.fetch_add(1, std::memory_order_acq_rel);
    }
};

halyard_status run_on_executor(const Run &run, std::int64_t n_tasks, halyard_error *error) {
    const halyard_executor &executor = run.executor;
    SharedRun shared;
    shared.run = &run;
    shared.n_tasks = n_tasks;
    // Whole tokens keep each row of angles with one thread, but few tokens would be shared unevenly.
    shared.by_heads = run.n_batch * run.n_tokens < 4 * n_tasks;
    std::int32_t result = -1;
    try {
        result = executor.parallel_for(executor.context, n_tasks, &SharedRun::task, &shared);
    } catch (...) {
        return fail(error, HALYARD_ERROR_EXECUTOR, "executor.parallel_for threw an exception");
    }
    if (result != 0) {
        return fail(error, HALYARD_ERROR_EXECUTOR, "executor.parallel_for returned %d", result);
    }
    const std::int64_t done = shared.n_done.load(std::memory_order_acquire);
    if (done != n_tasks) {
        return fail(error, HALYARD_ERROR_EXECUTOR, "executor.parallel_for ran %lld of %lld tasks",
                    static_cast<long long>(done), static_cast<long long>(n_tasks));
    }
    if (shared.n_refused.load() != 0) {
        return fail(error, HALYARD_ERROR_EXECUTOR,
                    "executor.parallel_for ran a task twice, or one that does not exist");
    }
    return HALYARD_OK;
}

std::int64_t count_bytes(const Run &run) {
    std::int64_t heads = 0;
    for (int i = 0; i < run.plan->n_tensors; i++) {
        heads += run.x[i].shape[2] * element_bytes(run.x[i].dtype);
    }
    return heads * run.n_batch * run.n_tokens * run.plan->rotary_dim;
}

}  // namespace

}  // namespace halyard

using namespace halyard;

extern "C" halyard_status halyard_run(const halyard_plan *plan, const halyard_run_args *args, halyard_error *error) {
    Run run;
    halyard_status status = read_run(plan, args, &run, error);
    if (status != HALYARD_OK) {
        return status;
    }
    if (run.is_empty) {
        return HALYARD_OK;
    }
    const std::int64_t n = run.n_batch * run.n_tokens;
    const std::int64_t n_tasks =
        run.executor.n_threads <= 1
            ? 1
            : std::min<std::int64_t>(run.executor.n_threads, count_bytes(run) / bytes_worth_a_thread);
    std::int64_t rows[max_piece_tokens];
    if (n <= max_piece_tokens && n_tasks <= 1 && find_rows(run, 0, n, rows)) {
        rotate_rows(run, 0, n, rows, 0, 1);  // few tokens: one look at each position checks it and finds its row
        return HALYARD_OK;
    }
    status = check_positions(*run.angles, run.positions, run.bad_position, run.n_batch, run.n_tokens, error);
    if (status != HALYARD_OK) {
        return status;
    }
    if (n_tasks > 1) {
        return run_on_executor(run, n_tasks, error);
    }
    rotate_range(run, 0, n, 0, 1);
    return HALYARD_OK;
}

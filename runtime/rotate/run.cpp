// Runs a plan: with rows where they lie or made a block at a time, on one thread or on those of an executor.
#include "rotate/run.h"

#include "base/error.h"
#include "base/storage.h"
#include "rotate/piece.h"
#include "rotate/rows.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <numeric>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

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
    case Dtype::int8: return 48 * kib;
    }
    return 0;
}

// ---- Work ----------------------------------------------------------------------------------------------------------

/// Copies with non-temporal stores, where the compiler's target has them and the output is aligned; store_fence must
/// follow. Of the time by way of the caches, 4096 tokens take .54 with 64 of 256 columns rotated (16 heads) and .8 with
/// 32 of 80 (32 heads), rotation and copy together (f32, AVX2; Zen 4, 2026-11).
void copy_non_temporally(char *to, const char *from, std::size_t n) {
    std::size_t done = 0;
#ifdef __SSE2__
    if (reinterpret_cast<std::uintptr_t>(to) % sizeof(__m128i) == 0) {
        for (; done + sizeof(__m128i) <= n; done += sizeof(__m128i)) {
            _mm_stream_si128(reinterpret_cast<__m128i *>(to + done),
                             _mm_loadu_si128(reinterpret_cast<const __m128i *>(from + done)));
        }
    }
#endif
    std::memcpy(to + done, from + done, n - done);
}

/// Orders non-temporal stores before whatever the thread does next, such as telling another one.
void store_fence() {
#ifdef __SSE2__
    _mm_sfence();
#endif
}

/// Copies elements first … last - 1 of each head, where x and y are the first token's first head.
void copy_columns(const RunTensor &tensor, std::int64_t bytes, const char *x, std::int64_t in_token, char *y,
                  std::int64_t out_token, std::int64_t n_tokens, std::int64_t n_heads, std::int64_t first,
                  std::int64_t last) {
    const std::int64_t in = tensor.in.element, out = tensor.out.element;
    for (std::int64_t token = 0; token < n_tokens && first < last; token++) {
        for (std::int64_t head = 0; head < n_heads; head++) {
            const char *from = x + (token * in_token + head * tensor.in.head + first * in) * bytes;
            char *to = y + (token * out_token + head * tensor.out.head + first * out) * bytes;
            if (in == 1 && out == 1) {
                const auto n_bytes = static_cast<std::size_t>((last - first) * bytes);
                if (tensor.non_temporal) {
                    copy_non_temporally(to, from, n_bytes);
                } else {
                    std::memcpy(to, from, n_bytes);
                }
                continue;
            }
            for (std::int64_t i = first; i < last; i++) {
                std::memcpy(to, from, static_cast<std::size_t>(bytes));
                from += in * bytes;
                to += out * bytes;
            }
        }
    }
}

/// Rows of cos and sin as kernels read them, and for which pairs.
struct Rows {
    const char *cos, *sin;
    std::int64_t n_rows, stride_row;
    std::int64_t first_pair, n_pairs;
    const std::int32_t *row_of_token;
};

/// Which part of the heads a task does.
struct Share {
    std::int64_t index, count;
};
constexpr Share all_heads = {0, 1};

/// Where a share of n things begins, the first shares being larger by one where they cannot be equal.
std::int64_t first_of_share(std::int64_t n, const Share &share) {
    return share.count == 1 ? n * share.index : n / share.count * share.index + std::min(share.index, n % share.count);
}

/// Rotates one tensor for tokens that follow each other with the given strides.
void rotate_tokens(const Run &run, int index, std::int64_t batch, std::int64_t token, std::int64_t n_tokens,
                   const Rows &rows, const std::int32_t *row_of_token, std::int64_t in_token, std::int64_t out_token,
                   const Share &share) {
    const TensorDesc &desc = run.plan->tensors[index].desc;
    const RunTensor &tensor = run.tensors[index];
    const std::int64_t bytes = element_bytes(desc.dtype);
    const std::int64_t first_head = first_of_share(tensor.n_heads, share);
    const std::int64_t n_heads = first_of_share(tensor.n_heads, {share.index + 1, share.count}) - first_head;
    if (n_heads == 0) {
        return;  // there are more shares than heads
    }
    const auto offset = [&](const RunTensor::Strides &strides) {
        return (batch * strides.batch + token * strides.token + first_head * strides.head) * bytes;
    };
    const char *x = tensor.x + offset(tensor.in);
    char *y = tensor.y + offset(tensor.out);
    const std::int64_t window = desc.rotary_offset, rotary_dim = run.plan->rotary_dim;

    Piece piece;
    piece.dtype = desc.dtype;
    set_pair_strides(tensor.in, desc.pairing, rotary_dim / 2, in_token, piece.in);
    set_pair_strides(tensor.out, desc.out_pairing, rotary_dim / 2, out_token, piece.out);
    piece.x = x + (window * tensor.in.element + rows.first_pair * piece.in.pair) * bytes;
    piece.y = y + (window * tensor.out.element + rows.first_pair * piece.out.pair) * bytes;
    piece.n_pairs = rows.n_pairs;
    piece.n_heads = n_heads;
    piece.n_tokens = n_tokens;
    piece.cos_rows = rows.cos;
    piece.sin_rows = rows.sin;
    piece.n_rows = rows.n_rows;
    piece.stride_row = rows.stride_row;
    piece.row_of_token = row_of_token;
    piece.sin_sign = run.plan->sin_sign;
    piece.within_int32 = tensor.within_int32;
    rotate_piece(*tensor.kernel, piece);
    if (!tensor.in_place && rows.first_pair == 0) {
        copy_columns(tensor, bytes, x, in_token, y, out_token, n_tokens, n_heads, 0, window);
        copy_columns(tensor, bytes, x, in_token, y, out_token, n_tokens, n_heads, window + rotary_dim, desc.head_dim);
        if (tensor.non_temporal) {
            store_fence();
        }
    }
}

/// Rotates n tokens, counted through all batch rows.
void rotate_with(const Run &run, std::int64_t first, std::int64_t n, const Rows &rows, const Share &share) {
    for (int index = 0; index < run.plan->n_tensors; index++) {
        const RunTensor &tensor = run.tensors[index];
        if (tensor.n_heads == 0) {
            continue;
        }
        if (run.n_tokens == 1) {  // batch rows of one token follow each other like tokens
            rotate_tokens(run, index, first, 0, n, rows, rows.row_of_token, tensor.in.batch, tensor.out.batch, share);
            continue;
        }
        const bool joined = tokens_are_evenly_apart(run, tensor);
        for (std::int64_t i = 0; i < n;) {
            const std::int64_t at = first + i;
            const std::int64_t batch = at < run.n_tokens ? 0 : at / run.n_tokens;
            const std::int64_t token = at - batch * run.n_tokens;
            const std::int64_t n_here = joined ? n - i : std::min(n - i, run.n_tokens - token);
            rotate_tokens(run, index, batch, token, n_here, rows, rows.row_of_token + i, tensor.in.token,
                          tensor.out.token, share);
            i += n_here;
        }
    }
}

/// Rotates at most max_piece_tokens with rows where they lie in memory.
void rotate_directly(const Run &run, std::int64_t first, std::int64_t n, const std::int32_t *row_of_token,
                     const Share &share) {
    const halyard_angle_source &angles = *run.angles;
    const Rows rows = {static_cast<const char *>(angles.cos_rows),
                       static_cast<const char *>(angles.sin_rows),
                       angles.n_rows,
                       angles.stride_row,
                       0,
                       angles.rotary_dim / 2,
                       row_of_token};
    rotate_with(run, first, n, rows, share);
}

constexpr auto row_after_row = [] {
    std::array<std::int32_t, max_piece_tokens> rows{};
    std::iota(rows.begin(), rows.end(), 0);
    return rows;
}();

/// Rotates tokens first … last - 1 with rows that are made a block at a time.
void rotate_with_made_rows(const Run &run, std::int64_t first, std::int64_t last, const Share &share) {
    float made[made_floats];
    const std::int64_t n_pairs = run.angles->rotary_dim / 2;
    const RowBlock block = row_block(run.angles->rotary_dim);
    for (std::int64_t at = first; at < last; at += block.n_tokens) {
        const RowTokens tokens = {&run.positions, run.bad_position, run.n_tokens, at,
                                  std::min(last - at, block.n_tokens)};
        for (std::int64_t pair = 0; pair < n_pairs; pair += block.n_pairs) {
            const std::int64_t n = std::min(n_pairs - pair, block.n_pairs);
            make_rows(*run.angles, run.plan->row_kernels, tokens, pair, n, {made, 2 * n, n});
            const Rows rows = {reinterpret_cast<const char *>(made),
                               reinterpret_cast<const char *>(made + n),
                               tokens.n_tokens,
                               2 * n,
                               pair,
                               n,
                               row_after_row.data()};
            rotate_with(run, at, tokens.n_tokens, rows, share);
        }
    }
}

/// Rotates tokens first … last - 1, whose positions were checked before.
void rotate_range(const Run &run, std::int64_t first, std::int64_t last, const Share &share) {
    if (!run.angles->is_direct) {
        rotate_with_made_rows(run, first, last, share);
        return;
    }
    std::int32_t rows[max_piece_tokens];
    for (std::int64_t at = first; at < last; at += max_piece_tokens) {
        const std::int64_t n = std::min(last - at, max_piece_tokens);
        if (!find_rows(run, run.positions, at, n, rows)) {
            // Another thread must be writing the positions: then any row will do that is not out of bounds.
            std::replace_if(
                rows, rows + n, [](std::int32_t row) { return row < 0; }, run.angles->identity_row);
        }
        rotate_directly(run, at, n, rows, share);
    }
}

/// Rotates one of `share.count` shares of a run, whose positions were checked before.
void rotate_share(const Run &run, const Share &share) {
    const std::int64_t n = run.n_batch * run.n_tokens;
    // Whole tokens keep each row of angles with one thread, but few tokens would be shared unevenly.
    if (n < 4 * share.count) {
        rotate_range(run, 0, n, share);
    } else {
        rotate_range(run, first_of_share(n, share), first_of_share(n, {share.index + 1, share.count}), all_heads);
    }
}

// ---- Threads -------------------------------------------------------------------------------------------------------

struct SharedRun {
    const Run *run;
    std::int64_t n_tasks;
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
        rotate_share(*shared.run, {index, shared.n_tasks});
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
        const Dtype dtype = run.plan->tensors[i].desc.dtype;
        const std::int64_t elements = run.tensors[i].n_heads * run.n_batch * run.n_tokens * run.plan->rotary_dim;
        threads +=
            static_cast<double>(elements * element_bytes(dtype)) / static_cast<double>(bytes_worth_a_thread(dtype));
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
    std::int32_t rows[max_piece_tokens];
    if (n <= max_piece_tokens && n_tasks <= 1 && run.n_parts == 1 && run.angles->is_direct &&
        find_rows(run, run.positions, 0, n, rows)) {
        // Few tokens: one look at each position checks it and finds its row.
        rotate_directly(run, 0, n, rows, all_heads);
        return HALYARD_OK;
    }
    const halyard_status status =
        check_positions(*run.angles, run.positions, run.bad_position, run.n_batch, run.n_tokens, error);
    if (status != HALYARD_OK) {
        return status;
    }
    if (n_tasks > 1) {
        return run_on_executor(run, n_tasks, error);
    }
    rotate_share(run, {run.part, run.n_parts});
    return HALYARD_OK;
}

}  // namespace halyard

using namespace halyard;

extern "C" halyard_status halyard_run(const halyard_plan *plan, const halyard_run_args *args, halyard_error *error) {
    if (const halyard_status status = check_error(error)) {
        return status;
    }
    Run run;
    Spans spans;
    if (const halyard_status status = read_run(plan, args, HALYARD_CPU, &run, &spans, error)) {
        return status;
    }
    return do_run(run, error);
}

// Writes rows of cos and sin into the caller's memory, for runs to come.
#include "angles/angle_source.h"
#include "base/error.h"
#include "base/overlap.h"
#include "rotate/plan.h"
#include "rotate/rows.h"

#include <algorithm>
#include <cstdint>
#include <optional>

using namespace halyard;

extern "C" halyard_status halyard_make_rows(const halyard_plan *plan, const halyard_angle_source *source,
                                            const halyard_positions *positions, int32_t bad_position, int64_t n_batch,
                                            int64_t n_tokens, float *rows, int64_t n_floats, halyard_error *error) {
    if (const halyard_status status = check_error(error)) {
        return status;
    }
    if (plan == nullptr) {
        return fail_null(error, "plan");
    }
    if (source == nullptr) {
        return fail_null(error, "source");
    }
    if (source->rotary_dim != plan->rotary_dim) {
        return fail(error, HALYARD_ERROR_MISMATCH, "source has a rotary_dim of ", source->rotary_dim,
                    ", but the plan's is ", plan->rotary_dim);
    }
    if (rows == nullptr && n_batch != 0 && n_tokens != 0) {
        return fail_null(error, "rows");
    }
    if (source->by_token) {
        return fail(error, HALYARD_ERROR_MISMATCH, "source has rows by_token, which are made already");
    }
    const std::optional<BadPosition> policy = to_bad_position(bad_position);
    if (!policy) {
        return fail(error, HALYARD_ERROR_UNKNOWN_VALUE, "bad_position is ", bad_position,
                    ", but it must be HALYARD_BAD_POSITION_ERROR (0), _CLAMP (1) or _IDENTITY (2)");
    }
    if (n_batch < 0 || n_tokens < 0) {
        return fail(error, HALYARD_ERROR_SHAPE, "n_batch is ", n_batch, " and n_tokens is ", n_tokens,
                    ", but neither may be negative");
    }
    CheckedPositions checked;
    halyard_status status = read_positions(positions, n_batch, n_tokens, source->axes.n_axes, &checked, error);
    if (status != HALYARD_OK) {
        return status;
    }
    std::int64_t n_needed = 0;
    MemoryRange written = {0, 0};
    const bool is_empty = n_batch == 0 || n_tokens == 0;
    const std::int64_t dense[] = {1};
    if (!is_empty && (__builtin_mul_overflow(n_tokens, source->rotary_dim, &n_needed) ||
                      __builtin_mul_overflow(n_batch, n_needed, &n_needed) ||
                      !find_memory_range<1>(rows, {n_needed}, dense, sizeof(float), &written))) {
        return fail(error, HALYARD_ERROR_OVERFLOW, "the rows of ", n_batch, " x ", n_tokens, " tokens of rotary_dim ",
                    source->rotary_dim, " leave the address space");
    }
    if (n_floats < n_needed) {
        return fail(error, HALYARD_ERROR_SHAPE, "n_floats is ", n_floats, ", but the rows need ", n_needed);
    }
    if (written.overlaps(source->cos_memory) || written.overlaps(source->sin_memory)) {
        return fail(error, HALYARD_ERROR_OVERLAP, "rows shares memory with the rows of the angle source");
    }
    if (written.overlaps(source->index_memory)) {
        return fail(error, HALYARD_ERROR_OVERLAP, "rows shares memory with the index of the angle source");
    }
    if (written.overlaps(checked.memory)) {
        return fail(error, HALYARD_ERROR_OVERLAP, "rows shares memory with positions.data");
    }
    status = check_positions(*source, checked, *policy, n_batch, n_tokens, error);
    if (status != HALYARD_OK) {
        return status;
    }
    const std::int64_t n_pairs = source->rotary_dim / 2, n = n_batch * n_tokens;
    const RowBlock block = row_block(source->rotary_dim);
    for (std::int64_t at = 0; at < n; at += block.n_tokens) {
        // Positions are read again, and another thread may have changed them: a bad one counts as 0.
        const RowTokens tokens = {&checked, *policy, n_tokens, at, std::min(block.n_tokens, n - at)};
        for (std::int64_t pair = 0; pair < n_pairs; pair += block.n_pairs) {
            make_rows(*source, plan->row_kernels, tokens, pair, std::min(block.n_pairs, n_pairs - pair),
                      {rows + at * source->rotary_dim + pair, source->rotary_dim, n_pairs});
        }
    }
    return HALYARD_OK;
}

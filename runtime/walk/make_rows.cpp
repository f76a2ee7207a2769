// halyard_make_rows: writes rows of cos and sin into the caller's memory, for later runs.
#include "angles/angle_source.h"
#include "base/error.h"
#include "base/overlap.h"
#include "base/share.h"
#include "base/versioned.h"
#include "walk/plan.h"
#include "walk/rows.h"

#include <algorithm>
#include <cstdint>
#include <optional>

using namespace halyard;

extern "C" halyard_status halyard_make_rows(const halyard_plan *plan, const halyard_rows_args *args,
                                            halyard_error *error) {
    if (const halyard_status status = check_error(error)) {
        return status;
    }
    if (plan == nullptr) {
        return fail_null(error, "plan");
    }
    halyard_rows_args copy;
    const halyard_rows_args *view = nullptr;
    halyard_status status = view_struct(args, "args", &copy, &view, error);
    if (status != HALYARD_OK) {
        return status;
    }
    const halyard_rows_args &given = *view;
    const halyard_angle_source *const angles = given.angles;
    const std::int64_t n_batch = given.n_batch, n_tokens = given.n_tokens;
    if (angles == nullptr) {
        return fail_null(error, "args.angles");
    }
    if (angles->rotary_dim != plan->rotary_dim) {
        return fail(error, HALYARD_ERROR_MISMATCH, "angles has a rotary_dim of ", angles->rotary_dim,
                    ", but the plan's is ", plan->rotary_dim);
    }
    if (given.rows == nullptr && n_batch != 0 && n_tokens != 0) {
        return fail_null(error, "args.rows");
    }
    if (angles->by_token) {
        return fail(error, HALYARD_ERROR_MISMATCH, "angles has rows by_token, which are made already");
    }
    const std::optional<BadPosition> policy = to_bad_position(given.bad_position);
    if (!policy) {
        return fail(error, HALYARD_ERROR_UNKNOWN_VALUE, "args.bad_position is ", given.bad_position,
                    ", but it must be HALYARD_BAD_POSITION_ERROR (0), _CLAMP (1) or _IDENTITY (2)");
    }
    if (n_batch < 0 || n_tokens < 0) {
        return fail(error, HALYARD_ERROR_SHAPE, "args.n_batch is ", n_batch, " and args.n_tokens is ", n_tokens,
                    ", but neither may be negative");
    }
    Share share = {0, 1};
    status = read_part(given.part, given.n_parts, false, &share, error);
    CheckedPositions checked;
    if (status == HALYARD_OK) {
        status = read_positions(given.positions, n_batch, n_tokens, angles->axes.n_axes, &checked, error);
    }
    if (status != HALYARD_OK) {
        return status;
    }
    std::int64_t n_needed = 0;
    MemoryRange written = {0, 0};
    const bool is_empty = n_batch == 0 || n_tokens == 0;
    const std::int64_t dense[] = {1};
    if (!is_empty && (__builtin_mul_overflow(n_tokens, angles->rotary_dim, &n_needed) ||
                      __builtin_mul_overflow(n_batch, n_needed, &n_needed) ||
                      !find_memory_range<1>(given.rows, {n_needed}, dense, sizeof(float), &written))) {
        return fail(error, HALYARD_ERROR_OVERFLOW, "the rows of ", n_batch, " x ", n_tokens, " tokens of rotary_dim ",
                    angles->rotary_dim, " leave the address space");
    }
    if (given.n_floats < n_needed) {
        return fail(error, HALYARD_ERROR_SHAPE, "args.n_floats is ", given.n_floats, ", but the rows need ", n_needed);
    }
    if (written.overlaps(angles->cos_memory) || written.overlaps(angles->sin_memory)) {
        return fail(error, HALYARD_ERROR_OVERLAP, "args.rows shares memory with the rows of the angle source");
    }
    if (written.overlaps(angles->index_memory)) {
        return fail(error, HALYARD_ERROR_OVERLAP, "args.rows shares memory with the index of the angle source");
    }
    if (written.overlaps(checked.memory)) {
        return fail(error, HALYARD_ERROR_OVERLAP, "args.rows shares memory with positions.data");
    }
    status = check_positions(*angles, checked, *policy, n_batch, n_tokens, error);
    if (status != HALYARD_OK) {
        return status;
    }
    const std::int64_t n_pairs = angles->rotary_dim / 2;
    const std::int64_t end = end_of_share(n_batch * n_tokens, share);
    const RowBlock block = row_block(angles->rotary_dim);
    for (std::int64_t at = first_of_share(n_batch * n_tokens, share); at < end; at += block.n_tokens) {
        // Positions are read again, and another thread may have changed them: a bad one counts as 0.
        const RowTokens tokens = {&checked, *policy, n_tokens, at, std::min(block.n_tokens, end - at)};
        for (std::int64_t pair = 0; pair < n_pairs; pair += block.n_pairs) {
            make_rows(*angles, plan->row_kernels, tokens, pair, std::min(block.n_pairs, n_pairs - pair),
                      {given.rows + at * angles->rotary_dim + pair, angles->rotary_dim, n_pairs});
        }
    }
    return HALYARD_OK;
}

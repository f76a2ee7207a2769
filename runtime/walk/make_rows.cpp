// halyard_make_rows: writes rows of cos and sin into the caller's memory, for later runs.
#include "angles/angle_source.h"
#include "angles/linear.h"
#include "base/error.h"
#include "base/floats_out.h"
#include "base/share.h"
#include "base/versioned.h"
#include "walk/plan.h"
#include "walk/rows.h"

#include <algorithm>
#include <cstdint>
#include <optional>

using namespace halyard;

namespace {

/// Finds what the rows of a call span, and checks that there is room for them.
halyard_status read_memory(const halyard_rows_args &args, std::int64_t rotary_dim, MemoryRange *out,
                           halyard_error *error) noexcept {
    const FloatsOut rows = {args.rows, args.n_floats, "args.rows", "args.n_floats", "rows"};
    return find_floats_out(rows, {args.n_batch, args.n_tokens, rotary_dim}, out, error);
}

/// Makes the rows of an angle source.
halyard_status make_of_source(const halyard_plan &plan, const halyard_rows_args &args, BadPosition policy,
                              const Share &share, halyard_error *error) noexcept {
    const halyard_angle_source &angles = *args.angles;
    if (angles.rotary_dim != plan.rotary_dim) {
        return fail(error, HALYARD_ERROR_MISMATCH, "angles has a rotary_dim of ", angles.rotary_dim,
                    ", but the plan's is ", plan.rotary_dim);
    }
    if (angles.by_token) {
        return fail(error, HALYARD_ERROR_MISMATCH, "angles has rows by_token, which are made already");
    }
    CheckedPositions checked;
    MemoryRange written = {0, 0};
    HALYARD_TRY(read_positions(args.positions, args.n_batch, args.n_tokens, angles.axes.n_axes, &checked, error));
    HALYARD_TRY(read_memory(args, angles.rotary_dim, &written, error));
    const char *const shared = written.overlaps(angles.cos_memory) || written.overlaps(angles.sin_memory)
                                   ? "the rows of the angle source"
                               : written.overlaps(checked.memory) ? "positions.data"
                                                                  : nullptr;
    if (shared != nullptr) {
        return fail(error, HALYARD_ERROR_OVERLAP, "args.rows shares memory with ", shared);
    }
    HALYARD_TRY(check_positions(angles, checked, policy, {args.n_batch, args.n_tokens}, error));
    const std::int64_t n_pairs = angles.rotary_dim / 2;
    const std::int64_t end = end_of_share(args.n_batch * args.n_tokens, share);
    const RowBlock block = row_block(angles.rotary_dim);
    for (std::int64_t at = first_of_share(args.n_batch * args.n_tokens, share); at < end; at += block.n_tokens) {
        // Positions are read again, and another thread may have changed them: a bad one counts as 0.
        const RowTokens tokens = {&checked, policy, args.n_tokens, at, std::min(block.n_tokens, end - at)};
        for (std::int64_t pair = 0; pair < n_pairs; pair += block.n_pairs) {
            make_rows(angles, plan.row_kernels, tokens, pair, std::min(block.n_pairs, n_pairs - pair),
                      {args.rows + at * angles.rotary_dim + pair, angles.rotary_dim, n_pairs});
        }
    }
    return HALYARD_OK;
}

/// Makes the rows of linear angles.
halyard_status make_of_linear(const halyard_plan &plan, const halyard_rows_args &args, const Share &share,
                              halyard_error *error) noexcept {
    if (args.angles != nullptr || args.positions != nullptr || args.bad_position != 0) {
        const char *const name = args.angles != nullptr      ? "angles"
                                 : args.positions != nullptr ? "positions"
                                                             : "bad_position";
        return fail(error, HALYARD_ERROR_MISMATCH, "args.", name,
                    " is set, but args.linear brings angles and positions of its own");
    }
    LinearAngles linear;
    MemoryRange written = {0, 0};
    HALYARD_TRY(read_linear_angles(args.linear, plan.rotary_dim, args.n_batch, args.n_tokens, &linear, error));
    HALYARD_TRY(read_memory(args, plan.rotary_dim, &written, error));
    if (written.overlaps(linear.positions_memory) || written.overlaps(linear.matrix_memory)) {
        return fail(error, HALYARD_ERROR_OVERLAP, "args.rows shares memory with linear.",
                    written.overlaps(linear.positions_memory) ? "positions" : "matrix");
    }
    HALYARD_TRY(check_linear_angles(linear, args.n_batch, args.n_tokens, error));
    const std::int64_t n = args.n_batch * args.n_tokens;
    make_linear_rows(linear, plan.row_kernels, args.n_tokens, first_of_share(n, share), end_of_share(n, share),
                     args.rows);
    return HALYARD_OK;
}

}  // namespace

extern "C" halyard_status halyard_make_rows(const halyard_plan *plan, const halyard_rows_args *args,
                                            halyard_error *error) {
    HALYARD_TRY(check_error(error));
    HALYARD_TRY(check_given(plan, "plan", error));
    HALYARD_TRY(check_struct(args, "args", error));
    const halyard_rows_args &given = *args;
    if (given.angles == nullptr && given.linear == nullptr) {
        return fail_null(error, "args.angles");
    }
    const std::optional<BadPosition> policy = to_bad_position(given.bad_position);
    if (!policy) {
        return fail(error, HALYARD_ERROR_UNKNOWN_VALUE, "args.bad_position is ", given.bad_position,
                    ", but it must be HALYARD_BAD_POSITION_ERROR (0), _CLAMP (1) or _IDENTITY (2)");
    }
    if (given.n_batch < 0 || given.n_tokens < 0) {
        return fail(error, HALYARD_ERROR_SHAPE, "args.n_batch is ", given.n_batch, " and args.n_tokens is ",
                    given.n_tokens, ", but neither may be negative");
    }
    Share share = {0, 1};
    HALYARD_TRY(read_part(given.part, given.n_parts, false, &share, error));
    return given.linear != nullptr ? make_of_linear(*plan, given, share, error)
                                   : make_of_source(*plan, given, *policy, share, error);
}

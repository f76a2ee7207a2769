// halyard_make_rows: writes rows of cos and sin into the caller's memory, for later runs.
#include "angles/angle_source.h"
#include "angles/linear.h"
#include "base/error.h"
#include "base/floats_out.h"
#include "base/versioned.h"
#include "core/plan.h"
#include "core/rows.h"

#include <algorithm>
#include <cstdint>
#include <optional>

using namespace halyard;

namespace {

/// Sets *out to the addresses of the rows that a call writes, and checks that there is room for them.
halyard_status find_output_memory(const halyard_rows_args &args, std::int64_t rotary_dim, MemoryRange *out,
                                  halyard_error *error) noexcept {
    const FloatsOut rows = {args.rows, args.n_floats, "args.rows", "args.n_floats", "rows"};
    return find_floats_out(rows, {args.n_batch, args.n_tokens, rotary_dim}, out, error);
}

/// Makes the rows of an angle source.
halyard_status make_of_source(const halyard_plan &plan, const halyard_rows_args &args, BadPosition policy,
                              halyard_error *error) noexcept {
    const halyard_angle_source &angles = *args.angles;
    HALYARD_TRY(check_rotary_dim(angles, "angles", plan.rotary_dim, error));
    if (angles.by_token) {
        return fail(error, HALYARD_ERROR_MISMATCH, "angles has rows by_token, which are made already");
    }
    Positions positions;
    MemoryRange written = {0, 0}, read = {0, 0};
    HALYARD_TRY(bind_positions(args.positions, args.n_batch, args.n_tokens, angles.axes.n_axes, "positions", &positions,
                               error));
    HALYARD_TRY(find_output_memory(args, angles.rotary_dim, &written, error));
    const RowInput input = {&angles, &positions, args.positions == nullptr ? nullptr : args.positions->data, policy};
    if (!find_range(input.position_data, positions.reach, &read)) {
        return fail(error, HALYARD_ERROR_OVERFLOW, "positions.data leaves the address space");
    }
    const char *const shared = written.overlaps(angles.cos_memory) || written.overlaps(angles.sin_memory)
                                   ? "the rows of the angle source"
                               : written.overlaps(read) ? "positions.data"
                                                        : nullptr;
    if (shared != nullptr) {
        return fail(error, HALYARD_ERROR_OVERLAP, "args.rows shares memory with ", shared);
    }
    const std::int64_t n_pairs = angles.rotary_dim / 2, end = positions.count();
    if (end == 0) {
        return HALYARD_OK;
    }
    HALYARD_TRY(check_positions(input, nullptr, error));
    const RowBlock block = row_block(angles.rotary_dim);
    for (std::int64_t at = 0; at < end; at += block.n_tokens) {
        for (std::int64_t pair = 0; pair < n_pairs; pair += block.n_pairs) {
            make_rows(input, plan.row_kernels, at, std::min(block.n_tokens, end - at), pair,
                      std::min(block.n_pairs, n_pairs - pair),
                      {args.rows + at * angles.rotary_dim + pair, angles.rotary_dim, n_pairs});
        }
    }
    return HALYARD_OK;
}

/// Writes the rows of linear angles, [token][cos, sin][pair]. All batch rows together have n_tokens tokens, and each
/// batch row has tokens_in_batch.
void make_linear_rows(const LinearAngles &linear, const RowKernels &kernels, std::int64_t tokens_in_batch,
                      std::int64_t n_tokens, float *rows) {
    const std::int64_t stride = 2 * linear.n_pairs;
    for (std::int64_t pair = 0; pair < linear.n_pairs; pair += LinearPairs::most) {
        const std::int64_t n = std::min(linear.n_pairs - pair, LinearPairs::most);
        const LinearPairs pairs(linear, pair, n);
        for (std::int64_t at = 0; at < n_tokens; at++) {
            std::uint32_t turns[LinearPairs::most];
            pairs.find_turns(at / tokens_in_batch, at % tokens_in_batch, turns);
            make_row_of_turns(turns, linear.attention_factor, kernels, n,
                              {rows + at * stride + pair, stride, linear.n_pairs});
        }
    }
}

/// Checks linear angles, and makes their rows.
halyard_status make_of_linear(const halyard_plan &plan, const halyard_rows_args &args, halyard_error *error) noexcept {
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
    HALYARD_TRY(find_output_memory(args, plan.rotary_dim, &written, error));
    if (written.overlaps(linear.positions_memory) || written.overlaps(linear.matrix_memory)) {
        return fail(error, HALYARD_ERROR_OVERLAP, "args.rows shares memory with linear.",
                    written.overlaps(linear.positions_memory) ? "positions" : "matrix");
    }
    HALYARD_TRY(check_linear_angles(linear, args.n_batch, args.n_tokens, error));
    make_linear_rows(linear, plan.row_kernels, args.n_tokens, args.n_batch * args.n_tokens, args.rows);
    return HALYARD_OK;
}

}  // namespace

extern "C" halyard_status halyard_make_rows(const halyard_plan *plan, const halyard_rows_args *args,
                                            halyard_error *error) {
    HALYARD_TRY(check_error_size(error));
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
    return given.linear != nullptr ? make_of_linear(*plan, given, error) : make_of_source(*plan, given, *policy, error);
}

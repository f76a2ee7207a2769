// How a run's tokens are shared out to launches.
#pragma once

#include "base/error.h"
#include "gpu/read_gpu_run.h"

namespace halyard::gpu {

/// Launches, and the tokens that each takes. Batch rows are joined where they follow each other as tokens do.
struct Block {
    std::int64_t n_batch, n_tokens;
};

/// Whether what each token has follows from batch row to batch row as from token to token.
inline bool rows_follow(const TokenNumbers &tokens, std::int64_t stride_batch, std::int64_t stride_token) {
    return tokens.n_batch == 1 || stride_batch == tokens.n_tokens * stride_token;
}

/// can_join: whether tensors, and what else tokens have beside positions, follow so.
inline Block split(const Positions &positions, bool can_join) {
    can_join =
        can_join && !positions.is_consecutive && rows_follow(positions, positions.stride_batch, positions.stride_token);
    return can_join ? Block{1, positions.count()} : Block{positions.n_batch, positions.n_tokens};
}

/// The positions or slots of a batch row's tokens, on one axis.
inline LaunchPositions numbers_of(const TokenNumbers &numbers, Address place, std::int64_t batch) {
    return {moved(place, batch * numbers.stride_batch * numbers.element_bytes()),
            numbers.is_int64 ? 2 : 1,
            0,
            numbers.is_consecutive ? 1 : 0,
            numbers.stride_token,
            0};
}

inline LaunchPositions positions_of(const GpuRun &run, std::int64_t batch) {
    const Positions &given = run.program.positions;
    LaunchPositions positions = numbers_of(
        given, given.is_given ? address_of(run.pointers->all.positions) : counted_positions(*run.launch.angles), batch);
    positions.stride_axis = given.stride_axis;
    return positions;
}

/// Refuses positions that cannot be read.
inline halyard_status check_positions_of(const GpuRun &run, halyard_error *error) {
    const char *const reason = why_not(positions_of(run, 0), run.launch.angles->source.axes.n_axes);
    return reason[0] == '\0' ? HALYARD_OK : fail(error, HALYARD_ERROR_UNSUPPORTED, "positions ", reason);
}

}  // namespace halyard::gpu

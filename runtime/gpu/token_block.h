// How a run's tokens are shared out to launches.
#pragma once

#include "base/error.h"
#include "gpu/read_gpu_run.h"

namespace halyard::gpu {

/// Tokens that one launch can take. Batch rows are joined where they follow each other as tokens do.
struct Block {
    std::int64_t n_batch;  // launches
    std::int64_t n_tokens;
    bool is_joined;
};

inline Block split(const Run &run, const RunTensor &tensor) {
    const CheckedPositions &positions = run.positions;
    if (run.n_batch == 1) {
        return {1, run.n_tokens, false};
    }
    const bool is_dense =
        tensor.in.batch == run.n_tokens * tensor.in.token && tensor.out.batch == run.n_tokens * tensor.out.token;
    const bool has_dense_positions =
        !positions.consecutive && positions.stride_batch == run.n_tokens * positions.stride_token;
    return run.n_tokens == 1 || (is_dense && has_dense_positions) ? Block{1, run.n_batch * run.n_tokens, true}
                                                                  : Block{run.n_batch, run.n_tokens, false};
}

/// The strides of heads whose tokens, one of each batch row, may be joined.
inline RunTensor::Strides strides_in_block(const Run &run, RunTensor::Strides strides) {
    if (run.n_tokens == 1) {
        strides.token = strides.batch;
    }
    return strides;
}

/// The positions or slots of a batch row's tokens, on one axis.
inline LaunchPositions numbers_of(const Run &run, const TokenNumbers &numbers, const Block &block, std::int64_t batch) {
    const bool one_each = run.n_tokens == 1 && block.is_joined;
    const std::int64_t stride_token = one_each ? numbers.stride_batch : numbers.consecutive ? 0 : numbers.stride_token;
    return {moved(address_of(numbers.data), batch * numbers.stride_batch * numbers.element_bytes()),
            numbers.is_int64 ? 2 : 1,
            0,
            numbers.consecutive && !one_each ? 1 : 0,
            stride_token,
            0};
}

inline LaunchPositions positions_of(const GpuRun &arguments, const Block &block, std::int64_t batch) {
    const CheckedPositions &given = arguments.run.positions;
    LaunchPositions positions = numbers_of(arguments.run, given, block, batch);
    if (given.data == nullptr) {
        return {counted_positions(*arguments.launch.angles), 1, 0, positions.step, 0, 0};
    }
    positions.stride_axis = given.stride_axis;
    return positions;
}

/// Refuses positions that cannot be read.
inline halyard_status check_positions_of(const GpuRun &arguments, const Block &block, halyard_error *error) {
    const char *const reason = why_not(positions_of(arguments, block, 0), arguments.launch.angles->source.axes.n_axes);
    return reason[0] == '\0' ? HALYARD_OK : fail(error, HALYARD_ERROR_UNSUPPORTED, "positions ", reason);
}

}  // namespace halyard::gpu

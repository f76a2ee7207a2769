// A run's arguments, checked as the CPU's are, and the memory that they name.
#pragma once

#include "core/memory.h"
#include "cuda/cuda_plan.h"
#include "cuda/launch.h"
#include "kv/program.h"

#include <optional>

namespace halyard::cuda {

/// A run's arguments once they are checked. Its addresses are those of the device.
struct CudaRun {
    halyard_cuda_run_args given;
    Launch launch;
    Program program;
    KvProgram kv;
    std::optional<RunPointers> pointers;
    KvPointers arrays;

    const char *data(int tensor, Array array) const { return arrays.of_tensor[tensor][static_cast<int>(array)]; }

    /// The positions, and the slots, of a batch row's tokens.
    LaunchPositions positions(std::int64_t batch) const;
    LaunchPositions slots(std::int64_t batch) const;
};

/// Fills in *out or fails.
halyard_status read_cuda_run(const halyard_cuda_plan &plan, const halyard_cuda_run_args *args, CudaRun *out,
                            halyard_error *error) noexcept;

}  // namespace halyard::cuda

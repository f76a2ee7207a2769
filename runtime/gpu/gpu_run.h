// A run's arguments, checked as the CPU's are, and the memory that they name.
#pragma once

#include "core/memory.h"
#include "gpu/gpu_plan.h"
#include "gpu/launch.h"
#include "kv/program.h"

#include <optional>

namespace halyard::gpu {

/// A run's arguments once they are checked. Its addresses are those of the device.
struct GpuRun {
    halyard_gpu_run_args given;
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
halyard_status read_gpu_run(const halyard_gpu_plan &plan, const halyard_gpu_run_args *args, GpuRun *out,
                            halyard_error *error) noexcept;

}  // namespace halyard::gpu

// A run's arguments, checked as the CPU's are (read_run.h), and the memory that they name.
#pragma once

#include "gpu/gpu_plan.h"
#include "gpu/launch.h"
#include "read/read_run.h"

namespace halyard::gpu {

/// A run's arguments once they are checked. Its addresses are those of the device.
struct GpuRun {
    halyard_gpu_run_args given;
    Run run;
    Launch launch;
    Spans spans;
};

/// Fills in *out or fails.
halyard_status read_gpu_run(const halyard_gpu_plan &plan, const halyard_gpu_run_args *args, GpuRun *out,
                            halyard_error *error) noexcept;

}  // namespace halyard::gpu

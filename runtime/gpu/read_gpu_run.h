// A run's arguments, checked as the CPU's are (read_run.h), and the memory that they name.
#pragma once

#include "gpu/gpu_plan.h"
#include "gpu/launch.h"
#include "read/read_run.h"

namespace halyard::gpu {

/// A run's arguments once they are checked.
struct GpuRun {
    halyard_gpu_run_args given;
    Run run;
    Launch launch;
    halyard_gpu_queue queue;
    Location positions;
    Location error_word;
    Location x[HALYARD_MAX_TENSORS], y[HALYARD_MAX_TENSORS];  // of a tensor with a cache, y is that
    Location weights[HALYARD_MAX_TENSORS], group_scales[HALYARD_MAX_TENSORS];
    Location slots;
    Spans spans;  // addresses, or with OpenCL numbers that stand for them
};

/// Fills in *out, which must stay where it is because its launch points into it, or fails.
halyard_status read_gpu_run(const halyard_gpu_plan &plan, const halyard_gpu_run_args *args, GpuRun *out,
                            halyard_error *error) noexcept;

}  // namespace halyard::gpu

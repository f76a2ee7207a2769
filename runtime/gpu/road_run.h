// What a run of a plan that has more than rotations launches.
#pragma once

#include "gpu/read_gpu_run.h"

namespace halyard::gpu {

/// Refuses what no kernel of a device does, of a plan that was read.
halyard_status check_road_plan(const halyard_plan &plan, halyard_error *error) noexcept;

/// Refuses what cannot be launched.
halyard_status check_road(const GpuRun &run, halyard_error *error) noexcept;

/// Enqueues all tensors: in one launch for each batch row that needs its own, if they can share it.
int enqueue_road(const GpuRun &run, Call &call) noexcept;

}  // namespace halyard::gpu

// What a run of a plan that has more than rotations launches.
#pragma once

#include "gpu/read_gpu_run.h"

namespace halyard::gpu {

/// Refuses what no kernel of a device does: `plan` is a description that was checked.
halyard_status check_road_plan(const PlanDesc &plan, halyard_error *error) noexcept;

/// Refuses what cannot be launched.
halyard_status check_road(const GpuRun &arguments, halyard_error *error) noexcept;

/// Enqueues all tensors: in one launch for each batch row that needs its own, if they can share it.
int enqueue_road(const GpuRun &arguments, Call &call) noexcept;

}  // namespace halyard::gpu

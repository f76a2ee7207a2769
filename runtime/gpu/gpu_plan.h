// A plan for a device.
#pragma once

#include "gpu/gpu_angles.h"
#include "gpu/kv_launch.h"

struct halyard_gpu_plan {
    halyard_gpu_queue queue;
    const halyard_gpu_angles *angles;
    halyard_plan checks;  // what a run checks its tensors against; it has none of the CPU's kernels
    halyard::gpu::KvLaunch launches[HALYARD_MAX_TENSORS];  // of a plan with stages
    int n_launches;
    halyard_gpu_plan *next;  // in the list of all plans
};

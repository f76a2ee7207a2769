// A plan for a device.
#pragma once

#include "cuda/cuda_angles.h"
#include "cuda/kv_launch.h"

struct halyard_cuda_plan {
    halyard_cuda_queue queue;
    const halyard_cuda_angles *angles;
    halyard_plan checks;  // what a run checks its tensors against; it has none of the CPU's kernels
    halyard::cuda::KvLaunch launches[HALYARD_MAX_TENSORS];  // of a plan with stages
    int n_launches;
    halyard_cuda_plan *next;  // in the list of all plans
};

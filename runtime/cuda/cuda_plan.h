// A plan for a CUDA device.
#pragma once

#include "cuda/cuda_angles.h"
#include "cuda/kv_launch.h"

struct halyard_cuda_plan {
    halyard_cuda_queue queue;
    const halyard_cuda_angles *angles;
    halyard_plan checks;  // the plan by which a run's arguments are checked; without kernels, which are the CPU's
    halyard::cuda::KvLaunch launches[HALYARD_MAX_TENSORS];  // only for a plan with stages
    int n_launches;
    halyard_cuda_plan *next;  // in the list of all plans
};

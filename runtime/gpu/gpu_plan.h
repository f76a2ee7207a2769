// A plan for a device.
#pragma once

#include "gpu/gpu_angles.h"
#include "kv/plan.h"

struct halyard_gpu_plan {
    halyard_gpu_queue queue;
    const halyard_gpu_angles *angles;
    halyard_plan checks;     // what a run checks its tensors against; it has none of the CPU's kernels
    halyard_gpu_plan *next;  // in the list of all plans
};

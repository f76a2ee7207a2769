// A plan for a device.
#pragma once

#include "gpu/gpu_angles.h"
#include "read/plan_desc.h"

#include <cstdint>

struct halyard_gpu_plan {
    halyard_gpu_queue queue;
    const halyard_gpu_angles *angles;
    halyard::PlanDesc checks;  // what a run checks its tensors against
    halyard_gpu_plan *next;    // in the list of all plans
};

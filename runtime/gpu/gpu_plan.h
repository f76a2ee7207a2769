// A plan for a device: the CPU's plan of the same description, which checks, and what launches need.
#pragma once

#include "gpu/gpu_angles.h"
#include "rotate/plan.h"

#include <cstdint>

struct halyard_gpu_plan {
    halyard_gpu_queue queue;
    const halyard_gpu_angles *angles;
    halyard_plan *checks;  // what a run checks its tensors against
    std::uint64_t part_alignment;
    halyard_gpu_plan *next;  // in the list of all plans
};

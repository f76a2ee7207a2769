#pragma once

#include "checks/model.h"

#include <vector>

/// The stage kernels of every target that this machine has, and the model.
inline std::vector<halyard::StageKernels> stage_kernels_here() {
    std::vector<halyard::StageKernels> all = {model::stage_kernels};
    for (std::int32_t i = 0; i < halyard::n_targets; i++) {
        const halyard::TargetSet target = halyard::supported_targets() & halyard::bit(halyard::Target(i));
        if (const halyard::StageKernels *const kernels = halyard::find_stage_kernels(target)) {
            all.push_back(*kernels);
        }
    }
    return all;
}

#pragma once

#include "halyard/halyard.hpp"
#include "walk/dispatch.h"

#include <vector>

/// The stage kernels of every target that this machine has, the reference included.
inline std::vector<halyard::StageKernels> stage_kernels_here() {
    std::vector<halyard::StageKernels> all;
    int target = 0;
    for (const halyard_target_info &info : halyard::targets()) {
        if (info.built != 0 && info.supported != 0) {
            all.push_back(halyard::select_stage_kernels(halyard::bit(halyard::Target(target))));
        }
        target++;
    }
    return all;
}

// A run of which everything but its pointers was checked.
#pragma once

#include "rotate/read_run.h"

namespace halyard {

/// How far an array reaches from its first element, in bytes.
struct Reach {
    std::uintptr_t below, above;
};

/// How far what a run brings for a tensor's stages reaches; nowhere where it brings nothing.
struct StagesReach {
    Reach weight, scales, scales_out, cache;
};

/// A tensor of a run that one call of a kernel does, as the kernel sees it: everything but the addresses.
struct PreparedTensor {
    halyard_dimension x[4], y[4];
    std::int64_t window;  // in bytes, from y's first element on; out of place the window is the whole head
};

}  // namespace halyard

struct halyard_bound_run {
    halyard::Run run;
    halyard_tensor x[HALYARD_MAX_TENSORS], y[HALYARD_MAX_TENSORS];
    halyard::Reach x_reach[HALYARD_MAX_TENSORS], y_reach[HALYARD_MAX_TENSORS], positions_reach, from_positions_reach,
        slots_reach;
    halyard::StagesReach stages_reach[HALYARD_MAX_TENSORS];

    // Where a call of one kernel for each tensor does it all.
    bool is_prepared;
    halyard_dimension rows[1], row[2];
    halyard::PreparedTensor prepared[HALYARD_MAX_TENSORS];
};

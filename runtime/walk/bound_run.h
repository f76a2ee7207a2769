// A run of which everything but its pointers was checked.
#pragma once

#include "read/read_bound.h"
#include "walk/kernel_abi.h"

namespace halyard {

/// A tensor of a run that one call of a kernel does, as the kernel sees it: everything but the addresses.
struct PreparedTensor {
    halyard_dimension x[4], y[4];
    std::int64_t window;  // in bytes, from y's first element on; out of place the window is the whole head
};

}  // namespace halyard

struct halyard_bound_run : halyard::Bound {
    // Where a call of one kernel for each tensor does it all.
    bool is_prepared;
    halyard_dimension rows[1], row[2];
    halyard::PreparedTensor prepared[HALYARD_MAX_TENSORS];
};

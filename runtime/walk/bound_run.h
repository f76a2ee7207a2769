// A run whose arguments are checked, all but the pointers that each call brings.
#pragma once

#include "read/read_bound.h"
#include "walk/kernel_abi.h"

namespace halyard {

/// The operands of a prepared kernel's call for one tensor, all but the addresses.
struct PreparedTensor {
    halyard_dimension x[4], y[4];
    std::int64_t window;  // in bytes, from y's first element on; out of place the window is the whole head
};

}  // namespace halyard

struct halyard_bound_run : halyard::Bound {
    // For runs that take one kernel's call for each tensor.
    bool is_prepared;
    halyard_dimension rows[1], row[2];
    halyard::PreparedTensor prepared[HALYARD_MAX_TENSORS];
};

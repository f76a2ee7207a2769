// The bit-exact model of the kernels: what each computes, as a loop in plain C++ with std::fma. Its functions are
// called as kernels are: see core/kernel_abi.h.
#pragma once

#include "core/kernels.h"
#include "halyard/halyard.hpp"
#include "kv/stage_kernels.h"

namespace model {

/// A function for each kernel of a stage, in the name of the reference.
extern const halyard::StageKernels stage_kernels;

/// Rotates elements of a dtype (index_of) in any layout. In place x is y.
extern halyard_rotate_kernel *const rotations[halyard::n_input_dtypes];

/// Makes rows of cos and sin.
halyard_rows_phase_kernel rows_phase;

/// A plan of any target whose steps call the model instead of kernels.
halyard::plan make_plan(halyard_plan_desc desc);

}  // namespace model

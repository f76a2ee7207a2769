// The bit-exact model of the kernels: each is a loop in plain C++ with std::fma. The model's functions have the
// kernels' signatures: see core/kernel_abi.h.
#pragma once

#include "core/kernels.h"
#include "halyard/halyard.hpp"
#include "kv/stage_kernels.h"

namespace model {

/// The models of the KV stages' kernels, as a table like those of a target's kernels: a plan can call them instead.
extern const halyard::StageKernels stage_kernels;

/// Rotate elements of any layout, in place if x is y. Indexed by halyard::index_of(dtype).
extern halyard_rotate_kernel *const rotations[halyard::n_input_dtypes];

/// Makes rows of cos and sin.
halyard_rows_phase_kernel rows_phase;

/// A plan of any target whose steps call the model instead of kernels.
halyard::plan make_plan(halyard_plan_desc desc);

}  // namespace model

// The kernels of the stages beside the rotation.
#pragma once

#include "base/storage.h"
#include "core/kernel_abi.h"
#include "core/targets.h"

namespace halyard {

/// A target's kernels: an array for each stage, with an entry for each dtype (index_of). Only these entries are NULL:
/// widen_norm of f32 (norm serves it), largest, range, hadamard and butterfly of other dtypes than f32, quantise of
/// others than e4m3 and int8, store_groups and load_groups of others than int8.
struct StageKernels {
    Target target;
    halyard_widen_kernel *widen[n_dtypes];
    halyard_norm_kernel *norm[n_input_dtypes];
    halyard_widen_norm_kernel *widen_norm[n_input_dtypes];
    halyard_layer_norm_kernel *layer_norm[n_input_dtypes];
    halyard_norm_rotate_kernel *norm_rotate[n_input_dtypes];
    halyard_narrow_kernel *narrow[n_dtypes];
    halyard_largest_kernel *largest[n_input_dtypes];
    halyard_range_kernel *range[n_input_dtypes];
    halyard_quantise_kernel *quantise[n_dtypes];
    halyard_store_groups_kernel *store_groups[n_dtypes];
    halyard_load_groups_kernel *load_groups[n_dtypes];
    halyard_hadamard_kernel *hadamard[n_input_dtypes];
    halyard_butterfly_kernel *butterfly[n_input_dtypes];
};

/// The kernels of the best allowed target that has some; NULL if none has.
const StageKernels *find_stage_kernels(TargetSet allowed) noexcept;

}  // namespace halyard

// Chooses the kernel of each tensor of a run by how the tensor lies in memory.
#pragma once

#include "read/read_run.h"
#include "walk/plan.h"

namespace halyard {

/// The plan of a run. (Every PlanDesc that a run is read with is a halyard_plan.)
inline const halyard_plan &plan_of(const Run &run) noexcept { return static_cast<const halyard_plan &>(*run.plan); }

/// The kernel of a tensor that lies so, whose tokens are out_token elements apart.
const Kernel &choose_kernel(const Run &run, int index, const RunTensor &tensor, std::int64_t out_token,
                            Place place) noexcept;

/// Chooses the kernels of a run that was read.
void choose_kernels(Run &run) noexcept;

/// Whether outputs are large enough for non-temporal stores. Their addresses matter then, so a bound run that brings
/// other outputs must call choose_non_temporal again.
inline bool may_be_non_temporal(const Run &run) noexcept {
    return run.written_apart >> 20 >= static_cast<std::uintptr_t>(least_non_temporal_mib);
}

/// Chooses between kernels for ordinary and for non-temporal outputs by where the outputs lie.
void choose_non_temporal(Run &run) noexcept;

}  // namespace halyard

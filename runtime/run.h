// One call of halyard_run: its arguments once they are checked.
#pragma once

#include "angles.h"
#include "plan.h"

namespace halyard {

struct Run {
    const halyard_plan *plan;
    const halyard_angle_source *angles;
    Positions positions;
    std::int32_t bad_position;
    std::int64_t n_batch, n_tokens;
    halyard_tensor x[HALYARD_MAX_TENSORS], y[HALYARD_MAX_TENSORS];  // the stride of a dimension of size 1 is 0
    const Kernel *kernels[HALYARD_MAX_TENSORS];
    bool in_place[HALYARD_MAX_TENSORS];
    bool is_empty;  // no tensor has an element
    halyard_executor executor;  // n_threads is 0 when there is none
};

/// Checks everything but whether the angle source covers the positions.
halyard_status read_run(const halyard_plan *plan, const halyard_run_args *args, Run *run,
                        halyard_error *error) noexcept;

}  // namespace halyard

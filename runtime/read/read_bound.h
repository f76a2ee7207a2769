// Bound runs: a run whose arguments are checked, and the pointers that each call brings.
#pragma once

#include "read/read_run.h"

namespace halyard {

/// How far an array reaches from its first element, in bytes.
struct Reach {
    std::uintptr_t below, above;
};

struct Bound {
    Run run;
    halyard_tensor x[HALYARD_MAX_TENSORS], y[HALYARD_MAX_TENSORS];
    Reach x_reach[HALYARD_MAX_TENSORS], y_reach[HALYARD_MAX_TENSORS], positions_reach, from_positions_reach,
        slots_reach;
    Reach stages_reach[HALYARD_MAX_TENSORS][n_stage_arrays];  // 0 where there is no such array
};

/// Notes how far the arrays of a run reach. The run was read from these arguments.
void note_reaches(const halyard_run_args &args, const Spans &spans, Bound &bound) noexcept;

/// What a call brings beside its run.
struct Brought {
    const halyard_angle_source *angles;
    CheckedPositions positions;
    Spans spans;
    bool is_apart;  // no spans meet; false if stages are still to be read
};

/// Reads the angles, tensors and positions that this call brings, and checks them.
halyard_status read_bound(const Bound &bound, const halyard_bound_run_args &given, Brought *out,
                          halyard_error *error) noexcept;

/// Reads and checks the rest that this call brings: from_positions, slots and the pointers of stages.
halyard_status read_bound_stages(const Bound &bound, const halyard_bound_run_args &given, Run &run, Spans &spans,
                                 halyard_error *error) noexcept;

/// Checks elements where spans overlap, because they may be apart: slices of a packed buffer are.
halyard_status check_bound_elements(const Bound &bound, const halyard_bound_run_args &given, const Run &run,
                                    const Spans &spans, halyard_error *error) noexcept;

}  // namespace halyard

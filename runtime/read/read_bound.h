// A run of which everything but its pointers was checked, and what each call of it brings.
#pragma once

#include "read/read_run.h"

namespace halyard {

/// How far an array reaches from its first element, in bytes.
struct Reach {
    std::uintptr_t below, above;
};

/// How far what a run brings for a tensor's stages reaches; nowhere where it brings nothing.
struct StagesReach {
    Reach weight, scales, scales_out, cache;
};

struct Bound {
    Run run;
    halyard_tensor x[HALYARD_MAX_TENSORS], y[HALYARD_MAX_TENSORS];
    Reach x_reach[HALYARD_MAX_TENSORS], y_reach[HALYARD_MAX_TENSORS], positions_reach, from_positions_reach,
        slots_reach;
    StagesReach stages_reach[HALYARD_MAX_TENSORS];
};

/// Notes how far the arrays of a run reach that was read from these arguments.
void note_reaches(const halyard_run_args &args, const Spans &spans, Bound &bound) noexcept;

/// What a call brings that does not lie in its run.
struct Brought {
    const halyard_angle_source *angles;
    CheckedPositions positions;
    Spans spans;
    bool is_apart;  // no spans meet; false, too, where stages have not been read yet
};

/// Reads the angles, tensors and positions that this call brings, and checks them.
halyard_status read_bound(const Bound &bound, const halyard_bound_run_args &given, Brought *out,
                          halyard_error *error) noexcept;

/// Reads what else this call brings: the positions that keys move from, the slots, and where the stages lie.
halyard_status read_bound_stages(const Bound &bound, const halyard_bound_run_args &given, Run &run, Spans &spans,
                                 halyard_error *error) noexcept;

/// Looks closer where spans overlap: elements may still be apart, as those of a packed buffer's slices are.
halyard_status check_bound_elements(const Bound &bound, const halyard_bound_run_args &given, const Run &run,
                                    const Spans &spans, halyard_error *error) noexcept;

}  // namespace halyard

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

/// Which angles this call reads: those that the run was bound with, or rows that lie elsewhere.
halyard_status read_bound_angles(const Bound &bound, const halyard_bound_run_args &given,
                                 const halyard_angle_source **out, halyard_error *error) noexcept;

/// Reads where the tensors lie this time, and checks that.
halyard_status read_bound_tensors(const Bound &bound, const halyard_bound_run_args &given, Spans &spans,
                                  halyard_error *error) noexcept;

/// Reads the slots that this call brings, and where its stages lie.
halyard_status read_bound_stages(const Bound &bound, const halyard_bound_run_args &given, Run &run, Spans &spans,
                                 halyard_error *error) noexcept;

/// The positions that this call brings, with their range of memory.
halyard_status read_bound_positions(const Bound &bound, const void *data, const char *name, const Reach &reach,
                                    CheckedPositions &positions, halyard_error *error) noexcept;

/// Looks closer where spans overlap: elements may still be apart, as those of a packed buffer's slices are.
halyard_status check_bound_elements(const Bound &bound, const halyard_bound_run_args &given, const Run &run,
                                    const Spans &spans, halyard_error *error) noexcept;

}  // namespace halyard

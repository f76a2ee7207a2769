// Reads and checks a run's slots and stages: weights, scales and caches.
#pragma once

#include "read/read_run.h"

namespace halyard {

/// The arrays that a call brings for a tensor's stages, by StageArray. They differ from layer to layer.
using StagePointers = const void *[n_stage_arrays];

/// Sets and checks the arrays of a tensor's stages. Strides were read before.
halyard_status place_stages(const StagePointers &given, int index, Run &run, Spans &spans,
                            halyard_error *error) noexcept;

/// Checks the values of static scales, if a tensor has them. Their number was checked before.
halyard_status check_static_scales(const Run &run, int index, halyard_error *error) noexcept;

/// Checks the values of scales by position, if a tensor has them.
halyard_status check_position_scales(const Run &run, int index, halyard_error *error) noexcept;

/// Checks the dynamic scales of keys that move, if a tensor has them. Slots were checked before.
halyard_status check_moved_scales(const Run &run, int index, halyard_error *error) noexcept;

/// Reads slots and stages for a run whose tensors were read. Each may be NULL.
halyard_status read_stages(const halyard_slots *slots, const halyard_stages *stages, Run &run, Spans &spans,
                           halyard_error *error) noexcept;

}  // namespace halyard

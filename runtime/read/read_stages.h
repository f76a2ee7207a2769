// Checks what a run brings for the stages of its plan, and for caches.
#pragma once

#include "read/read_run.h"

namespace halyard {

/// Where a call's stages lie in memory: the part of a RunStages that differs from layer to layer.
struct StagePointers {
    const void *weight;
    const float *scales;
    float *scales_out;
    void *cache;
};

/// Sets where a tensor's stages lie, and checks that. Strides were read before.
halyard_status place_stages(const StagePointers &given, int index, Run &run, Spans &spans,
                            halyard_error *error) noexcept;

/// Checks what static scales hold, if a tensor has them. Their number was checked before.
halyard_status check_static_scales(const Run &run, int index, halyard_error *error) noexcept;

/// Checks the dynamic scales of keys that move, if a tensor has them. Slots were checked before.
halyard_status check_moved_scales(const Run &run, int index, halyard_error *error) noexcept;

/// Reads slots and stages, of which each may be NULL, for a run whose tensors were read.
halyard_status read_stages(const halyard_slots *slots, const halyard_stages *stages, Run &run, Spans &spans,
                           halyard_error *error) noexcept;

}  // namespace halyard

// Measured on a Zen 4 (EPYC 9004, 2 cores, 3.67 GHz), 2026-11-21, ./run demo: one thread, 64 tokens x 40 heads x 128,
// in place, f32, as a fraction of an in-place multiply's speed. With AVX-512 half .95 and interleaved .92; with AVX2
// half .95 and interleaved .79, and at 4096 tokens .96 and .92, where steps of 16 reached .46 and .42.
#pragma once

#include "schedule.h"

namespace halyard {

/// Other sizes than the known ones have masked tails.
inline void schedule_x86(Halide::Func y, Halide::Func angle, const Loops &loops, const Steps &steps) {
    for (const int extent : known_extents(loops)) {
        const int step = fit(steps.fixed, extent, steps);
        const int vector = fit(steps.vector, step, steps);
        schedule_size(y, angle, loops, steps, y.output_buffer().dim(0).extent() == extent, step, vector);
    }
    schedule_size(y, angle, loops, steps, Halide::Expr(), steps.any, steps.any);
    place_rows(y, angle, loops, steps);
}

inline void schedule_rows_x86(Halide::Func rows, const Halide::Var &pair, const Halide::Var &token, int step) {
    make_rows_in_steps(rows.update(), pair, token, step);
}

}  // namespace halyard

// Modelled, not measured: no ARM machine was at hand. Cycles per pair over those of a compiled C loop, mean and worst
// of 18 kernels: Cortex-A53 .46 .63, A55 .53 .73, Neoverse N1 .87 1.00, V2 .90 1.09; over those of loops that clang
// makes with SVE: N2 .96 1.13, V1 .94 1.20 (llvm-mca 19.1.7, 2026-11-21, ./run bench modelled). Proven right on an
// emulated Cortex-A53.
#pragma once

#include "schedule.h"

namespace halyard {

/// NEON has no masks, so a guarded tail would be a branch for each lane. Sizes that are multiples of a vector are done
/// in whole vectors, and all others element by element.
inline void schedule_arm(Halide::Func y, Halide::Func angle, const Loops &loops, const Steps &steps) {
    const Halide::Expr extent = y.output_buffer().dim(0).extent();
    for (const int known : known_extents(loops)) {
        const int step = fit(steps.fixed, known, steps);
        schedule_size(y, angle, loops, steps, extent == known, step, fit(steps.vector, step, steps));
    }
    if (!loops.gathered) {
        schedule_size(y, angle, loops, steps, extent % steps.any == 0, steps.any, steps.any);
    }
    schedule_size(y, angle, loops, steps, Halide::Expr(), 1, 1);
    place_rows(y, angle, loops, steps);
}

inline void schedule_rows_arm(Halide::Func rows, const Halide::Var &pair, const Halide::Var &token, int step) {
    make_rows_in_steps(rows.update().specialize(rows.output_buffer().dim(0).extent() % step == 0), pair, token, step);
    make_rows_in_steps(rows.update(), pair, token, 1);
}

}  // namespace halyard

// Modelled, not measured: no ARM machine was at hand. Cycles per pair over those of a compiled C loop, mean and worst
// of 18 kernels: Cortex-A53 .46 .63, A55 .53 .73, Neoverse N1 .87 1.00, V2 .90 1.09; over those of loops that clang
// makes with SVE: N2 .96 1.13, V1 .94 1.20 (llvm-mca 19.1.7, 2026-11-21, ./run bench modelled). Proven right on an
// emulated Cortex-A53.
#pragma once

#include "schedule.h"

namespace halyard {

/// NEON has no masks, and a guarded tail would be a branch for each lane. So sizes that whole vectors of four divide go
/// in such vectors, and the others element by element.
inline void schedule_arm(Halide::Func y, Halide::Func angle, const Loops &loops, const Steps &steps) {
    Halide::Stage update = y.update();
    const Halide::Expr extent = y.output_buffer().dim(0).extent();
    for (const int known : loops.known_extents) {
        const int step = fit(steps.fixed, known);
        rotate_in_steps(update.specialize(extent == known), loops, step, fit(steps.vector, step));
        read_rows_in_steps(angle.specialize(extent == known), loops, step);
    }
    if (!loops.gathered) {
        const Halide::Expr is_whole = extent % steps.any == 0;
        rotate_in_steps(update.specialize(is_whole), loops, steps.any, steps.any);
        read_rows_in_steps(angle.specialize(is_whole), loops, steps.any);
    }
    rotate_in_steps(update, loops, 1, 1);
    read_rows_in_steps(angle, loops, 1);
    place_rows(y, angle, loops, std::max(steps.fixed, steps.any));
}

inline void schedule_rows_arm(Halide::Func rows, const Halide::Var &pair, const Halide::Var &token, int step) {
    make_rows_in_steps(rows.update().specialize(rows.output_buffer().dim(0).extent() % step == 0), pair, token, step);
    make_rows_in_steps(rows.update(), pair, token, 1);
}

}  // namespace halyard

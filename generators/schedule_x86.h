// Measured on a Zen 4 (EPYC 9004, 2 cores, 3.67 GHz), one thread, 64 tokens x 40 heads x 128, in place, f32 of an
// AVX-512 in-place multiply: half .92 and interleaved .91 with AVX-512, 2026-11-21, ./run bench.
#pragma once

#include "Halide.h"

#include <algorithm>
#include <vector>

namespace halyard {

/// The dimensions of the algorithm.
struct Loops {
    Halide::Var element, head, token, lane;
    Halide::RVar member;
    bool by_member;  // y is written member by member, over the RVar; else both at once
    bool gathered;   // neighbouring elements are not neighbours in memory
};

struct Steps {
    int fixed;  // elements in one step at the head sizes that are known when the kernel is built
    int any;    // at all other sizes
};

/// Tokens outside; then steps of elements; then heads; so that a step's cos and sin are read once per token and stay
/// in registers for all heads.
inline void schedule_x86(Halide::Func y, Halide::Func angle, const Loops &loops, const Steps &steps) {
    using namespace Halide;
    const Var outer("step"), inner("inner");

    const auto in_steps = [&](Stage stage, int step) {
        // Auto would not guard the tail of an update's pure dimension.
        stage.split(loops.element, outer, inner, step, TailStrategy::GuardWithIf);
        if (loops.by_member) {
            // Each vector holds whole pairs, and its loads come before its stores.
            stage.allow_race_conditions()
                .reorder(loops.member, inner, loops.head, outer, loops.token)
                .vectorize(loops.member);
        } else {
            stage.reorder(inner, loops.head, outer, loops.token);
        }
        if (loops.gathered) {
            stage.unroll(inner);  // assembling vectors element by element costs more than scalars: 99 ns a head
        } else {
            stage.vectorize(inner);
        }
    };

    const auto rows_in_steps = [&](Stage stage, int step) {
        if (loops.by_member) {
            stage.reorder(loops.lane, loops.element);
        }
        stage.unroll(loops.lane).vectorize(loops.element, step, TailStrategy::GuardWithIf);
    };

    Stage update = y.update();
    // Elements in a head of 128, 64, 256, 80 and 96. A known size saves the loop over steps and the tail's masks, and
    // keeps cos and sin in registers.
    const std::vector<int> extents = {64, 32, 128, 40, 48};
    for (const int extent : loops.gathered ? std::vector<int>() : extents) {
        const Expr is_known = y.output_buffer().dim(0).extent() == extent;
        const int largest = std::min(steps.fixed, extent), step = extent % largest == 0 ? largest : 8;
        in_steps(update.specialize(is_known), step);
        rows_in_steps(angle.specialize(is_known), step);
    }
    in_steps(update, steps.any);
    rows_in_steps(angle, steps.any);

    angle.compute_at(y, outer).store_in(MemoryType::Stack).bound_storage(loops.element, std::max(steps.fixed, steps.any));
    if (loops.by_member) {
        angle.reorder_storage(loops.lane, loops.element, loops.token);
    } else {
        angle.reorder_storage(loops.element, loops.lane, loops.token);
    }
}

/// Rows of cos and sin: each vector of pairs is worked out once and stored twice.
inline void schedule_rows_x86(Halide::Func rows, const Halide::Var &pair, const Halide::Var &token, int step) {
    using namespace Halide;
    const Var outer("step"), inner("inner");
    rows.update()
        .split(pair, outer, inner, step, TailStrategy::GuardWithIf)
        .reorder(inner, outer, token)
        .vectorize(inner);
    OutputImageParam buffer = rows.output_buffer();
    for (int i = 0; i < 3; i++) {
        buffer.dim(i).set_min(0);
    }
}

}  // namespace halyard

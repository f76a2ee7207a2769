// The loops of stages, the same for all families: vectors have 16 lanes, of which LLVM makes as many registers as a
// target needs. Measured on a Zen 5 (AVX-512, 4.1 GHz), 2026-11-22: 32 heads of 128 in the first-level cache, ns a
// head: widen bf16 2.2, norm f32 4.8, narrow to bf16 4.6, to e4m3 9.0; a copy by memcpy 3.3.
#pragma once

#include "Halide.h"

#include <vector>

namespace halyard {

/// The lanes of a vector, and the partial sums of a norm.
inline constexpr int lanes = 16;

/// The dimensions of a stage.
struct StageLoops {
    Halide::Var element, head;
    Halide::Var group, one;  // heads are taken in groups
};

/// Vectors that are unrolled. Two or eight make no difference on x86; with four, NEON spills in conversions to 8 bits.
inline int vectors_in_step(const Halide::Target &target) { return target.arch == Halide::Target::ARM ? 2 : 4; }

/// Heads that are filled by whole steps.
inline void fill_in_steps(const Halide::Target &target, Halide::Stage stage, const Halide::Expr &n_elements,
                          const Halide::Var &element) {
    using namespace Halide;
    const Var outer("step"), inner("inner"), vectors("vectors");
    const int step = vectors_in_step(target) * lanes;
    stage.specialize(n_elements % step == 0)
        .split(element, outer, inner, step, TailStrategy::GuardWithIf)
        .split(inner, vectors, inner, lanes, TailStrategy::GuardWithIf)
        .unroll(vectors)
        .vectorize(inner);
}

/// Element by element. A last vector that does not fit is shifted inwards, over elements that are written already: so
/// the output must not be the input.
inline void convert_in_steps(const Halide::Target &target, Halide::Stage stage, const Halide::Expr &n_elements,
                             const Halide::Var &element) {
    fill_in_steps(target, stage, n_elements, element);
    stage.specialize(n_elements >= lanes).vectorize(element, lanes, Halide::TailStrategy::ShiftInwards);
}

/// Takes heads in groups. The last may be smaller: written out apart, it leaves .87 of the time for the others (norm
/// f32), and twice the code.
inline void in_groups(Halide::Stage stage, const Halide::Var &head, const Halide::Var &group, const Halide::Var &one,
                      int heads, bool last_apart) {
    stage.split(head, group, one, heads, Halide::TailStrategy::GuardWithIf);
    stage.partition(group, last_apart ? Halide::Partition::Auto : Halide::Partition::Never);
}

/// What is reduced to 16 lanes per head, for a group of heads at once. Were it for one head, LLVM would not store the
/// vector, and reduce its halves apart from the first element on.
inline void reduce_in_groups(Halide::Func reduced, Halide::Func kept, Halide::Func in, const StageLoops &loops,
                             const Halide::Expr &n_elements, int heads) {
    using namespace Halide;
    reduced.compute_at(kept, loops.head).vectorize(loops.element, lanes);
    reduced.update().vectorize(loops.element, lanes);
    reduced.update().specialize(n_elements % (4 * lanes) == 0).unroll(reduced.rvars()[0], 4);
    kept.compute_at(in, loops.group).store_in(MemoryType::Stack).bound_storage(loops.head, heads);
    kept.bound_extent(loops.element, lanes).vectorize(loops.element);
}

/// Half the lanes are joined with the other half, until one is left.
inline void join_halves(const std::vector<Halide::Func> &halves, Halide::Func in, const Halide::Var &head,
                        const Halide::Var &element) {
    int n_lanes = lanes;
    for (Halide::Func half : halves) {
        n_lanes /= 2;
        half.compute_at(in, head).vectorize(element, n_lanes);
    }
}

}  // namespace halyard

// Building blocks of all targets' schedules.
#pragma once

#include "Halide.h"

#include <algorithm>
#include <vector>

namespace halyard {

/// The dimensions of a rotation's algorithm.
struct Loops {
    Halide::Var element, head, token, lane;
    Halide::RVar member;
    bool by_member;  // y is written member by member, over the RVar; else both members at once
    bool gathered;   // strided: the elements of a vector are not contiguous in memory
    int n_lanes;     // an element holds members of this many pairs
    // cos and sin of a pair's two members are read as one vector. (On NEON that would take 1.14 times the cycles:
    // modelled, Neoverse N1.)
    bool lanes_at_once;
};

struct Steps {
    int fixed;        // elements in one step, for the head sizes of known_pairs
    int any;          // elements in one step for all other sizes; such a step is one vector
    int vector;       // elements in one vector of a fixed step
    int heads;        // how many heads are unrolled
    bool hoist;       // a step's cos and sin are read once for all heads, instead of once for each head
    int in_register;  // how many elements' floats fill a register
};

/// The numbers of pairs in heads of 128, 64, 256, 80 and 96, for which kernels are specialised: that saves the loop
/// over steps and the handling of a tail, and keeps cos and sin in registers.
inline const std::vector<int> known_pairs = {64, 32, 128, 40, 48};

/// The numbers of elements in such heads. Kernels of gathered elements are not specialised.
inline std::vector<int> known_extents(const Loops &loops) {
    std::vector<int> extents;
    for (const int pairs : loops.gathered ? std::vector<int>() : known_pairs) {
        extents.push_back(pairs / loops.n_lanes);
    }
    return extents;
}

/// The size of a step or a vector at a known extent: the wanted one if it divides the extent, else its half, and so on
/// down to a register. If none divides it, the size is the whole extent, as one vector that LLVM splits without masks:
/// vectors of 8 took 1.7 times as long for 40 pairs of bf16 with AVX-512 (Zen 5, 2026-11).
inline int fitting_size(int wanted, int extent, const Steps &steps) {
    for (int fitting = std::min(wanted, extent); fitting >= steps.in_register; fitting /= 2) {
        if (extent % fitting == 0) {
            return fitting;
        }
    }
    return extent;
}

/// The loops are tokens, then steps of elements, then heads. So all heads of a token share a step's cos and sin: in
/// registers if the step is one vector, else in the L1 cache. If a whole head is one step, memory is read and written
/// in order, which is faster for data that is larger than the L2 cache.
inline void schedule_in_steps(Halide::Stage stage, const Loops &loops, int step, int vector, int heads) {
    using namespace Halide;
    const Var outer("step"), inner("inner"), vectors("vectors"), next_heads("next_heads");
    // Auto would not guard the tail of an update's pure dimension.
    stage.split(loops.element, outer, inner, step, TailStrategy::GuardWithIf);
    if (loops.by_member) {
        // The races are harmless: each vector holds whole pairs, and is loaded before it is stored.
        stage.allow_race_conditions().reorder(loops.member, inner, loops.head, outer, loops.token);
        stage.vectorize(loops.member);
    } else {
        stage.reorder(inner, loops.head, outer, loops.token);
    }
    if (heads > 1) {
        stage.split(loops.head, loops.head, next_heads, heads, TailStrategy::GuardWithIf).unroll(next_heads);
    }
    if (vector < step) {
        stage.split(inner, vectors, inner, vector, TailStrategy::GuardWithIf).unroll(vectors);
    }
    if (loops.gathered) {
        stage.unroll(inner);  // scalars: assembling vectors element by element takes 99 ns a head instead of 36
    } else if (vector > 1) {
        stage.vectorize(inner);
    }
}

/// Schedules the reads of a step's cos and sin.
inline void schedule_rows_in_steps(Halide::Stage stage, const Loops &loops, int step) {
    if (loops.by_member) {
        stage.reorder(loops.lane, loops.element);
    }
    if (loops.lanes_at_once) {
        stage.vectorize(loops.lane);
    } else {
        stage.unroll(loops.lane);
    }
    if (step > 1) {
        stage.vectorize(loops.element, step, Halide::TailStrategy::GuardWithIf);
    }
}

/// Schedules heads of one size: those for which is_size holds, or, if it is undefined, all that are left.
inline void schedule_size(Halide::Func y, Halide::Func angle, const Loops &loops, const Steps &steps,
                          const Halide::Expr &is_size, int step, int vector) {
    const bool is_one = is_size.defined();
    schedule_in_steps(is_one ? y.update().specialize(is_size) : y.update(), loops, step, vector, steps.heads);
    if (steps.hoist) {
        schedule_rows_in_steps(is_one ? angle.specialize(is_size) : Halide::Stage(angle), loops, step);
    }
}

/// If rows are hoisted, computes the cos and sin of a step outside of the loop over heads.
inline void place_rows(Halide::Func y, Halide::Func angle, const Loops &loops, const Steps &steps) {
    using namespace Halide;
    if (!steps.hoist) {
        return;
    }
    angle.compute_at(y, Var("step")).store_in(MemoryType::Stack);
    int most = std::max(steps.fixed, steps.any);
    for (const int extent : known_extents(loops)) {
        most = std::max(most, fitting_size(steps.fixed, extent, steps));  // fitting_size() may return the whole extent
    }
    angle.bound_storage(loops.element, loops.gathered ? steps.any : most);
    if (loops.by_member) {
        angle.reorder_storage(loops.lane, loops.element, loops.token);
    } else {
        angle.reorder_storage(loops.element, loops.lane, loops.token);
    }
}

/// Schedules rows of cos and sin: each vector of pairs is computed once, and its cos and sin are stored.
inline void make_rows_in_steps(Halide::Stage stage, const Halide::Var &pair, const Halide::Var &token, int step) {
    const Halide::Var outer("step"), inner("inner");
    stage.split(pair, outer, inner, step, Halide::TailStrategy::GuardWithIf).reorder(inner, outer, token);
    if (step > 1) {
        stage.vectorize(inner);
    }
}

}  // namespace halyard

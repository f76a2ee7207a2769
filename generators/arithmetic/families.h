// What kernels do otherwise on another family of targets, and why. Beside this, schedule_cpu.h chooses the schedule,
// norm.h roots and quotients, and GPUs find their arguments otherwise (cuda/).
#pragma once

#include "Halide.h"

namespace halyard {

/// Whether -sin is made before the loop over heads, and LLVM keeps it there: ARM has registers for it. x86 would spill
/// it, and has an instruction that subtracts the cross product. The bits are the same.
inline bool negates_sin_first(const Halide::Target &target) { return target.arch == Halide::Target::ARM; }

/// Whether a kernel that swaps the members of pairs takes all lanes of cos and sin at once.
inline bool takes_lanes_at_once(const Halide::Target &target) { return target.arch == Halide::Target::X86; }

/// Vectors of a stage that are unrolled. Two or eight make no difference on x86; with four, NEON spills in conversions
/// to 8 bits.
inline int vectors_in_step(const Halide::Target &target) { return target.arch == Halide::Target::ARM ? 2 : 4; }

/// Whether a norm that rotates bf16 reads, rounds and writes two neighbours as one word: .83 of the time (Zen 5), but
/// NEON 1.16 times the cycles (modelled, Neoverse N1).
inline bool joins_neighbours(const Halide::Target &target) { return target.arch == Halide::Target::X86; }

/// Whether comparisons of vectors give masks, which choose at no cost.
inline bool has_masks(const Halide::Target &target) { return target.has_feature(Halide::Target::AVX512); }

}  // namespace halyard

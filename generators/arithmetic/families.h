// Differences between kernels of different families of targets, and why. Others are in schedule_cpu.h (the schedule),
// norm.h (roots and quotients) and cuda/ (the arguments of kernels).
#pragma once

#include "Halide.h"

namespace halyard {

/// Whether -sin is computed before the loop over heads. ARM has registers to keep it. x86 would spill it, and has an
/// instruction that subtracts the cross product instead. The bits are the same.
inline bool negates_sin_first(const Halide::Target &target) { return target.arch == Halide::Target::ARM; }

/// Whether kernels that rotate member by member read cos and sin of both members as one vector.
inline bool takes_lanes_at_once(const Halide::Target &target) { return target.arch == Halide::Target::X86; }

/// How many vectors of a stage's loop are unrolled. On x86 two or eight are as fast as four; on NEON, with four,
/// conversions to 8 bits would spill registers.
inline int vectors_in_step(const Halide::Target &target) { return target.arch == Halide::Target::ARM ? 2 : 4; }

/// Whether norm_rotate of bf16 reads, rounds and writes two neighbours as one word. On x86 that takes .83 of the time
/// (Zen 5); on NEON it would take 1.16 times the cycles (modelled, Neoverse N1).
inline bool joins_neighbours(const Halide::Target &target) { return target.arch == Halide::Target::X86; }

/// Whether comparisons of vectors give masks, with which a select costs nothing.
inline bool has_masks(const Halide::Target &target) { return target.has_feature(Halide::Target::AVX512); }

}  // namespace halyard

// The schedules of x86 and ARM, and the choice of a schedule by the target's family. arithmetic/families.h has or names
// the other differences between families.
#pragma once

#include "schedule.h"
#include "schedule_cuda.h"

#include <optional>

namespace halyard {

/// Speed as a fraction of an in-place multiply's (one thread, in place, f32, 40 heads of 128; Zen 4 EPYC 9004, 2 cores,
/// 3.67 GHz, 2026-11-21, ./run demo):
///     64 tokens      AVX-512: half .95, interleaved .92    AVX2: half .95, interleaved .79
///     4096 tokens    AVX2: half .96, interleaved .92 (with steps of 16 elements .46 and .42)
///
/// For ARM cycles are modelled, not measured (llvm-mca 19.1.7, 2026-11-21, ./run bench modelled); results were tested
/// on an emulated Cortex-A53. Cycles per pair relative to a compiled C loop, mean and worst of 18 kernels: Cortex-A53
/// .46 .63, A55 .53 .73, Neoverse N1 .87 1.00, V2 .90 1.09; to C loops compiled for SVE: N2 .96 1.13, V1 .94 1.20.
///
/// On x86 sizes that are not in known_pairs have masked tails. NEON has no masks, so a guarded tail would be a branch
/// for each lane: there sizes that are multiples of a vector go in whole vectors, and all others element by element.
inline void schedule_cpu(Halide::Func y, Halide::Func angle, const Loops &loops, const Steps &steps, bool has_masks) {
    const Halide::Expr extent = y.output_buffer().dim(0).extent();
    for (const int known : known_extents(loops)) {
        const int step = fitting_size(steps.fixed, known, steps);
        schedule_size(y, angle, loops, steps, extent == known, step, fitting_size(steps.vector, step, steps));
    }
    if (!has_masks && !loops.gathered) {
        schedule_size(y, angle, loops, steps, extent % steps.any == 0, steps.any, steps.any);
    }
    const int others = has_masks ? steps.any : 1;
    schedule_size(y, angle, loops, steps, Halide::Expr(), others, others);
    place_rows(y, angle, loops, steps);
}

/// Whether tails are masked: on x86, but not on ARM, the only other family.
inline bool masks_tails(const Halide::Target &target) {
    const bool is_x86 = target.arch == Halide::Target::X86;
    _halide_user_assert(is_x86 || target.arch == Halide::Target::ARM) << "No schedule for " << target.to_string();
    return is_x86;
}

inline void schedule_rotation(const Halide::Target &target, Halide::Func y, Halide::Func angle, const Loops &loops,
                              const Steps &steps, int per_thread, std::optional<DeviceAngles> &device_angles) {
    if (target.has_gpu_feature()) {
        schedule_cuda(y, angle, loops, per_thread, *device_angles);
    } else {
        schedule_cpu(y, angle, loops, steps, masks_tails(target));
    }
}

inline void schedule_rows(const Halide::Target &target, Halide::Func rows, const Halide::Var &pair,
                          const Halide::Var &token, int step) {
    if (!masks_tails(target)) {
        const Halide::Expr is_whole = rows.output_buffer().dim(0).extent() % step == 0;
        make_rows_in_steps(rows.update().specialize(is_whole), pair, token, step);
        step = 1;
    }
    make_rows_in_steps(rows.update(), pair, token, step);
}

}  // namespace halyard

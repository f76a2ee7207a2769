// The choice of a schedule by the family of the target. arithmetic/families.h has what else depends on that.
#pragma once

#include "schedule_arm.h"
#include "schedule_gpu.h"
#include "schedule_x86.h"

#include <optional>

namespace halyard {

inline void need_x86(const Halide::Target &target) {
    _halide_user_assert(target.arch == Halide::Target::X86) << "There is no schedule for " << target.to_string();
}

inline void schedule_rotation(const Halide::Target &target, Halide::Func y, Halide::Func angle, const Loops &loops,
                              const Steps &steps, const GpuSteps &gpu_steps,
                              std::optional<DeviceAngles> &device_angles) {
    if (target.has_gpu_feature()) {
        schedule_gpu(y, angle, loops, gpu_steps, *device_angles);
    } else if (target.arch == Halide::Target::ARM) {
        schedule_arm(y, angle, loops, steps);
    } else {
        need_x86(target);
        schedule_x86(y, angle, loops, steps);
    }
}

inline void schedule_rows(const Halide::Target &target, Halide::Func rows, const Halide::Var &pair,
                          const Halide::Var &token, int step) {
    if (target.arch == Halide::Target::ARM) {
        schedule_rows_arm(rows, pair, token, step);
    } else {
        need_x86(target);
        schedule_rows_x86(rows, pair, token, step);
    }
}

}  // namespace halyard

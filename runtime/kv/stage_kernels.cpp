#include "kv/stage_kernels.h"

#define HALYARD_STAGE_KERNEL(name, stage, dtype, target) extern "C" halyard_##stage##_kernel name;
#include "built_kernels.inc"

namespace halyard {

namespace {

using enum Dtype;  // as the rows name them

/// The kernels of one target, whose name is that of the reference where it has none.
constexpr StageKernels kernels_of(Target target) {
    StageKernels kernels = {};
    kernels.target = Target::reference;
#define HALYARD_STAGE_KERNEL(name, stage, dtype, of)                                                                   \
    if (target == Target::of) {                                                                                        \
        kernels.target = target;                                                                                       \
        kernels.stage[index_of(dtype)] = name;                                                                         \
    }
#include "built_kernels.inc"
    return kernels;
}

constexpr StageKernels table[] = {
#define HALYARD_TARGET(name, ...) kernels_of(Target::name),
#include "kernels.inc"
};

}  // namespace

const StageKernels *find_stage_kernels(TargetSet allowed) noexcept {
    for (const StageKernels &kernels : table) {
        if (kernels.target != Target::reference && (allowed & bit(kernels.target)) != 0) {
            return &kernels;
        }
    }
    return nullptr;
}

}  // namespace halyard

#include "gpu/gpu_kernels.h"

#include <type_traits>

namespace halyard::gpu {

using table_function = std::remove_pointer_t<TableFunction>;
using phase_function = std::remove_pointer_t<PhaseFunction>;
using check_function = std::remove_pointer_t<CheckFunction>;
using copy_function = std::remove_pointer_t<CopyFunction>;
using road_function = std::remove_pointer_t<RoadFunction>;

extern "C" {
#define HALYARD_GPU_KERNEL(name, target, angles, ...) angles##_function name;
#define HALYARD_GPU_HELPERS(target)                                                                                    \
    check_function halyard_check_positions_##target;                                                                   \
    copy_function halyard_copy_16_##target, halyard_copy_32_##target, halyard_copy_128_##target;                       \
    road_function halyard_road_##target##_argv, halyard_road_phase_##target##_argv;
#include "built_kernels.inc"
}

namespace {

using enum Dtype;  // as the rows name them

constexpr GpuKernel row_with_table(GpuKernel row, TableFunction function) {
    row.with_table = function;
    return row;
}

constexpr GpuKernel row_with_phase(GpuKernel row, PhaseFunction function) {
    row.with_phase = function;
    return row;
}

constexpr GpuKernel table[] = {
#define HALYARD_GPU_KERNEL(name, target, angles, pairing, dtype, in_place, schedule)                                   \
    row_with_##angles({#name, Target::target, row_pairing::pairing, dtype, in_place, schedule}, name),
#include "built_kernels.inc"
};

constexpr GpuHelpers helpers[] = {
#define HALYARD_GPU_HELPERS(target)                                                                                    \
    {Target::target,                                                                                                   \
     halyard_check_positions_##target,                                                                                 \
     halyard_copy_16_##target,                                                                                         \
     halyard_copy_32_##target,                                                                                         \
     halyard_copy_128_##target,                                                                                        \
     halyard_road_##target##_argv,                                                                                     \
     halyard_road_phase_##target##_argv},
#include "built_kernels.inc"
};

}  // namespace

GpuKernelList gpu_kernels() noexcept { return {table, static_cast<std::int32_t>(sizeof(table) / sizeof(table[0]))}; }

const GpuHelpers &gpu_helpers(Target target) noexcept {
    const GpuHelpers *found = helpers;
    while (found->target != target) {
        found++;
    }
    return *found;
}

const GpuKernel &select_gpu_kernel(Target target, Dtype dtype, std::optional<Pairing> pairing, bool in_place,
                                   bool with_phase) noexcept {
    const GpuKernel *found = table;
    while (found->target != target || found->dtype != dtype || found->pairing != pairing ||
           found->in_place != in_place || (found->with_phase != nullptr) != with_phase) {
        found++;  // the list holds every combination
    }
    return *found;
}

}  // namespace halyard::gpu

#include "gpu/gpu_kernels.h"

#include <type_traits>

namespace halyard::gpu {

using kernel_function = std::remove_pointer_t<KernelFunction>;

extern "C" {
#define HALYARD_GPU_KERNEL(name, ...) kernel_function name##_argv;
#define HALYARD_GPU_PLAIN_ROAD_KERNEL(name, ...) kernel_function name##_argv;
#include "built_kernels.inc"
kernel_function halyard_check_positions_cuda_sm80_argv, halyard_road_cuda_sm80_argv,
    halyard_road_records_cuda_sm80_argv, halyard_copy_16_cuda_sm80_argv, halyard_copy_32_cuda_sm80_argv,
    halyard_copy_128_cuda_sm80_argv;
}

namespace {

using enum Dtype;  // as the rows name them

constexpr GpuKernel table[] = {
#define HALYARD_GPU_KERNEL(name, target, pairing, out_pairing, bits, dtype, in_place, schedule)                        \
    {#name, {row_pairing::pairing, row_pairing::out_pairing, (bits) / 8}, dtype, in_place, schedule, name##_argv},
#include "built_kernels.inc"
};

constexpr PlainRoadKernel plain_roads[] = {
#define HALYARD_GPU_PLAIN_ROAD_KERNEL(name, target, dtype, head_dim) {#name, dtype, head_dim, name##_argv},
#include "built_kernels.inc"
};

constexpr GpuHelpers helpers = {halyard_check_positions_cuda_sm80_argv, halyard_road_cuda_sm80_argv,
                                halyard_road_records_cuda_sm80_argv,    halyard_copy_16_cuda_sm80_argv,
                                halyard_copy_32_cuda_sm80_argv,         halyard_copy_128_cuda_sm80_argv};

}  // namespace

std::span<const GpuKernel> gpu_kernels() noexcept { return table; }

const PlainRoadKernel *select_plain_road(Dtype dtype, std::int64_t head_dim) noexcept {
    for (const PlainRoadKernel &kernel : plain_roads) {
        if (kernel.dtype == dtype && kernel.head_dim == head_dim) {
            return &kernel;
        }
    }
    return nullptr;
}

const GpuHelpers &gpu_helpers() noexcept { return helpers; }

const GpuKernel *select_gpu_kernel(Dtype dtype, const GpuLayout &layout, bool in_place) noexcept {
    for (const GpuKernel &kernel : gpu_kernels()) {
        if (kernel.dtype == dtype && kernel.layout == layout && kernel.in_place == in_place) {
            return &kernel;
        }
    }
    return nullptr;
}

}  // namespace halyard::gpu

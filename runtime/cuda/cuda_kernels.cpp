#include "cuda/cuda_kernels.h"

#include <type_traits>

namespace halyard::cuda {

using kernel_function = std::remove_pointer_t<KernelFunction>;

extern "C" {
#define HALYARD_CUDA_KERNEL(name, ...) kernel_function name##_argv;
#define HALYARD_CUDA_KV_KERNEL(name, ...) kernel_function name##_argv;
#include "built_kernels.inc"
kernel_function halyard_check_positions_cuda_sm80_argv, halyard_copy_16_cuda_sm80_argv, halyard_copy_32_cuda_sm80_argv,
    halyard_copy_128_cuda_sm80_argv;
}

namespace {

using enum Dtype;  // as the rows name them

constexpr CudaKernel table[] = {
#define HALYARD_CUDA_KERNEL(name, target, pairing, out_pairing, bits, dtype, in_place, ...)                            \
    {#name, {row_pairing::pairing, row_pairing::out_pairing, (bits) / 8}, dtype, in_place, name##_argv},
#include "built_kernels.inc"
};

constexpr int cuda_sm80 = 80, cuda_sm89 = 89;

constexpr KvKernel kv_table[] = {
#define HALYARD_CUDA_KV_KERNEL(name, target, dtype, out_dtype, head_dim, pairing, rotary_dim, rotary_offset, weight,   \
                               unit_offset)                                                                            \
    {#name,      target,        dtype,  out_dtype,   head_dim,   Pairing::pairing,                                     \
     rotary_dim, rotary_offset, weight, unit_offset, name##_argv},
#include "built_kernels.inc"
};

constexpr CudaHelpers helpers = {halyard_check_positions_cuda_sm80_argv, halyard_copy_16_cuda_sm80_argv,
                                 halyard_copy_32_cuda_sm80_argv, halyard_copy_128_cuda_sm80_argv};

}  // namespace

std::span<const CudaKernel> cuda_kernels() noexcept { return table; }

std::span<const KvKernel> kv_kernels() noexcept { return kv_table; }

const CudaHelpers &cuda_helpers() noexcept { return helpers; }

}  // namespace halyard::cuda

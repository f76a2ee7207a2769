#include "kernels.h"

#define HALYARD_GPU_TABLE_KERNEL(name, ...)                                                                            \
    extern "C" int name(const void *, HALYARD_GPU_POSITIONS, halyard_buffer *, std::int32_t, halyard_buffer *,         \
                        halyard_buffer *, std::int32_t, std::int32_t, std::int32_t, HALYARD_GPU_TENSORS);
#define HALYARD_GPU_PHASE_KERNEL(name, ...)                                                                            \
    extern "C" int name(const void *, HALYARD_GPU_POSITIONS, halyard_buffer *, std::int32_t, halyard_buffer *,         \
                        halyard_buffer *, float, float, HALYARD_GPU_TENSORS);
#define HALYARD_GPU_HELPERS(target, check, copy_16, copy_32, copy_128)                                                 \
    extern "C" int check(const void *, HALYARD_GPU_POSITIONS, std::int32_t, std::int32_t, halyard_buffer *);           \
    extern "C" int copy_16(const void *, std::int32_t, std::int32_t, halyard_buffer *, halyard_buffer *);              \
    extern "C" int copy_32(const void *, std::int32_t, std::int32_t, halyard_buffer *, halyard_buffer *);              \
    extern "C" int copy_128(const void *, std::int32_t, std::int32_t, halyard_buffer *, halyard_buffer *);
#include "gpu_kernel_list.inc"
#undef HALYARD_GPU_TABLE_KERNEL
#undef HALYARD_GPU_PHASE_KERNEL
#undef HALYARD_GPU_HELPERS

namespace halyard::gpu {

namespace {

constexpr std::int32_t f32 = HALYARD_F32, f16 = HALYARD_F16, bf16 = HALYARD_BF16;

constexpr GpuKernel table[] = {
#define HALYARD_GPU_TABLE_KERNEL(name, target, pairing, dtype, in_place)                                               \
    {#name, Target::target, Pairing::pairing, dtype, in_place, name, nullptr},
#define HALYARD_GPU_PHASE_KERNEL(name, target, pairing, dtype, in_place)                                               \
    {#name, Target::target, Pairing::pairing, dtype, in_place, nullptr, name},
#define HALYARD_GPU_HELPERS(...)
#include "gpu_kernel_list.inc"
#undef HALYARD_GPU_TABLE_KERNEL
#undef HALYARD_GPU_PHASE_KERNEL
#undef HALYARD_GPU_HELPERS
};

constexpr GpuHelpers helpers[] = {
#define HALYARD_GPU_TABLE_KERNEL(...)
#define HALYARD_GPU_PHASE_KERNEL(...)
#define HALYARD_GPU_HELPERS(target, check, copy_16, copy_32, copy_128)                                                 \
    {Target::target, check, copy_16, copy_32, copy_128},
#include "gpu_kernel_list.inc"
#undef HALYARD_GPU_TABLE_KERNEL
#undef HALYARD_GPU_PHASE_KERNEL
#undef HALYARD_GPU_HELPERS
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

const GpuKernel &select_gpu_kernel(Target target, std::int32_t dtype, Pairing pairing, bool in_place,
                                   bool with_phase) noexcept {
    const GpuKernel *found = table;
    while (found->target != target || found->dtype != dtype || found->pairing != pairing ||
           found->in_place != in_place || (found->with_phase != nullptr) != with_phase) {
        found++;  // the list holds every combination
    }
    return *found;
}

}  // namespace halyard::gpu

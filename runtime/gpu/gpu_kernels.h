// The table of GPU kernels, and the choice of one. The device of a tensor decides, never the machine's features.
#pragma once

#include "gpu/gpu_kernel_abi.h"
#include "rotate/dispatch.h"

namespace halyard::gpu {

constexpr Target target_of(std::int32_t device) { return device == HALYARD_CUDA ? Target::cuda_sm80 : Target::opencl; }

/// A GPU kernel of generators/kernels.inc: one of the functions is NULL.
struct GpuKernel {
    const char *name;
    Target target;
    std::optional<Pairing> pairing;  // none: any, in any layout; else accesses are of 128 bits
    Dtype dtype;
    bool in_place;
    const char *schedule;  // "default", or the device that it was tuned for
    TableFunction with_table = nullptr;
    PhaseFunction with_phase = nullptr;
};

struct GpuKernelList {
    const GpuKernel *first;
    std::int32_t count;
    const GpuKernel *begin() const { return first; }
    const GpuKernel *end() const { return first + count; }
};

GpuKernelList gpu_kernels() noexcept;

/// A target's other kernels.
struct GpuHelpers {
    Target target;
    CheckFunction check_positions;
    CopyFunction copy_16, copy_32, copy_128;  // by bits of an element
    RoadFunction road_table, road_phase;
};

const GpuHelpers &gpu_helpers(Target target) noexcept;

/// The kernel for a tensor; without a pairing, the one that takes any.
const GpuKernel &select_gpu_kernel(Target target, Dtype dtype, std::optional<Pairing> pairing, bool in_place,
                                   bool with_phase) noexcept;

}  // namespace halyard::gpu

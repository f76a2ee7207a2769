// The objects of halyard_gpu.h.
#pragma once

#include "angles/angle_source.h"
#include "gpu/driver.h"
#include "gpu/gpu_kernels.h"
#include "rotate/plan.h"

namespace halyard::gpu {

/// What an angle source covers, and what of it lies in device memory.
struct DeviceAngles {
    halyard_angle_source source;  // without memory of its own
    // TABLE and GIVEN: rows of cos and of sin, at offsets in elements. PHASE: the upper and lower words of frequencies.
    void *first_rows = nullptr, *second_rows = nullptr;
    std::int64_t first_offset = 0, second_offset = 0;
    void *axis_of_pair = nullptr;  // int32 [n_pairs + 1]; then a zero, for positions that are only counted
};

constexpr Target target_of(std::int32_t device) { return device == HALYARD_CUDA ? Target::cuda_sm80 : Target::opencl; }

}  // namespace halyard::gpu

struct halyard_gpu_angles {
    halyard_gpu_queue queue;
    halyard::gpu::DeviceAngles device;
};

struct halyard_gpu_plan {
    halyard_gpu_queue queue;
    const halyard_gpu_angles *angles;
    halyard_plan *checks;  // what a run checks its tensors against
    std::uint64_t part_alignment;
    halyard_gpu_plan *next;  // in the list of all plans
};

namespace halyard::gpu {

/// Fails where a queue is no queue, or its device is not there; else copies it, with the context that it stands for.
halyard_status read_queue(const halyard_gpu_queue *queue, halyard_gpu_queue *out, halyard_error *error) noexcept;

}  // namespace halyard::gpu

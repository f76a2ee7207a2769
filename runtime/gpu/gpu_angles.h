// What an angle source holds, in a device's memory.
#pragma once

#include "angles/angle_source.h"
#include "halyard/halyard_gpu.h"

#include <cstdint>

namespace halyard::gpu {

/// What an angle source covers, and what of it lies in device memory.
struct DeviceAngles {
    halyard_angle_source source;  // without memory of its own
    // TABLE and GIVEN: rows of cos and of sin, at offsets in elements. PHASE: the upper and lower words of frequencies.
    void *first_rows = nullptr, *second_rows = nullptr;
    std::int64_t first_offset = 0, second_offset = 0;
    void *axis_of_pair = nullptr;  // int32 [n_pairs + 1]; then a zero, for positions that are only counted
};

}  // namespace halyard::gpu

struct halyard_gpu_angles {
    halyard_gpu_queue queue;
    halyard::gpu::DeviceAngles device;
};

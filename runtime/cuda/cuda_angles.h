// A copy of an angle source in a device's memory.
#pragma once

#include "angles/angle_source.h"
#include "cuda/launch_fields.h"
#include "halyard/halyard_cuda.h"

#include <cstdint>

namespace halyard::cuda {

/// An angle source whose rows or frequencies are in device memory.
struct DeviceAngles {
    halyard_angle_source source;  // without memory of its own
    AngleForm form = AngleForm::rows_f32;
    // The rows of cos and of sin; for PHASE angles the upper and the lower words of the frequencies instead.
    void *first_rows = nullptr, *second_rows = nullptr;
    std::int64_t n_rows = 1;
    // int32 [n_pairs], then a zero: see address_of_zero_position. All else that is uploaded follows in the same
    // allocation.
    void *axis_of_pair = nullptr;
};

}  // namespace halyard::cuda

struct halyard_cuda_angles {
    halyard_cuda_queue queue;
    halyard::cuda::DeviceAngles device;
};

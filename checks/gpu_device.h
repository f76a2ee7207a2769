// The GPU that tests run on; PoCL may stand in for one.
#pragma once

#include "checks/gpu_checker.h"
#include "halyard/halyard_gpu.hpp"

#include <catch2/catch_test_macros.hpp>

#include <memory>
#include <string>

namespace gpu_test {

/// The one queue of this process, because contexts cost much. Skips the test where the device cannot be used.
inline const halyard_gpu_queue &queue_of(std::int32_t device) {
    if (const auto target = halyard::gpu_target(device); target.supported == 0) {
        SKIP(target.reason);
    }
    static std::unique_ptr<halyard::tool::DeviceQueue> queues[3];
    if (queues[device] == nullptr) {
        queues[device] = std::make_unique<halyard::tool::DeviceQueue>(device);
        // The last plan of a context takes the compiled kernels with it, so one plan is kept.
        const auto frequencies = halyard::frequencies::from_base(10000, 16);
        const halyard_gpu_queue &queue = queues[device]->get();
        static const halyard::gpu_angles angles(queue, halyard::angle_source::table(frequencies, 0, 0));
        static const halyard::gpu_plan plan(
            queue, halyard::plan_desc(16, {halyard::describe_tensor(halyard::dtype::f32, 16, halyard::pairing::half)}),
            angles);
    }
    return queues[device]->get();
}

}  // namespace gpu_test

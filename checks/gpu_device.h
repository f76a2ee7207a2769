// The GPU that tests run on; PoCL may stand in for one.
#pragma once

#include "checks/gpu_memory.h"
#include "halyard/halyard_gpu.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>

namespace gpu_test {

/// The one queue of this process, because contexts cost much. Skips the test where the device cannot be used.
inline const halyard_gpu_queue &queue_of(std::int32_t device) {
    if (const auto target = halyard::gpu_target(device); target.supported == 0) {
        SKIP(target.reason);
    }
    static std::unique_ptr<halyard::device::DeviceQueue> queues[3];
    if (queues[device] == nullptr) {
        queues[device] = std::make_unique<halyard::device::DeviceQueue>(device);
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

/// What the driver calls a device, and that it is a CPU if it says so. Nothing where the device cannot be used.
inline std::string name_of(std::int32_t device) {
    if (halyard::gpu_target(device).supported == 0) {
        return "";
    }
    char name[256] = "";
    if (device == HALYARD_CUDA) {
        int first = 0;
        halyard::device::require_call(device, "cuDeviceGet", &first, 0);
        halyard::device::require_call(device, "cuDeviceGetName", &name[0], 256, first);
        return name;
    }
    constexpr unsigned queue_device = 0x1091, device_type = 0x1000, device_platform = 0x1031, platform_name = 0x0902;
    void *cl_device = nullptr, *platform = nullptr;
    std::uint64_t type = 0;
    auto *const no_size = static_cast<std::size_t *>(nullptr);
    const auto ask = [&](const char *function, void *of, unsigned what, void *to, std::size_t n_bytes) {
        halyard::device::require_call(device, function, of, what, n_bytes, to, no_size);
    };
    ask("clGetCommandQueueInfo", queue_of(device).stream, queue_device, &cl_device, sizeof(cl_device));
    ask("clGetDeviceInfo", cl_device, device_type, &type, sizeof(type));
    ask("clGetDeviceInfo", cl_device, device_platform, &platform, sizeof(platform));
    ask("clGetPlatformInfo", platform, platform_name, name, sizeof(name));
    return name + std::string((type & 2) != 0 ? ", a CPU" : "");  // CL_DEVICE_TYPE_CPU
}

/// How many random calls a test makes: usually so many, and HALYARD_GPU_ROUNDS times as many where that is set.
inline int n_calls(int usual) {
    const char *const rounds = std::getenv("HALYARD_GPU_ROUNDS");
    return usual * (rounds != nullptr ? std::max(std::atoi(rounds), 1) : 1);
}

}  // namespace gpu_test

/// A test case with OpenCL and one with CUDA: their names, and the function of a device that both call.
#define TEST_ON_DEVICES(with_opencl, with_cuda, test)                                                                  \
    TEST_CASE(with_opencl, "[gpu][opencl]") { test(HALYARD_OPENCL); }                                                  \
    TEST_CASE(with_cuda, "[gpu][cuda]") { test(HALYARD_CUDA); }

// A GPU, or PoCL's idea of one, for tests: memory, copies and runs.
#pragma once

#include "gpu/driver.h"
#include "halyard/halyard_gpu.hpp"

#include <catch2/catch_test_macros.hpp>

#include <memory>
#include <string>
#include <vector>

namespace gpu_test {

/// Device memory with a copy of some bytes.
class Memory : public halyard::gpu::OwnMemory {
public:
    Memory(const halyard_gpu_queue &queue, const std::vector<char> &bytes)
        : OwnMemory(queue, bytes.data(), bytes.size()), n_bytes_(bytes.size()) {}

    std::vector<char> read() const {
        std::vector<char> bytes(n_bytes_);
        OwnMemory::read(bytes.data(), n_bytes_);
        return bytes;
    }

private:
    std::size_t n_bytes_;
};

/// One queue a process: contexts are dear. Skips the test where the device cannot be used.
inline const halyard_gpu_queue &queue_of(std::int32_t device) {
    if (const std::string reason = halyard::gpu::why_not(device); !reason.empty()) {
        SKIP(reason);
    }
    static std::unique_ptr<halyard::gpu::OwnQueue> queues[3];
    if (queues[device] == nullptr) {
        queues[device] = std::make_unique<halyard::gpu::OwnQueue>(device);
        // With the last plan of a context its compiled kernels go, so one stays.
        const auto frequencies = halyard::frequencies::from_base(10000, 16);
        const halyard_gpu_queue &queue = queues[device]->get();
        static const halyard::gpu_angles angles(queue, halyard::angle_source::table(frequencies, 0, 0));
        static const halyard::gpu_plan plan(
            queue, halyard::describe_plan(16, {halyard::describe_tensor(halyard::dtype::f32, 16)}), angles);
    }
    return queues[device]->get();
}

}  // namespace gpu_test

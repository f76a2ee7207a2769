// A GPU, or PoCL's idea of one, for tests: memory, copies and runs.
#pragma once

#include "gpu/driver.h"
#include "halyard/halyard_gpu.hpp"

#include <catch2/catch_test_macros.hpp>

#include <string>
#include <vector>

namespace gpu_test {

/// Device memory with a copy of some bytes.
class Memory : public halyard::gpu::OwnMemory {
public:
    Memory(const halyard_gpu_queue &queue, const std::vector<char> &bytes) : n_bytes_(bytes.size()) {
        auto error = halyard::detail::make_struct<halyard_error>();
        REQUIRE(create(queue, bytes.data(), n_bytes_, &error) == HALYARD_OK);
    }

    std::vector<char> read() const {
        std::vector<char> bytes(n_bytes_);
        auto error = halyard::detail::make_struct<halyard_error>();
        REQUIRE(OwnMemory::read(bytes.data(), n_bytes_, &error) == HALYARD_OK);
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
    static halyard::gpu::OwnQueue queues[3];
    halyard::gpu::OwnQueue &queue = queues[device];
    if (queue.get().context == nullptr) {
        auto error = halyard::detail::make_struct<halyard_error>();
        INFO(error.message);
        REQUIRE(queue.open(device, &error) == HALYARD_OK);
        // With the last plan of a context its compiled kernels go, so one stays.
        const auto frequencies = halyard::frequencies::from_base(10000, 16);
        static const halyard::gpu_angles angles(queue.get(), halyard::angle_source::table(frequencies, 0, 0));
        static const halyard::gpu_plan plan(
            queue.get(), halyard::describe_plan(16, {halyard::describe_tensor(halyard::dtype::f32, 16)}), angles);
    }
    return queue.get();
}

}  // namespace gpu_test

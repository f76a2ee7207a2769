// Finds what is wrong with a GPU kernel.
#pragma once

#include "checks/oracle.h"
#include "gpu/gpu_kernels.h"
#include "tool/device_memory.h"

#include <string>
#include <vector>

namespace gpu_test {

/// Device memory with a copy of some bytes.
class Memory : public halyard::tool::DeviceMemory {
public:
    Memory(const halyard_gpu_queue &queue, const std::vector<char> &bytes)
        : DeviceMemory(queue, bytes.data(), bytes.size()), n_bytes_(bytes.size()) {}

    std::vector<char> read() const {
        std::vector<char> bytes(n_bytes_);
        DeviceMemory::read(bytes.data(), n_bytes_);
        return bytes;
    }

private:
    std::size_t n_bytes_;
};

/// One random run of a kernel through halyard_run_gpu: bit for bit what the portable reference computes, but for the
/// payload of a NaN, in a random layout, with any kind of positions, and nothing else of the memory touched. What is
/// wrong with it, in words, or nothing. n_tokens: of each batch; 0 for any number up to 70.
std::string check_gpu_run(const halyard::gpu::GpuKernel &kernel, const halyard_gpu_queue &queue, oracle::Random &random,
                          std::int64_t n_tokens = 0);

}  // namespace gpu_test

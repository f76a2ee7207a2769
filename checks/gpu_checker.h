// Compares GPU kernels with the portable reference.
#pragma once

#include "checks/oracle.h"
#include "device/device_memory.h"
#include "gpu/gpu_kernels.h"

#include <string>
#include <vector>

namespace gpu_test {

/// Device memory with a copy of some bytes.
class Memory : public halyard::device::DeviceMemory {
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

/// The first element that differs, in words, or nothing; any NaN equals any other. A dtype is any that is stored.
std::string difference(std::int32_t dtype, const std::vector<char> &expected, const std::vector<char> &result);

/// Makes one random run of a kernel through halyard_run_gpu, in a random layout and with any kind of positions. The
/// result must be that of the portable reference, bit for bit but for the payload of a NaN, and no other memory may
/// change. Returns what is wrong, in words, or nothing. n_tokens is the count of tokens in each batch row; 0 means any
/// count up to 300.
std::string check_gpu_run(const halyard::gpu::GpuKernel &kernel, const halyard_gpu_queue &queue, oracle::Random &random,
                          std::int64_t n_tokens = 0);

}  // namespace gpu_test

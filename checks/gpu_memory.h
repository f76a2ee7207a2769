// Memory of a device, and how what it holds is compared.
#pragma once

#include "device/device_memory.h"

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

}  // namespace gpu_test

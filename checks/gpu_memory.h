// Memory of a device, and how what it holds is compared.
#pragma once

#include "device/device_memory.h"

#include <string>
#include <vector>

namespace gpu_test {

/// Device memory with a copy of some values.
class Memory : public halyard::device::DeviceMemory {
public:
    template <typename Value>
    Memory(const halyard_gpu_queue &queue, const std::vector<Value> &values)
        : DeviceMemory(queue, values.data(), values.size() * sizeof(Value)), n_bytes_(values.size() * sizeof(Value)) {}

    template <typename Value = char>
    std::vector<Value> read() const {
        std::vector<Value> values(n_bytes_ / sizeof(Value));
        DeviceMemory::read(values.data(), n_bytes_);
        return values;
    }

private:
    std::size_t n_bytes_;
};

/// The first element that differs, in words, or nothing; any NaN equals any other. A dtype is any that is stored.
std::string difference(std::int32_t dtype, const std::vector<char> &expected, const std::vector<char> &result);

}  // namespace gpu_test

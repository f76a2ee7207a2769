// A queue and memory of a device, and its driver's functions: for checks, tests and bench, which are clients
// of halyard_gpu.h that have neither. Everything throws halyard::error where the driver refuses. No package has this.
#pragma once

#include "halyard/halyard_gpu.hpp"

#include <cstddef>
#include <cstdint>
#include <string>

namespace halyard::device {

/// A function of libcuda.so.1 (HALYARD_CUDA) or libOpenCL.so.1 (HALYARD_OPENCL).
void *find_driver_function(std::int32_t device, const char *name);

/// Calls one with arguments of exactly its parameters' types, and returns what it returns.
template <typename Result = int, typename... Arguments>
Result call_driver(std::int32_t device, const char *name, Arguments... arguments) {
    return reinterpret_cast<Result (*)(Arguments...)>(find_driver_function(device, name))(arguments...);
}

/// Throws where one does not return 0.
template <typename... Arguments>
void require_call(std::int32_t device, const char *name, Arguments... arguments) {
    if (const int status = call_driver(device, name, arguments...)) {
        throw error(HALYARD_ERROR_DEVICE, std::string(name) + " returns " + std::to_string(status));
    }
}

/// A context and a stream of our own on the first device.
class DeviceQueue {
public:
    explicit DeviceQueue(std::int32_t device);
    DeviceQueue(const DeviceQueue &) = delete;
    DeviceQueue &operator=(const DeviceQueue &) = delete;
    ~DeviceQueue();

    const halyard_gpu_queue &get() const noexcept { return queue_; }

private:
    DeviceQueue() = default;
    void open_cuda();
    void open_opencl();

    halyard_gpu_queue queue_ = {};
};

/// Device memory of our own.
class DeviceMemory {
public:
    /// With a copy of data, which may be NULL. The queue's context and stream must live longer.
    DeviceMemory(const halyard_gpu_queue &queue, const void *data, std::size_t n_bytes);
    DeviceMemory(const DeviceMemory &) = delete;
    DeviceMemory &operator=(const DeviceMemory &) = delete;
    ~DeviceMemory();

    /// Copies to or from the first n_bytes, after all that was enqueued, and waits until it is done.
    void write(const void *data, std::size_t n_bytes) const { copy(const_cast<void *>(data), n_bytes, true); }
    void read(void *data, std::size_t n_bytes) const { copy(data, n_bytes, false); }

    /// What a view takes as its data, and as its offset, for what begins some way into the memory.
    void *data(std::int64_t bytes = 0) const noexcept {
        return is_opencl() ? memory_ : static_cast<char *>(memory_) + bytes;
    }
    std::int64_t offset(std::int64_t elements) const noexcept { return is_opencl() ? elements : 0; }

private:
    explicit DeviceMemory(const halyard_gpu_queue &queue) noexcept : queue_(queue) {}
    bool is_opencl() const noexcept { return queue_.device == HALYARD_OPENCL; }
    void copy(void *data, std::size_t n_bytes, bool is_write) const;

    halyard_gpu_queue queue_;
    void *memory_ = nullptr;
};

}  // namespace halyard::device

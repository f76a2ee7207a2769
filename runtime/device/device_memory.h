// A queue and memory of a CUDA device, and its driver's functions: for checks, tests and bench, which are clients of
// halyard_gpu.h that have neither. Everything throws halyard::error where the driver refuses. No package has this.
#pragma once

#include "halyard/halyard_gpu.hpp"

#include <cstddef>
#include <cstdint>
#include <string>

namespace halyard::device {

/// A function of libcuda.so.1.
void *find_driver_function(const char *name);

/// Calls one with arguments of exactly its parameters' types, and returns what it returns.
template <typename... Arguments>
int call_driver(const char *name, Arguments... arguments) {
    return reinterpret_cast<int (*)(Arguments...)>(find_driver_function(name))(arguments...);
}

/// A context and a stream of our own on the first device.
class DeviceQueue {
public:
    DeviceQueue();
    DeviceQueue(const DeviceQueue &) = delete;
    DeviceQueue &operator=(const DeviceQueue &) = delete;
    ~DeviceQueue();

    const halyard_gpu_queue &get() const noexcept { return queue_; }

private:
    explicit DeviceQueue(const halyard_gpu_queue &closed) noexcept : queue_(closed) {}

    halyard_gpu_queue queue_;
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

    /// What begins some way into the memory.
    void *data(std::int64_t bytes = 0) const noexcept { return static_cast<char *>(memory_) + bytes; }

private:
    explicit DeviceMemory(const halyard_gpu_queue &queue) noexcept : queue_(queue) {}
    void copy(void *data, std::size_t n_bytes, bool is_write) const;

    halyard_gpu_queue queue_;
    void *memory_ = nullptr;
};

}  // namespace halyard::device

// A CUDA context with a stream, and device memory that tests can read. Everything throws halyard::error if a driver
// call fails.
#pragma once

#include "runtime/cuda/driver.h"  // with its folder, because checks/cuda has a driver.h too
#include "halyard/halyard_cuda.hpp"

#include <algorithm>
#include <dlfcn.h>
#include <string>
#include <vector>

namespace cuda_test {

inline void require(int status, const std::string &what) {
    if (status != 0) {
        throw halyard::error(HALYARD_ERROR_DEVICE, what + ": error " + std::to_string(status));
    }
}

/// The address of a function of libcuda.so.1. Throws if there is none.
inline void *find_driver_function(const char *name) {
    static void *const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    void *const function = library == nullptr ? nullptr : dlsym(library, name);
    require(function == nullptr ? 1 : 0, std::string("libcuda.so.1 lacks ") + name);
    return function;
}

/// Calls a driver function and returns its result. The arguments must have exactly the parameters' types (see the
/// reference manual of the CUDA driver API).
template <typename... Arguments>
int call_driver(const char *name, Arguments... arguments) {
    return reinterpret_cast<int (*)(Arguments...)>(find_driver_function(name))(arguments...);
}

/// A new context and a new stream on the first device.
class Queue {
public:
    Queue() {
        constexpr unsigned non_blocking = 1;  // CU_STREAM_NON_BLOCKING
        require(call_driver("cuInit", 0u), "cuInit");
        require(call_driver("cuDevicePrimaryCtxRetain", &queue_.context, 0), "cuDevicePrimaryCtxRetain");
        const halyard::cuda::CurrentContext current(queue_.context);
        require(call_driver("cuStreamCreate", &queue_.stream, non_blocking), "cuStreamCreate");
    }
    Queue(const Queue &) = delete;
    Queue &operator=(const Queue &) = delete;
    ~Queue() {
        {
            const halyard::cuda::CurrentContext current(queue_.context);
            call_driver("cuStreamDestroy_v2", queue_.stream);
        }
        call_driver("cuDevicePrimaryCtxRelease_v2", 0);
    }

    const halyard_cuda_queue &get() const noexcept { return queue_; }

private:
    halyard_cuda_queue queue_ = halyard::describe_queue(HALYARD_CUDA, nullptr, nullptr);
};

/// Device memory. The queue's context and stream must live longer.
class Memory {
public:
    Memory(const halyard_cuda_queue &queue, std::size_t n_bytes)  // the driver refuses allocations of 0 bytes
        : queue_(queue), n_bytes_(n_bytes), memory_(halyard::cuda::allocate(queue, std::max<std::size_t>(n_bytes, 1))) {
        require(memory_ == nullptr ? 2 : 0, "the device has no memory for " + std::to_string(n_bytes) + " bytes");
    }
    /// Allocates device memory and copies these values there.
    template <typename Value>
    Memory(const halyard_cuda_queue &queue, const std::vector<Value> &values)
        : Memory(queue, values.size() * sizeof(Value)) {
        write(values);
    }
    Memory(const Memory &) = delete;
    Memory &operator=(const Memory &) = delete;
    ~Memory() { halyard::cuda::release(queue_, memory_); }

    /// write() copies to the start of the memory, read() all of it. Both first wait for all enqueued work.
    template <typename Value>
    void write(const std::vector<Value> &values) const {
        const halyard::cuda::CurrentContext current(queue_.context);
        require(call_driver("cuStreamSynchronize", queue_.stream), "what was enqueued");
        require(halyard::cuda::copy_in(queue_, memory_, values.data(), values.size() * sizeof(Value)), "a copy");
    }
    template <typename Value = char>
    std::vector<Value> read() const {
        std::vector<Value> values(n_bytes_ / sizeof(Value));
        require(halyard::cuda::copy_out(queue_, values.data(), memory_, n_bytes_), "a copy back");
        return values;
    }

    /// The address of a byte offset in the memory.
    void *data(std::int64_t bytes = 0) const noexcept { return static_cast<char *>(memory_) + bytes; }

private:
    halyard_cuda_queue queue_;
    std::size_t n_bytes_;
    void *memory_;
};

}  // namespace cuda_test

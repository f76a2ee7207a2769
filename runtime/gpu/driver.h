// The drivers' own functions, found when they are first needed: whether there is a device, memory on it, and what is
// known of a pointer. Rotating does not come through here, but for looking at pointers.
#pragma once

#include "halyard/halyard.h"
#include "halyard/halyard_gpu.h"

#include <cstddef>
#include <cstdint>

namespace halyard::gpu {

/// Why a device cannot be used, in a few words; an empty string when it can. Looked up once.
const char *why_not(std::int32_t device) noexcept;

/// Fails with HALYARD_ERROR_NO_DEVICE where a device cannot be used.
halyard_status require_device(std::int32_t device, halyard_error *error) noexcept;

/// The context that is current in the calling thread; NULL when there is none. CUDA.
void *current_cuda_context() noexcept;

/// Memory of the device: an address (CUDA) or a cl_mem. NULL where there is none left.
void *allocate(const halyard_gpu_queue &queue, std::size_t n_bytes) noexcept;
void release(const halyard_gpu_queue &queue, void *memory) noexcept;

/// Copies to or from memory and waits until it is done. False where the driver refuses.
bool copy_in(const halyard_gpu_queue &queue, void *memory, const void *data, std::size_t n_bytes) noexcept;
bool copy_out(const halyard_gpu_queue &queue, void *data, void *memory, std::size_t n_bytes) noexcept;

/// What the driver can tell of memory that a caller hands over.
struct MemoryInfo {
    bool is_known;          // of this device, as far as can be told
    bool is_of_context;     // OpenCL: of the plan's context. CUDA: of its device
    std::uint64_t n_bytes;  // OpenCL: the buffer's size. CUDA: unlimited
};
MemoryInfo describe_memory(const halyard_gpu_queue &queue, void *memory) noexcept;

/// OpenCL: what the offset of a part of a buffer has to be a multiple of, in bytes, for the driver to make a handle.
std::uint64_t part_alignment(const halyard_gpu_queue &queue) noexcept;

/// A context and a stream of our own on the first device: for the tool, the tests and the bench. Throws halyard::error
/// where there is none.
class OwnQueue {
public:
    explicit OwnQueue(std::int32_t device);
    OwnQueue(const OwnQueue &) = delete;
    OwnQueue &operator=(const OwnQueue &) = delete;
    ~OwnQueue();

    const halyard_gpu_queue &get() const noexcept { return queue_; }

private:
    OwnQueue() = default;
    halyard_status open(std::int32_t device, halyard_error *error) noexcept;

    halyard_gpu_queue queue_ = {};
};

/// Device memory of our own, for the same.
class OwnMemory {
public:
    /// With a copy of data, which may be NULL. The queue must live longer. Throws halyard::error.
    OwnMemory(const halyard_gpu_queue &queue, const void *data, std::size_t n_bytes);
    OwnMemory(const OwnMemory &) = delete;
    OwnMemory &operator=(const OwnMemory &) = delete;
    ~OwnMemory() { release(queue_, memory_); }

    /// Copies the first n_bytes back, after all that was enqueued. Throws halyard::error.
    void read(void *data, std::size_t n_bytes) const;

    /// What a view takes as its data, and as its offset, for what begins some way into the memory.
    void *data(std::int64_t bytes = 0) const noexcept {
        return is_opencl() ? memory_ : static_cast<char *>(memory_) + bytes;
    }
    std::int64_t offset(std::int64_t elements) const noexcept { return is_opencl() ? elements : 0; }

private:
    explicit OwnMemory(const halyard_gpu_queue &queue) noexcept : queue_(queue) {}

    halyard_gpu_queue queue_;
    void *memory_ = nullptr;

    bool is_opencl() const noexcept { return queue_.device == HALYARD_OPENCL; }
};

}  // namespace halyard::gpu

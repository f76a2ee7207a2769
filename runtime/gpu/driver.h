// The drivers' own functions, found when they are first needed: whether there is a device, memory on it, and what is
// known of a pointer. Launches don't come through here, since Halide's runtime makes them.
#pragma once

#include "halyard/halyard.h"
#include "halyard/halyard_gpu.h"

#include <cstddef>
#include <cstdint>

namespace halyard::gpu {

/// Why a device cannot be used, in a few words; an empty string when it can. Looked up once.
const char *why_not(std::int32_t device) noexcept;

/// Fails where a number names no kind of GPU. `name` is for the message.
halyard_status check_device(const char *name, std::int32_t device, halyard_error *error) noexcept;

/// Fails where a queue is no queue, or its device cannot be used; else copies it, with the context that it stands for.
halyard_status read_queue(const halyard_gpu_queue *queue, halyard_gpu_queue *out, halyard_error *error) noexcept;

/// Memory of the device: an address (CUDA) or a cl_mem. NULL where there is none left.
void *allocate(const halyard_gpu_queue &queue, std::size_t n_bytes) noexcept;
void release(const halyard_gpu_queue &queue, void *memory) noexcept;

/// Copies to or from memory and waits until it, and what was enqueued before, is done. Returns what the driver does: 0,
/// or the number of what went wrong, maybe in a launch before.
int copy_in(const halyard_gpu_queue &queue, void *memory, const void *data, std::size_t n_bytes) noexcept;
int copy_out(const halyard_gpu_queue &queue, void *data, void *memory, std::size_t n_bytes) noexcept;

/// What the driver can tell of memory that a caller hands over.
struct MemoryInfo {
    bool is_known;          // of this device, as far as can be told
    bool is_of_context;     // OpenCL: of the plan's context. CUDA: of its device
    std::uint64_t n_bytes;  // OpenCL: the buffer's size. CUDA: unlimited
};

/// Asks the driver about memory. From the first question on a CUDA queue's context is current in this thread, as long
/// as this lives: to make it so for each would cost more driver calls than the questions.
class MemoryQueries {
public:
    explicit MemoryQueries(const halyard_gpu_queue &queue) noexcept : queue_(queue) {}
    MemoryQueries(const MemoryQueries &) = delete;
    MemoryQueries &operator=(const MemoryQueries &) = delete;
    ~MemoryQueries();

    MemoryInfo describe(void *memory) noexcept;

private:
    const halyard_gpu_queue &queue_;
    bool is_pushed_ = false, was_asked_ = false;
    int device_ = -1;  // CUDA: the context's
};

/// OpenCL: what the offset of a part of a buffer has to be a multiple of, in bytes, for the driver to make a handle.
std::uint64_t part_alignment(const halyard_gpu_queue &queue) noexcept;

}  // namespace halyard::gpu

// Calls of the CUDA driver, which is loaded when first needed: whether there is a device, memory on it, and properties
// of a pointer. Halide's runtime calls the driver for launches, not this file.
#pragma once

#include "halyard/halyard.h"
#include "halyard/halyard_cuda.h"

#include <cstddef>
#include <cstdint>

namespace halyard::cuda {

/// Why CUDA cannot be used, in a few words; an empty string if it can. Determined once.
const char *why_no_cuda() noexcept;

/// The compute capability of the first device, 80 for 8.0; 0 if CUDA cannot be used.
int compute_capability() noexcept;

/// Fails if a number is not HALYARD_CUDA. The message calls the argument `name`.
halyard_status check_is_cuda(const char *name, std::int32_t device, halyard_error *error) noexcept;

/// Copies a queue, with the current context if it has none. Fails if it is not valid or CUDA cannot be used.
halyard_status read_queue(const halyard_cuda_queue *queue, halyard_cuda_queue *out, halyard_error *error) noexcept;

/// Allocates device memory. NULL if the device has no memory left.
void *allocate(const halyard_cuda_queue &queue, std::size_t n_bytes) noexcept;
void release(const halyard_cuda_queue &queue, void *memory) noexcept;

/// Copy to and from device memory, and return when the copy is done. copy_out begins when the queue's stream has
/// finished all earlier work. Return 0 or the driver's error, which an earlier launch may have caused.
int copy_in(const halyard_cuda_queue &queue, void *memory, const void *data, std::size_t n_bytes) noexcept;
int copy_out(const halyard_cuda_queue &queue, void *data, void *memory, std::size_t n_bytes) noexcept;

/// What the driver knows about a pointer.
struct MemoryInfo {
    bool is_known;      // false: not CUDA memory
    bool is_of_device;  // on the queue's device
};

/// Makes a context current in this thread for the life of this object.
class CurrentContext {
public:
    explicit CurrentContext(void *context) noexcept;
    CurrentContext(const CurrentContext &) = delete;
    CurrentContext &operator=(const CurrentContext &) = delete;
    ~CurrentContext();

private:
    bool is_pushed_;
};

/// Asks the driver about pointers, with the queue's context current in this thread for the life of this object, since
/// switching contexts for each pointer would take more driver calls than the queries.
class MemoryQueries {
public:
    explicit MemoryQueries(const halyard_cuda_queue &queue) noexcept;

    MemoryInfo describe(const void *memory) noexcept;
    /// Whether a pointer is to a device's memory; false for host memory, even if the driver knows it (pinned memory).
    bool is_device_memory(const void *memory) noexcept;

private:
    CurrentContext current_;
    int device_ = -1;  // the context's
};

}  // namespace halyard::cuda

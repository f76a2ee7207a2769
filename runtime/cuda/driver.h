// The driver's own functions, found when they are first needed: whether there is a device, memory on it, and what is
// known of a pointer. Launches don't come through here, since Halide's runtime makes them.
#pragma once

#include "halyard/halyard.h"
#include "halyard/halyard_cuda.h"

#include <cstddef>
#include <cstdint>

namespace halyard::cuda {

/// Says in a few words why CUDA cannot be used; the string is empty where it can. The answer is looked up once.
const char *why_no_cuda() noexcept;

/// The compute capability of the first device, 80 for 8.0; 0 where CUDA cannot be used.
int compute_capability() noexcept;

/// Fails if a number is not HALYARD_CUDA. The message calls the argument `name`.
halyard_status check_device(const char *name, std::int32_t device, halyard_error *error) noexcept;

/// Copies a queue, with its context. Fails if it is not valid or its device cannot be used.
halyard_status read_queue(const halyard_cuda_queue *queue, halyard_cuda_queue *out, halyard_error *error) noexcept;

/// Allocates device memory. NULL if the device has no memory left.
void *allocate(const halyard_cuda_queue &queue, std::size_t n_bytes) noexcept;
void release(const halyard_cuda_queue &queue, void *memory) noexcept;

/// Copies to or from device memory, after all that was enqueued, and waits. Returns 0 or the driver's error, which an
/// earlier launch may have caused.
int copy_in(const halyard_cuda_queue &queue, void *memory, const void *data, std::size_t n_bytes) noexcept;
int copy_out(const halyard_cuda_queue &queue, void *data, void *memory, std::size_t n_bytes) noexcept;

/// What the driver can tell of memory that a caller hands over.
struct MemoryInfo {
    bool is_known;  // to the driver
    bool is_of_device;
};

/// Makes a context current in this thread for as long as it lives.
class CurrentContext {
public:
    explicit CurrentContext(void *context) noexcept;
    CurrentContext(const CurrentContext &) = delete;
    CurrentContext &operator=(const CurrentContext &) = delete;
    ~CurrentContext();

private:
    bool is_pushed_;
};

/// Asks the driver about memory, with the queue's context current in this thread until the end of this object:
/// switching for each question would take more driver calls than the questions.
class MemoryQueries {
public:
    explicit MemoryQueries(const halyard_cuda_queue &queue) noexcept;

    MemoryInfo describe(void *memory) noexcept;

private:
    CurrentContext current_;
    int device_ = -1;  // the context's
};

}  // namespace halyard::cuda

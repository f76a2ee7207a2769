// What Halide's runtime asks of us while it launches a kernel: whose context and stream, and where its errors go.
#pragma once

#include <cstdint>

namespace halyard::cuda {

/// One call's context, which kernels take and hand back to the handlers.
struct Call {
    void *context;      // CUcontext
    void *stream;       // CUstream
    char message[200];  // what Halide or the driver says of a failure
};

/// Replaces Halide's handlers, which print and abort, by ours. Any thread may call it, any number of times.
void install_handlers() noexcept;

/// What halyard_buffer.device_interface has to be.
const void *cuda_interface() noexcept;

/// Forgets the modules that were compiled for a context, and unloads them.
void release_context(Call &call) noexcept;

/// Finds libcuda.so.1, which Halide alone would look for under the name that only a development package has. NULL where
/// there is none. It is never closed.
void *find_driver_library() noexcept;

}  // namespace halyard::cuda

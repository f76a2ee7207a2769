// Handlers that Halide's runtime calls while it launches a kernel: for the context and stream, and for its errors.
#pragma once

#include <cstdint>

namespace halyard::cuda {

/// The state of one call, which kernels take as their first argument and Halide passes on to the handlers.
struct Call {
    void *context;      // CUcontext
    void *stream;       // CUstream
    char message[200];  // Halide's or the driver's first error message
};

/// Replaces Halide's default handlers, which print and abort. Any thread may call it, any number of times.
void install_handlers() noexcept;

/// The value of halyard_buffer.device_interface for CUDA memory.
const void *cuda_interface() noexcept;

/// Unloads all modules that Halide has loaded into a context.
void unload_modules(Call &call) noexcept;

/// Opens libcuda.so.1; NULL if there is none. It is never closed. (Halide itself would look for libcuda.so, which only
/// development packages have.)
void *find_driver_library() noexcept;

}  // namespace halyard::cuda

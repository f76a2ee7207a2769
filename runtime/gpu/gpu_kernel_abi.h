// How a GPU's generated kernels are called. All but copies take their arguments by their addresses, because they are
// many: see kernel_arguments.h. First stands a Call (halide_runtime.h), which Halide's runtime hands to our handlers
// while it launches. Kernels return 0, or a negative code.
#pragma once

#include "walk/kernel_abi.h"

#include <cstdint>

namespace halyard::gpu {

using KernelFunction = int (*)(void **arguments);
using CopyFunction = int (*)(const void *context, std::int32_t x_offset, std::int32_t y_offset, halyard_buffer *x,
                             halyard_buffer *y);

}  // namespace halyard::gpu

// Compares the runtime's buffer structs with Halide's. The runtime has its own, so that it does not need Halide.
#include "core/kernel_abi.h"

#include <HalideRuntime.h>

#include <cstddef>

#define SAME_FIELD(ours, halides, field)                                                                               \
    static_assert(offsetof(ours, field) == offsetof(halides, field) && sizeof(ours::field) == sizeof(halides::field))
#define SAME_STRUCT(ours, halides) static_assert(sizeof(ours) == sizeof(halides) && alignof(ours) == alignof(halides))

SAME_STRUCT(halyard_dimension, halide_dimension_t);
SAME_FIELD(halyard_dimension, halide_dimension_t, min);
SAME_FIELD(halyard_dimension, halide_dimension_t, extent);
SAME_FIELD(halyard_dimension, halide_dimension_t, stride);
SAME_FIELD(halyard_dimension, halide_dimension_t, flags);

SAME_STRUCT(halyard_buffer, halide_buffer_t);
SAME_FIELD(halyard_buffer, halide_buffer_t, device);
SAME_FIELD(halyard_buffer, halide_buffer_t, device_interface);
SAME_FIELD(halyard_buffer, halide_buffer_t, host);
SAME_FIELD(halyard_buffer, halide_buffer_t, flags);
SAME_FIELD(halyard_buffer, halide_buffer_t, type);
SAME_FIELD(halyard_buffer, halide_buffer_t, dimensions);
SAME_FIELD(halyard_buffer, halide_buffer_t, dim);
SAME_FIELD(halyard_buffer, halide_buffer_t, padding);

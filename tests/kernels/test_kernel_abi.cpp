// Compares the runtime's buffer structs with Halide's. The runtime has its own, so that it does not need Halide.
#include "core/kernel_abi.h"

#include <HalideRuntime.h>

#include <catch2/catch_test_macros.hpp>

#include <cstddef>

#define SAME_FIELD(ours, halides, field)                                                                               \
    CHECK(offsetof(ours, field) == offsetof(halides, field));                                                          \
    CHECK(sizeof(ours::field) == sizeof(halides::field))

TEST_CASE("kernel ABI: the structs are laid out as HalideRuntime.h says", "[dispatch]") {
    CHECK(sizeof(halyard_dimension) == sizeof(halide_dimension_t));
    CHECK(alignof(halyard_dimension) == alignof(halide_dimension_t));
    SAME_FIELD(halyard_dimension, halide_dimension_t, min);
    SAME_FIELD(halyard_dimension, halide_dimension_t, extent);
    SAME_FIELD(halyard_dimension, halide_dimension_t, stride);
    SAME_FIELD(halyard_dimension, halide_dimension_t, flags);

    CHECK(sizeof(halyard_buffer) == sizeof(halide_buffer_t));
    CHECK(alignof(halyard_buffer) == alignof(halide_buffer_t));
    SAME_FIELD(halyard_buffer, halide_buffer_t, device);
    SAME_FIELD(halyard_buffer, halide_buffer_t, device_interface);
    SAME_FIELD(halyard_buffer, halide_buffer_t, host);
    SAME_FIELD(halyard_buffer, halide_buffer_t, flags);
    SAME_FIELD(halyard_buffer, halide_buffer_t, type);
    SAME_FIELD(halyard_buffer, halide_buffer_t, dimensions);
    SAME_FIELD(halyard_buffer, halide_buffer_t, dim);
    SAME_FIELD(halyard_buffer, halide_buffer_t, padding);
}

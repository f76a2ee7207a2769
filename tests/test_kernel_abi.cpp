// The runtime spells out Halide's buffer structs, so that it builds without Halide: here the two are compared.
#include <cstdint>

namespace ours {
#include "kernel_abi.h"
}
#include <HalideRuntime.h>

#include <catch2/catch_test_macros.hpp>

#include <cstddef>

#define SAME_FIELD(type, field)                                                                                        \
    CHECK(offsetof(ours::type, field) == offsetof(::type, field));                                                     \
    CHECK(sizeof(ours::type::field) == sizeof(::type::field))

TEST_CASE("kernel ABI: the structs are laid out as HalideRuntime.h says", "[dispatch]") {
    CHECK(sizeof(ours::halide_dimension_t) == sizeof(::halide_dimension_t));
    CHECK(alignof(ours::halide_dimension_t) == alignof(::halide_dimension_t));
    SAME_FIELD(halide_dimension_t, min);
    SAME_FIELD(halide_dimension_t, extent);
    SAME_FIELD(halide_dimension_t, stride);
    SAME_FIELD(halide_dimension_t, flags);

    CHECK(sizeof(ours::halide_buffer_t) == sizeof(::halide_buffer_t));
    CHECK(alignof(ours::halide_buffer_t) == alignof(::halide_buffer_t));
    SAME_FIELD(halide_buffer_t, device);
    SAME_FIELD(halide_buffer_t, device_interface);
    SAME_FIELD(halide_buffer_t, host);
    SAME_FIELD(halide_buffer_t, flags);
    SAME_FIELD(halide_buffer_t, type);
    SAME_FIELD(halide_buffer_t, dimensions);
    SAME_FIELD(halide_buffer_t, dim);
    SAME_FIELD(halide_buffer_t, padding);
}

// How a generated kernel is called. The structs are Halide's halide_buffer_t and halide_dimension_t (HalideRuntime.h,
// stable since 2016; a test compares them), spelled out so that the runtime builds without Halide.
#pragma once

#include <cstdint>

struct halide_dimension_t {
    std::int32_t min, extent, stride;
    std::uint32_t flags;
};

struct halide_buffer_t {
    std::uint64_t device;
    const void *device_interface;
    std::uint8_t *host;
    std::uint64_t flags;
    std::uint32_t type;  // a halide_type_t
    std::int32_t dimensions;
    halide_dimension_t *dim;
    void *padding;
};

namespace halyard {

/// The inputs and the output of rope_generator.cpp, in its order. Returns 0.
using KernelFunction = int (*)(halide_buffer_t *row_of_token, halide_buffer_t *cos_rows, halide_buffer_t *sin_rows,
                               std::uint32_t sin_sign, halide_buffer_t *x, halide_buffer_t *y);

/// The same for rows_generator.cpp.
using PhaseRowsFunction = int (*)(halide_buffer_t *position, halide_buffer_t *turns_high, halide_buffer_t *turns_low,
                                  float scale_high, float scale_low, halide_buffer_t *rows);
using FactoredRowsFunction = int (*)(halide_buffer_t *coarse_row, halide_buffer_t *fine_row, halide_buffer_t *coarse,
                                     halide_buffer_t *fine, halide_buffer_t *rows);

}  // namespace halyard

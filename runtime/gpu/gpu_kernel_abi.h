// How a GPU's generated kernels are called: the inputs of rope_generator.cpp and device_generator.cpp, in their order.
// Before them stands a Call (halide_runtime.h), which Halide's runtime hands to our handlers while it launches. Kernels
// return 0, or a negative code.
#pragma once

#include "rotate/kernel_abi.h"

#include <cstdint>

namespace halyard::gpu {

/// Where positions are, and which of them have angles: see DevicePositions in generators/angles.h.
#define HALYARD_GPU_POSITIONS                                                                                          \
    halyard_buffer *positions, std::int32_t n_words, std::int32_t position_offset, std::int64_t start,                 \
        std::int32_t step, std::int32_t first, std::int32_t last
#define HALYARD_GPU_TENSORS                                                                                            \
    std::uint32_t sin_sign, std::int32_t x_offset, std::int32_t y_offset, halyard_buffer *x, halyard_buffer *y

using TableFunction = int (*)(const void *context, HALYARD_GPU_POSITIONS, halyard_buffer *axis_of_pair,
                              std::int32_t clamps, halyard_buffer *cos_rows, halyard_buffer *sin_rows,
                              std::int32_t cos_offset, std::int32_t sin_offset, std::int32_t row_of_zero,
                              HALYARD_GPU_TENSORS);
using PhaseFunction = int (*)(const void *context, HALYARD_GPU_POSITIONS, halyard_buffer *axis_of_pair,
                              std::int32_t clamps, halyard_buffer *turns_high, halyard_buffer *turns_low,
                              float scale_high, float scale_low, HALYARD_GPU_TENSORS);
using CheckFunction = int (*)(const void *context, HALYARD_GPU_POSITIONS, std::int32_t code, std::int32_t word_offset,
                              halyard_buffer *word);
using CopyFunction = int (*)(const void *context, std::int32_t x_offset, std::int32_t y_offset, halyard_buffer *x,
                             halyard_buffer *y);

/// A road's kernel takes its arguments by their addresses, in the order of road_generator.cpp: there are many.
using RoadFunction = int (*)(void **arguments);

}  // namespace halyard::gpu

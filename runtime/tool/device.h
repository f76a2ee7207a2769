// Rotating on a GPU, for tools that are built with halyard::gpu: only those link device.cpp.
#pragma once

#include "tool/options/angle_options.h"

#include "halyard/halyard_gpu.hpp"

#include <cstddef>
#include <cstdint>
#include <string>

namespace halyard::tool {

#if HALYARD_TOOL_HAS_GPU
inline constexpr bool has_gpu = true;
#else
inline constexpr bool has_gpu = false;
#endif

/// HALYARD_CUDA or HALYARD_OPENCL where that is the target's name, else HALYARD_CPU.
inline std::int32_t device_of(const std::string &target) {
    return !has_gpu                ? HALYARD_CPU
           : target == "cuda_sm80" ? HALYARD_CUDA
           : target == "opencl"    ? HALYARD_OPENCL
                                   : HALYARD_CPU;
}

/// The source for a device, which finds rows by subtraction: it covers all positions between the least and the
/// greatest.
angle_source make_device_source(const frequencies &made, std::int32_t reference, const AngleOptions &options,
                                const TokenPositions &positions);

/// What a rotation on a device needs, all of it in the host's memory.
struct DeviceRotation {
    std::int32_t device;
    plan_desc desc;              // no target in it
    const angle_source &angles;  // of frequencies, or of
    const NpyArray &rows;        // [tokens, 2, pairs], where this has a shape
    const run_options &how;      // whose positions are dense, and int64
    halyard_tensor x, y;         // dense, of n_bytes; of the same memory where x is rotated in place
    std::size_t n_bytes;
};

/// Copies x in, rotates on the first device, and copies y out.
void rotate_on_device(const DeviceRotation &rotation);

}  // namespace halyard::tool

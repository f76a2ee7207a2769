// Rotating on a GPU, for tools that are built with halyard::gpu.
#pragma once

#include "tool/inputs.h"

#include "halyard/halyard_gpu.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace halyard::tool {

/// HALYARD_CUDA or HALYARD_OPENCL where that is the target's name, else HALYARD_CPU.
std::int32_t device_of(const std::string &target);

/// The source for a device, which finds rows by subtraction: it covers all positions between the least and the
/// greatest.
angle_source make_device_source(const frequencies &frequencies, const std::string &angles, const std::string &reference,
                                const AxisMapOption &axes, std::optional<std::int64_t> max_position,
                                const TokenPositions &positions);

/// What a rotation on a device needs, all of it in the host's memory.
struct DeviceRotation {
    std::int32_t device;
    plan_desc desc;                      // no target in it
    const angle_source *angles;          // NULL: of rows
    const NpyArray *rows;                // [tokens, 2, pairs]
    const halyard_positions *positions;  // NULL: 0, 1, 2, … ; dense
    bad_position policy;
    bool in_place;
    halyard_tensor x, y;  // dense, of n_bytes
    std::size_t n_bytes;
};

/// Copies x in, rotates on the first device, and copies y out.
void rotate_on_device(const DeviceRotation &rotation);

}  // namespace halyard::tool

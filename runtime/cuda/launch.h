// Launches of rotations, copies and checks. A kernel can index 2^31 - 1 elements and grids are limited, so a large
// piece of a tensor takes several launches. why_not refuses a tensor if not even one head of it can be launched.
#pragma once

#include "core/check_and_bind.h"
#include "cuda/cuda_angles.h"
#include "cuda/cuda_kernels.h"
#include "cuda/halide_runtime.h"

namespace halyard::cuda {

inline constexpr std::int64_t most_blocks = 65535;        // CUDA's limit to a grid's second and third dimension
inline constexpr std::int64_t most_elements = INT32_MAX;  // Halide's indices, extents and their product have 32 bits

/// An address in device memory. 0: there is no array.
using Address = std::uintptr_t;

inline Address address_of(const void *memory) { return reinterpret_cast<Address>(memory); }
inline Address moved(Address place, std::int64_t bytes) { return place + static_cast<Address>(bytes); }

/// The address of a zero in device memory, which is read where positions are not given; start and step are added to it.
inline Address address_of_zero_position(const DeviceAngles &angles) {
    return moved(address_of(angles.axis_of_pair), angles.source.rotary_dim / 2 * std::int64_t{sizeof(std::int32_t)});
}

/// The positions or slots of a launch: those in device memory, plus start + step * (the token's number).
struct LaunchPositions {
    Address place;
    std::int32_t n_words;  // 1: int32; 2: int64
    std::int64_t start;
    std::int32_t step;
    std::int64_t stride_token, stride_axis;  // in positions
};

/// Strides of a tensor, in elements.
struct Strides {
    std::int64_t token, head, element;
};

inline Strides strides_of(const Side &side) { return {side.token, side.head, side.element}; }

/// Some heads of each token, of one tensor or of several whose heads are adjacent.
struct Heads {
    const TensorPlan *tensor_plan;
    Address x, y;  // of the first head of the first token
    Strides in, out;
    std::int64_t n_heads;
    bool in_place;
};

/// Some heads of some tokens, and some columns (elements) of each head, which are rotated as pairs or copied.
struct DevicePiece : Heads {
    std::int64_t rotary_dim;  // 0: columns are copied
    std::int64_t n_columns;   // the number of pairs to rotate, or of columns to copy
    std::int64_t n_tokens;
    LaunchPositions positions;
};

/// Calls part(i) for i = 0 … n - 1 until one returns an error. Returns 0 or that error.
template <typename Part>
int until_error(std::int64_t n, const Part &part) {
    int status = 0;
    for (std::int64_t i = 0; i < n && status == 0; i++) {
        status = part(i);
    }
    return status;
}

/// The arguments that all launches of a run share.
struct Launch {
    const DeviceAngles *angles;
    std::uint32_t sin_sign;
    bool clamps;
};

/// Whether a kernel can rotate a piece with its alignment and strides.
bool takes(const CudaKernel &kernel, const DevicePiece &piece) noexcept;

/// Enqueues the rotation of a piece that one launch can do. Like the next three, returns 0 or the kernel's error.
int launch_rotation(const CudaKernel &kernel, const Launch &launch, const DevicePiece &piece, Call &call) noexcept;

/// Enqueues the rotation of a piece, in as many launches as it needs.
int rotate_on_device(const Launch &launch, const DevicePiece &whole, Call &call) noexcept;

/// Enqueues a copy of a piece from x to y.
int copy_on_device(const DevicePiece &whole, Call &call) noexcept;

/// The valid positions or slots, first … last, on each of n_axes axes.
struct ValidRange {
    std::int32_t first, last, n_axes;
};

inline ValidRange positions_of_source(const DeviceAngles &angles) {
    const halyard_angle_source &source = angles.source;
    return {static_cast<std::int32_t>(source.first), static_cast<std::int32_t>(source.last), source.axes.n_axes};
}

/// Enqueues a check that sets `word` to the error `code` if a position is not valid. To check slots, pass them as
/// `positions`. If `slots` has an address (place), tokens with slot -1 are not checked.
int check_on_device(const LaunchPositions &positions, const LaunchPositions &slots, std::int64_t n_tokens,
                    const ValidRange &valid, std::int32_t code, Address word, Call &call) noexcept;

/// Why heads cannot be rotated, in a few words; NULL if they can.
const char *why_not(const Heads &heads) noexcept;

/// The same for the positions or slots of some tokens.
const char *why_not(const LaunchPositions &positions, std::int64_t n_tokens, std::int32_t n_axes) noexcept;

}  // namespace halyard::cuda

// Launches of kernels on pieces of tensors. A kernel reaches 2^31 - 1 elements and grids are limited, so a large piece
// takes several launches. why_not refuses what no launch can reach.
#pragma once

#include "core/program.h"
#include "cuda/cuda_angles.h"
#include "cuda/cuda_kernels.h"
#include "cuda/halide_runtime.h"

namespace halyard::cuda {

inline constexpr std::int64_t most_blocks = 65535;        // CUDA's limit to a grid's second and third dimension
inline constexpr std::int64_t most_elements = INT32_MAX;   // Halide's indices, extents and their product have 32 bits

/// Where an array begins in device memory. 0: there is none.
using Address = std::uintptr_t;

inline Address address_of(const void *memory) { return reinterpret_cast<Address>(memory); }
inline Address moved(Address place, std::int64_t bytes) { return place + static_cast<Address>(bytes); }

/// A zero in device memory: the position of every token where positions are counted from a start.
inline Address counted_positions(const DeviceAngles &angles) {
    return moved(address_of(angles.axis_of_pair), angles.source.rotary_dim / 2 * std::int64_t{sizeof(std::int32_t)});
}

/// A launch's positions, or slots, on the device.
struct LaunchPositions {
    Address place;
    std::int32_t n_words;                    // 2: int64
    std::int64_t start;                      // is added to every position,
    std::int32_t step;                       // and this times the token's number
    std::int64_t stride_token, stride_axis;  // in positions
};

/// How heads lie, in elements.
struct Strides {
    std::int64_t token, head, element;
};

inline Strides strides_of(const Side &side) { return {side.token, side.head, side.element}; }

/// Some heads of each token: of one tensor, or of several that are adjacent.
struct Heads {
    const TensorPlan *desc;
    Address x, y;  // the first head of the first token
    Strides in, out;
    std::int64_t n_heads;
};

/// Some heads of some tokens, and of each head some pairs that are rotated, or columns that are copied.
struct DevicePiece : Heads {
    bool in_place;
    std::int64_t rotary_dim;  // 0: columns are copied
    std::int64_t n_columns;   // pairs or columns
    std::int64_t n_tokens;
    LaunchPositions positions;
};

/// Calls part(i) for each i below n until one does not return 0; returns what the last one has returned.
template <typename Part>
int until_error(std::int64_t n, const Part &part) {
    int status = 0;
    for (std::int64_t i = 0; i < n && status == 0; i++) {
        status = part(i);
    }
    return status;
}

/// What all launches of a run share.
struct Launch {
    const DeviceAngles *angles;
    std::uint32_t sin_sign;
    bool clamps;
};

/// Whether a kernel rotates a piece as it lies.
bool takes(const CudaKernel &kernel, const DevicePiece &piece) noexcept;

/// Enqueues the rotation of a piece that one launch can hold. Like the next three, returns 0 or what a kernel returned.
int launch_rotation(const CudaKernel &kernel, const Launch &launch, const DevicePiece &piece, Call &call) noexcept;

/// Enqueues the rotation of all pairs, in as many launches as it takes.
int rotate_on_device(const Launch &launch, DevicePiece piece, Call &call) noexcept;

/// Enqueues a copy of some columns of every head from x to y.
int copy_on_device(DevicePiece piece, std::int64_t n_columns, Call &call) noexcept;

/// The numbers that are valid: those from first to last.
struct ValidRange {
    std::int32_t first, last, n_axes;
};

inline ValidRange positions_of_source(const DeviceAngles &angles) {
    const halyard_angle_source &source = angles.source;
    return {static_cast<std::int32_t>(source.first), static_cast<std::int32_t>(source.last), source.axes.n_axes};
}

/// Sets a word to the code of an error if some position, or slot, is not covered: of all tokens or, where slots have a
/// place, of those whose slot is not -1.
int check_on_device(const LaunchPositions &positions, const LaunchPositions &slots, std::int64_t n_tokens,
                    const ValidRange &valid, std::int32_t code, Address word, Call &call) noexcept;

/// Says in a few words why a piece cannot be enqueued; the string is empty where it can.
const char *why_not(const DevicePiece &piece) noexcept;

/// Likewise for the positions or slots of some tokens.
const char *why_not(const LaunchPositions &positions, std::int64_t n_tokens, std::int32_t n_axes) noexcept;

}  // namespace halyard::cuda

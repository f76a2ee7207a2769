// Launches of kernels on pieces of tensors. A kernel reaches 2^31 - 1 elements and grids are limited, so a large piece
// takes several launches. why_not refuses what no launch can reach.
#pragma once

#include "core/program.h"
#include "cuda/cuda_angles.h"
#include "cuda/halide_runtime.h"

#include <algorithm>
#include <cstdlib>

namespace halyard::cuda {

inline constexpr std::int64_t most_blocks = 65535;         // CUDA's limit to a grid's second and third dimension
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

    /// How many tokens' one launch can reach: of two words, on all axes, and as far apart as they are.
    std::int64_t most_tokens() const {
        const std::int64_t by_stride = most_elements / std::max<std::int64_t>(1, 2 * std::abs(stride_token));
        return std::max<std::int64_t>(1, std::min(by_stride, most_elements / 2 / HALYARD_MAX_AXES));
    }
};

/// The positions of the tokens from `token` on.
inline LaunchPositions from_token(std::int64_t token, LaunchPositions positions) {
    positions.place = moved(positions.place, token * positions.stride_token * positions.n_words * 4);
    positions.start += token * positions.step;
    return positions;
}

/// How heads lie, in elements.
struct Strides {
    std::int64_t token, head, element;
};

inline Strides strides_of(const Side &side) { return {side.token, side.head, side.element}; }

/// Some heads of some tokens of one tensor, and of each head some pairs that are rotated, or columns that are copied.
struct DevicePiece {
    Dtype dtype;
    Pairing pairing, out_pairing;
    bool in_place;
    Address x, y;  // the first pair or column of the first head of the first token
    Strides in, out;
    std::int64_t rotary_dim;        // 0: columns are copied
    std::int64_t first, n_columns;  // pairs or columns; of pairs the number of the first
    std::int64_t n_heads, n_tokens;
    LaunchPositions positions;
};

/// Calls part(first, count) for each `at_once` of n, until one does not return 0; returns what the last one has
/// returned.
template <typename Part>
int in_steps(std::int64_t n, std::int64_t at_once, const Part &part) {
    int status = 0;
    for (std::int64_t at = 0; at < n && status == 0; at += at_once) {
        status = part(at, std::min(at_once, n - at));
    }
    return status;
}

/// What all launches of a run share.
struct Launch {
    const DeviceAngles *angles;
    std::uint32_t sin_sign;
    bool clamps;
};

/// Enqueues the rotation of all pairs, in as many launches as it takes. Like the next two, returns 0 or what a kernel
/// returned.
int rotate_on_device(const Launch &launch, DevicePiece piece, Call &call) noexcept;

/// Enqueues a copy of some columns of every head from x to y.
int copy_on_device(DevicePiece piece, std::int64_t n_columns, Call &call) noexcept;

/// The numbers that are valid: those from first to last.
struct Covered {
    std::int32_t first, last, n_axes;
};

inline Covered positions_of_source(const DeviceAngles &angles) {
    const halyard_angle_source &source = angles.source;
    return {static_cast<std::int32_t>(source.first), static_cast<std::int32_t>(source.last), source.axes.n_axes};
}

/// Sets a word to the code of an error if some position, or slot, is not covered: of all tokens or, where slots have a
/// place, of those whose slot is not -1.
int check_on_device(const LaunchPositions &positions, const LaunchPositions &slots, std::int64_t n_tokens,
                    const Covered &covered, std::int32_t code, Address word, Call &call) noexcept;

/// Says in a few words why a piece cannot be enqueued; the string is empty where it can.
const char *why_not(const DevicePiece &piece) noexcept;

/// Likewise for positions and slots.
const char *why_not(const LaunchPositions &positions, std::int32_t n_axes) noexcept;

}  // namespace halyard::cuda

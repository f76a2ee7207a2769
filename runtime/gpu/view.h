// What kernels see of an array: Halide's buffers.
#pragma once

#include "gpu/launch.h"
#include "walk/kernel_abi.h"

#include <algorithm>
#include <cstdlib>
#include <type_traits>

namespace halyard::gpu {

/// halide_type_t: code, bits, and one lane.
template <typename T>
inline constexpr auto type_code = std::is_floating_point_v<T> ? 2u
                                  : std::is_unsigned_v<T>     ? 1u
                                                              : 0u;
template <typename T>
inline constexpr std::uint32_t halide_type = type_code<T> | 8 * sizeof(T) << 8 | 1 << 16;
constexpr std::int64_t bytes_of(std::uint32_t type) { return (type >> 8 & 0xff) / 8; }

inline constexpr std::uint64_t is_on_device = 2;  // halide_buffer_device_dirty

inline constexpr std::int64_t most_elements = INT32_MAX;  // Halide's indices, extents and their product have 32 bits
inline constexpr std::uint64_t wide_bytes = 16;           // of an access of 128 bits

inline std::int64_t distance(std::int64_t stride) { return std::abs(stride); }

/// What stays where it is, because its address is taken.
struct Fixed {
    Fixed() = default;
    Fixed(const Fixed &) = delete;
    Fixed &operator=(const Fixed &) = delete;
};

/// A kernel's view of an array. The last of its dimensions, at most five, stands for the offset: it ends just behind
/// it.
class View : Fixed {
public:
    View(const Launch &launch, const Location &place, std::uint32_t type) : buffer_{}, dims_{} {
        std::int64_t offset = place.offset;
        if (launch.queue->device == HALYARD_OPENCL) {
            // A part of a buffer can only begin at certain addresses; the rest of the way is an index.
            const std::int64_t rest = offset % static_cast<std::int64_t>(launch.part_alignment);
            memory_ = {static_cast<std::uint64_t>(offset - rest), place.memory};
            buffer_.device = reinterpret_cast<std::uintptr_t>(&memory_);
            buffer_.device_interface = opencl_interface();
            offset = rest;
        } else {
            buffer_.device = reinterpret_cast<std::uintptr_t>(place.memory) + static_cast<std::uint64_t>(offset);
            buffer_.device_interface = cuda_interface();
            offset = 0;
        }
        offset_ = static_cast<std::int32_t>(offset / bytes_of(type));
        buffer_.flags = is_on_device;
        buffer_.type = type;
        buffer_.dim = dims_;
    }

    View &add(std::int64_t extent, std::int64_t stride) {
        // A stride that is not walked may be anything at all; a stride of 1 is what a kernel counts on.
        const bool is_walked = extent > 1 || stride == 1;
        dims_[buffer_.dimensions++] = {0, static_cast<std::int32_t>(extent),
                                       static_cast<std::int32_t>(is_walked ? stride : 0), 0};
        return *this;
    }
    void add_offset() { add(offset_ + 1, 1); }

    std::int32_t offset() const { return offset_; }
    halyard_buffer *get() { return &buffer_; }

private:
    halyard_buffer buffer_;
    halyard_dimension dims_[5];
    OpenClMemory memory_{};
    std::int32_t offset_ = 0;
};

/// Whether no view can walk a stride: with OpenCL nothing lies before a buffer's part. Then a launch takes one step.
inline bool is_unwalkable(const Launch &launch, std::int64_t stride) {
    return launch.queue->device == HALYARD_OPENCL && stride < 0;
}

/// The bytes from where a view of an array can begin to the array's first element. An index goes this way.
inline std::int64_t bridged(const Launch &launch, const Location &place) {
    return launch.queue->device == HALYARD_OPENCL ? place.offset % static_cast<std::int64_t>(launch.part_alignment) : 0;
}

inline std::uint64_t address_bits(const Launch &launch, const Location &place) {
    // OpenCL buffers start at the greatest alignment of any type.
    const auto base = launch.queue->device == HALYARD_OPENCL ? 0 : reinterpret_cast<std::uintptr_t>(place.memory);
    return base + static_cast<std::uint64_t>(place.offset);
}

/// How many tokens' positions one launch can reach: of two words, on all axes, and as far apart as they are.
inline std::int64_t most_positions(const Launch &launch, const LaunchPositions &positions) {
    const std::int64_t by_stride = most_elements / std::max<std::int64_t>(1, 2 * distance(positions.stride_token));
    const auto by_number = most_elements / static_cast<std::int64_t>(launch.part_alignment) / 2 / HALYARD_MAX_AXES;
    return is_unwalkable(launch, positions.stride_token) ? 1
                                                         : std::max<std::int64_t>(1, std::min(by_stride, by_number));
}

}  // namespace halyard::gpu

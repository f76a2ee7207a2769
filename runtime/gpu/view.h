// What kernels see of an array: Halide's buffers.
#pragma once

#include "core/kernel_abi.h"
#include "gpu/launch.h"

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

/// A kernel's view of an array of at most four dimensions.
class View : Fixed {
public:
    View(Address place, std::uint32_t type) : buffer_{}, dims_{} {
        buffer_.device = place;
        buffer_.device_interface = cuda_interface();
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
    halyard_buffer *get() { return &buffer_; }

private:
    halyard_buffer buffer_;
    halyard_dimension dims_[4];
};

/// How many tokens' positions one launch can reach: of two words, on all axes, and as far apart as they are.
inline std::int64_t most_positions(const LaunchPositions &positions) {
    const std::int64_t by_stride = most_elements / std::max<std::int64_t>(1, 2 * distance(positions.stride_token));
    return std::max<std::int64_t>(1, std::min(by_stride, most_elements / 2 / HALYARD_MAX_AXES));
}

}  // namespace halyard::gpu

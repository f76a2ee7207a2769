// The arguments of a kernel's call: their addresses, in the order of launch_fields.h. Arrays are halide_buffer_t.
#pragma once

#include "core/kernel_abi.h"
#include "cuda/launch.h"
#include "cuda/launch_fields.h"

#include <type_traits>

namespace halyard::cuda {

/// Halide's halide_type_t as a number: code, bits, and one lane.
template <typename T>
inline constexpr auto type_code = std::is_floating_point_v<T> ? 2u
                                  : std::is_unsigned_v<T>     ? 1u
                                                              : 0u;
template <typename T>
inline constexpr std::uint32_t halide_type = type_code<T> | 8 * sizeof(T) << 8 | 1 << 16;

/// A base of classes that cannot be copied or moved, because a list holds their addresses.
struct Fixed {
    Fixed() = default;
    Fixed(const Fixed &) = delete;
    Fixed &operator=(const Fixed &) = delete;
};

/// The buffer by which a kernel gets an array of at most four dimensions.
class View : Fixed {
public:
    View(Address place, std::uint32_t type) : buffer_{}, dims_{} {
        constexpr std::uint64_t is_on_device = 2;  // halide_buffer_device_dirty
        buffer_.device = place;
        buffer_.device_interface = cuda_interface();
        buffer_.flags = is_on_device;
        buffer_.type = type;
        buffer_.dim = dims_;
    }

    /// Sets the address of its first element. Its dimensions are still to be added.
    View &begin_at(Address place) {
        buffer_.device = place;
        return *this;
    }
    View &add(std::int64_t extent, std::int64_t stride) {
        // The caller's stride of a dimension of size 1 may be anything; but kernels rely on strides of 1.
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

/// The list of addresses of a call's arguments, which must live until the kernel is called.
class Arguments : Fixed {
public:
    /// The list's entry for the next argument.
    void **next() { return &list_[n_++]; }
    void add(View &view) { *next() = view.get(); }

    /// The whole list, with the call's context as its first argument.
    void **get(const Call &call) {
        context_ = &call;
        list_[0] = &context_;
        return list_;
    }

private:
    const void *context_ = nullptr;
    void *list_[192];
    int n_ = 1;
};

/// The Side of LaunchFields for the runtime: each field is an argument of a call.
struct ArgumentSide {
    using Owner = Arguments;

    template <typename T>
    class Scalar : Fixed {
    public:
        Scalar(Arguments &all, const char *) { *all.next() = &value_; }
        Scalar &operator=(T value) {
            value_ = value;
            return *this;
        }

    private:
        T value_ = {};
    };

    template <typename T>
    class OfTensors : Fixed {
    public:
        OfTensors(Arguments &all, const char *) {
            for (T &value : values_) {
                *all.next() = &value;
            }
        }
        T &operator[](int i) { return values_[i]; }

    private:
        T values_[HALYARD_MAX_TENSORS] = {};
    };

    template <typename T, int n_dims>
    class Array : public View {
    public:
        Array(Arguments &all, const char *) : View(0, halide_type<T>) { all.add(*this); }
    };
};

using Fields = LaunchFields<ArgumentSide>;

inline void set_positions(Fields::Positions &to, const LaunchPositions &given, std::int64_t n_tokens,
                          const ValidRange &valid) {
    to.positions.begin_at(given.place)
        .add(given.n_words, 1)
        .add(n_tokens, given.stride_token * given.n_words)
        .add(valid.n_axes, given.stride_axis * given.n_words);
    to.start = given.start;
    to.step = given.step;
    to.first = valid.first;
    to.last = valid.last;
}

/// Sets the slots of some tokens, for a check or for the KV path. A kernel loads slots even if there are none, and
/// ignores them; then `fallback` gives it readable memory.
template <typename AnyFields>
void set_slots(AnyFields &to, const LaunchPositions &slots, const LaunchPositions &fallback, std::int64_t n_tokens) {
    const LaunchPositions &given = slots.place != 0 ? slots : fallback;
    to.slots.begin_at(given.place).add(given.n_words, 1).add(n_tokens, given.stride_token * given.n_words);
}

/// Sets the positions of some tokens, and the angles of pairs.
inline void set_angles(Fields::Angles &to, const Launch &launch, const LaunchPositions &positions,
                       std::int64_t n_tokens, std::int64_t n_pairs) {
    const DeviceAngles &angles = *launch.angles;
    const halyard_angle_source &source = angles.source;
    set_positions(to.positions, positions, n_tokens, positions_of_source(angles));
    to.axis_of_pair.begin_at(address_of(angles.axis_of_pair)).add(n_pairs, 1);
    to.clamps = launch.clamps;
    to.form = static_cast<std::int32_t>(angles.form);
    const auto set_rows = [&](auto &rows, const void *memory) {
        rows.begin_at(address_of(memory)).add(n_pairs, 1).add(angles.n_rows, source.stride_row);
    };
    set_rows(to.first_rows, angles.first_rows);  // a kernel reads rows as floats or, as `form` says, as 16-bit words
    set_rows(to.second_rows, angles.second_rows);
    set_rows(to.first_halves, angles.first_rows);
    set_rows(to.second_halves, angles.second_rows);
    to.row_of_zero = source.identity_row;
    to.scale_high = source.scale_high;
    to.scale_low = source.scale_low;
    to.sin_sign = launch.sin_sign;
}

}  // namespace halyard::cuda

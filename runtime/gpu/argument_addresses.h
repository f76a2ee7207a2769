// The arguments of a kernel's call: their addresses, in the order of launch_fields.h.
#pragma once

#include "gpu/launch_fields.h"
#include "gpu/view.h"

#include <optional>

namespace halyard::gpu {

/// Holds addresses. What they point to must live until the kernel is called.
class Arguments : Fixed {
public:
    /// The place of the next argument.
    void **next() { return &list_[n_++]; }
    void add(View &view) { *next() = view.get(); }

    /// All of them, behind the call's context.
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

/// The Side of LaunchFields that is the arguments of a call.
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
    class Array : Fixed {
    public:
        Array(Arguments &all, const char *) : place_(all.next()) {}
        /// Sets where it begins. Its n_dims dimensions are still to be added.
        View &begin_at(Address place) {
            View &view = view_.emplace(place, halide_type<T>);
            *place_ = view.get();
            return view;
        }

    private:
        void **place_;
        std::optional<View> view_;
    };
};

using Fields = LaunchFields<ArgumentSide>;

inline void set_positions(Fields::Positions &to, const LaunchPositions &given, std::int64_t n_tokens,
                          const Covered &covered) {
    to.positions.begin_at(given.place)
        .add(given.n_words, 1)
        .add(n_tokens, given.stride_token * given.n_words)
        .add(covered.n_axes, given.stride_axis * given.n_words);
    to.start = given.start;
    to.step = given.step;
    to.first = covered.first;
    to.last = covered.last;
}

/// Sets the slots of some tokens: those of a check, or of the KV path.
template <typename AnyFields>
void set_slots(AnyFields &to, const LaunchPositions &given, std::int64_t n_tokens) {
    to.slots.begin_at(given.place).add(given.n_words, 1).add(n_tokens, given.stride_token * given.n_words);
}

/// Some of the pairs of each head.
struct PairRange {
    std::int64_t first, count;
};

/// Sets the positions of some tokens, and the angles of some pairs.
inline void set_angles(Fields::Angles &to, const Launch &launch, const LaunchPositions &positions,
                       std::int64_t n_tokens, const PairRange &pairs) {
    const DeviceAngles &angles = *launch.angles;
    const halyard_angle_source &source = angles.source;
    set_positions(to.positions, positions, n_tokens, positions_of_source(angles));
    to.axis_of_pair.begin_at(moved(address_of(angles.axis_of_pair), 4 * pairs.first)).add(pairs.count, 1);
    to.clamps = launch.clamps;
    to.form = static_cast<std::int32_t>(angles.form);
    // A kernel reads the rows either as floats or as halves.
    const std::int64_t bytes = angles.form == AngleForm::rows_f16 || angles.form == AngleForm::rows_bf16 ? 2 : 4;
    const auto set_rows = [&](auto &floats, auto &halves, const void *memory) {
        const Address first = moved(address_of(memory), pairs.first * bytes);
        floats.begin_at(first).add(pairs.count, 1).add(angles.n_rows, source.stride_row);
        halves.begin_at(first).add(pairs.count, 1).add(angles.n_rows, source.stride_row);
    };
    set_rows(to.first_rows, to.first_halves, angles.first_rows);
    set_rows(to.second_rows, to.second_halves, angles.second_rows);
    to.row_of_zero = source.identity_row;
    to.scale_high = source.scale_high;
    to.scale_low = source.scale_low;
    to.sin_sign = launch.sin_sign;
}

}  // namespace halyard::gpu

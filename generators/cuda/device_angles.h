// How GPU kernels get cos and sin: from positions in device memory and an angle source of any kind.
#pragma once

#include "arithmetic/angles.h"
#include "arithmetic/storage.h"
#include "cuda/fields.h"

namespace halyard {

/// A token's position or slot, in an array [word, token, …] of one word (int32) or two (int64, the lower word first).
template <typename Array, typename... Indices>
Expr read_as_int64(const Array &array, const Indices &...indices) {
    const Expr last = unsafe_promise_clamped(array.dim(0).extent(), 1, 2) - 1;
    const Expr low = array(0, indices...), high = array(last, indices...);
    const Expr wide = (cast<int64_t>(high) << 32) | cast<int64_t>(cast<uint32_t>(low));
    return select(last == 1, wide, cast<int64_t>(low));
}

/// Positions in device memory, and the range first … last that the angle source covers.
class DevicePositions {
public:
    explicit DevicePositions(const Fields::Positions &given) : in(given) {}

    void constrain() const { begin_at_zero(*in.positions); }

    Expr n_tokens() const { return in.positions->dim(1).extent(); }
    Expr n_axes() const { return in.positions->dim(2).extent(); }

    /// The position of a token on an axis, in 64 bits.
    Expr at(const Expr &token, const Expr &axis) const {
        // A position beyond int32 is bad, whatever its value, so it may be clamped to keep the sum below from wrapping.
        const Expr far = Halide::Internal::make_const(Halide::Int(64), int64_t(1) << 61);
        const Expr given = Halide::clamp(read_as_int64(*in.positions, token, axis), -far, far);
        return given + *in.start + cast<int64_t>(token * *in.step);
    }

    /// The nearest position in first … last.
    Expr nearest(const Expr &position) const {
        return Halide::clamp(position, cast<int64_t>(*in.first), cast<int64_t>(*in.last));
    }

    /// Whether the angle source covers a position.
    Expr covers(const Expr &position) const { return position == nearest(position); }

private:
    const Fields::Positions &in;
};

/// An angle source of any kind. Kernels branch by its kind, and all threads take the same branch.
class DeviceAngles {
public:
    explicit DeviceAngles(const Fields::Angles &given) : in(given), positions(given.positions) {}

    void constrain() const {
        positions.constrain();
        begin_at_zero(*in.axis_of_pair, *in.first_rows, *in.second_rows, *in.first_halves, *in.second_halves);
    }

    /// What the angles of a token depend on, on one axis.
    struct Place {
        Expr at;          // the row of cos and sin; for AngleForm::phase the position. Bad positions are replaced
        Expr is_covered;  // whether the source covers the token's position
    };
    Place place(const Expr &axis, const Expr &token) const {
        const Expr exact = positions.at(token, axis), is_covered = positions.covers(exact);
        const Expr nearest = cast<int32_t>(positions.nearest(exact));
        const Expr first = select(is(AngleForm::phase), 0, *in.positions.first);
        const Expr from_first = cast<int32_t>(cast<uint32_t>(nearest) - cast<uint32_t>(first));
        const Expr zero = select(is(AngleForm::phase), 0, *in.row_of_zero);
        return {select(is_covered || *in.clamps != 0, from_first, zero), is_covered};
    }

    /// The axis of a pair.
    Expr axis(const Expr &pair) const {
        const Expr its = unsafe_promise_clamped((*in.axis_of_pair)(existing(pair)), 0, n_axes() - 1);
        // if_then_else evaluates only one of its values, unlike select.
        return Halide::Internal::Call::make(its.type(), Halide::Internal::Call::if_then_else, {has_one_axis(), 0, its},
                                            Halide::Internal::Call::PureIntrinsic);
    }

    /// cos and sin of a pair at a token's place on the pair's axis.
    Angle at(const Expr &of_pair, const Expr &place) const {
        const Expr pair = existing(of_pair);
        const auto bits = [&](const auto &rows) { return reinterpret<uint32_t>(Expr(rows(pair, 0))); };
        const auto in_row = [&](const auto &rows) -> Expr {
            return rows(pair, unsafe_promise_clamped(place, 0, rows.dim(1).extent() - 1));
        };
        const auto halves = [&](Dtype dtype) -> Angle {
            return {unpack(dtype, in_row(*in.first_halves))[0], unpack(dtype, in_row(*in.second_halves))[0]};
        };
        const Angle of_phase =
            phase_angle(ExprMath(), place, bits(*in.first_rows), bits(*in.second_rows), *in.scale_high, *in.scale_low);
        const Angle of_f16 = halves(Dtype::f16), of_bf16 = halves(Dtype::bf16);
        const Angle of_f32 = {in_row(*in.first_rows), in_row(*in.second_rows)};
        const auto one_of = [&](Expr Angle::*part) {
            return select(is(AngleForm::rows_f32), of_f32.*part, is(AngleForm::phase), of_phase.*part,
                          is(AngleForm::rows_f16), of_f16.*part, of_bf16.*part);
        };
        return {one_of(&Angle::cos), one_of(&Angle::sin)};
    }

    Expr is(AngleForm which) const { return *in.form == static_cast<int>(which); }

    /// Makes a Func whose values come from at() branch by form. Call it after its loops are scheduled.
    void specialize_by_form(Halide::Func angle) const {
        for (const AngleForm form : {AngleForm::rows_f32, AngleForm::phase, AngleForm::rows_f16}) {
            angle.specialize(is(form));
        }
    }

    Expr n_tokens() const { return positions.n_tokens(); }
    Expr n_axes() const { return positions.n_axes(); }
    Expr has_one_axis() const { return n_axes() == 1; }

private:
    const Fields::Angles &in;
    DevicePositions positions;

    /// Spare threads read nothing, but Halide's bounds include their pairs.
    Expr existing(const Expr &pair) const {
        return unsafe_promise_clamped(pair, 0, in.axis_of_pair->dim(0).extent() - 1);
    }
};

}  // namespace halyard

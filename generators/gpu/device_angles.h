// Where a GPU finds cos and sin: positions in memory, and an angle source of any kind.
#pragma once

#include "arithmetic/angles.h"
#include "arithmetic/storage.h"
#include "gpu/fields.h"

namespace halyard {

/// A number of one word, or of two with the lower first. word(i) is that at i.
template <typename Word>
Expr number_at(const Expr &offset, const Expr &n_words, Word word) {
    const Expr low = word(offset), high = word(offset + unsafe_promise_clamped(n_words, 1, 2) - 1);
    const Expr wide = (cast<int64_t>(high) << 32) | cast<int64_t>(cast<uint32_t>(low));
    return select(n_words == 2, wide, cast<int64_t>(low));
}

/// Positions as a GPU finds them in memory, and which of them have angles: those from first to last.
class DevicePositions {
public:
    explicit DevicePositions(const Fields::Positions &given) : in(given) {}

    void constrain() const { begin_at_zero(*in.positions); }

    Expr n_tokens() const { return in.positions->dim(1).extent(); }
    Expr n_axes() const { return in.positions->dim(2).extent(); }

    /// The position of a token on an axis, in 64 bits.
    Expr at(const Expr &token, const Expr &axis) const {
        const Expr number =
            number_at(*in.offset, *in.n_words, [&](const Expr &at) { return (*in.positions)(at, token, axis); });
        // All positions beyond int32 are equally bad. The clamp keeps the sum below from wrapping.
        const Expr far = Halide::Internal::make_const(Halide::Int(64), int64_t(1) << 61);
        const Expr given = Halide::clamp(number, -far, far);
        return given + *in.start + cast<int64_t>(token * *in.step);
    }

    /// The nearest position from first to last.
    Expr nearest(const Expr &position) const {
        return Halide::clamp(position, cast<int64_t>(*in.first), cast<int64_t>(*in.last));
    }

    Expr first_position() const { return *in.first; }

    /// Whether a position has angles.
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

    /// cos and sin of a pair at a token.
    Angle at(const Expr &of_pair, const Expr &token) const {
        // Spare threads read nothing, but Halide's bounds include them.
        const Expr pair = unsafe_promise_clamped(of_pair, 0, in.axis_of_pair->dim(0).extent() - 1);
        const Expr exact = position(pair, token), nearest = positions.nearest(exact);
        const Expr is_known = exact == nearest || *in.clamps != 0;
        const Expr known = select(is_known, cast<int32_t>(nearest), 0);
        const Expr from_first = cast<uint32_t>(known) - cast<uint32_t>(positions.first_position());
        const Expr row = select(is_known, cast<int32_t>(from_first), *in.row_of_zero);

        const Angle of_phase =
            phase_angle(ExprMath(), known, bits(*in.first_rows, *in.first_offset + pair),
                        bits(*in.second_rows, *in.second_offset + pair), *in.scale_high, *in.scale_low);
        const Angle of_f16 = halves(Dtype::f16, pair, row);
        const Angle of_bf16 = halves(Dtype::bf16, pair, row);
        const Angle of_f32 = floats(pair, row);
        const auto one_of = [&](Expr Angle::*part) {
            return select(is(AngleForm::rows_f32), of_f32.*part, is(AngleForm::phase), of_phase.*part,
                          is(AngleForm::rows_f16), of_f16.*part, of_bf16.*part);
        };
        return {one_of(&Angle::cos), one_of(&Angle::sin)};
    }

    /// Has a Func whose values at() gave take one branch for each form, once its loops are scheduled.
    void branch(Halide::Func angle) const {
        for (const AngleForm form : {AngleForm::rows_f32, AngleForm::phase, AngleForm::rows_f16}) {
            angle.specialize(is(form));
        }
    }

    /// Has a Func that stores whether tokens are covered take a branch of its own where they have one position each.
    void branch_if_one_axis(Halide::Func stored) const { stored.specialize(positions.n_axes() == 1); }

    /// Whether there are angles for all positions of a token.
    Expr cover(const Expr &token) const {
        Expr covered = Halide::Internal::const_true();
        for (int i = 0; i < HALYARD_MAX_AXES; i++) {
            covered = covered && positions.covers(position_on(i, token));
        }
        return covered;
    }

private:
    const Fields::Angles &in;
    DevicePositions positions;

    /// A select whose values are not both worked out.
    static Expr branch_if(const Expr &condition, const Expr &a, const Expr &b) {
        using Call = Halide::Internal::Call;
        return Call::make(b.type(), Call::if_then_else, {condition, a, b}, Call::PureIntrinsic);
    }

    Expr is(AngleForm which) const { return *in.form == static_cast<int>(which); }

    Expr position(const Expr &pair, const Expr &token) const {
        const Expr n_axes = positions.n_axes();
        const Expr axis = branch_if(n_axes == 1, 0, unsafe_promise_clamped((*in.axis_of_pair)(pair), 0, n_axes - 1));
        return positions.at(token, axis);
    }
    Expr position_on(const Expr &axis, const Expr &token) const {
        return positions.at(token, Halide::min(axis, positions.n_axes() - 1));
    }

    template <typename AnyBuffer>
    static Expr in_row(const AnyBuffer &rows, const Expr &i, const Expr &row) {
        return rows(i, unsafe_promise_clamped(row, 0, rows.dim(1).extent() - 1));
    }
    static Expr bits(const Input<Halide::Buffer<float, 2>> &rows, const Expr &i) {
        return reinterpret<uint32_t>(rows(i, 0));
    }
    Angle floats(const Expr &pair, const Expr &row) const {
        return {in_row(*in.first_rows, *in.first_offset + pair, row),
                in_row(*in.second_rows, *in.second_offset + pair, row)};
    }
    Angle halves(Dtype dtype, const Expr &pair, const Expr &row) const {
        return {unpack(dtype, in_row(*in.first_halves, *in.first_offset + pair, row))[0],
                unpack(dtype, in_row(*in.second_halves, *in.second_offset + pair, row))[0]};
    }
};

}  // namespace halyard

// Where a GPU finds cos and sin: positions in memory, and an angle source of any kind.
#pragma once

#include "arithmetic/angles.h"
#include "arithmetic/storage.h"
#include "gpu/fields.h"

#include <string>
#include <vector>

namespace halyard {

/// A number of one word, or of two with the lower first. word(i) is that at i.
template <typename Word>
Expr number_at(const Expr &offset, const Expr &n_words, Word word) {
    const Expr low = word(offset), high = word(offset + unsafe_promise_clamped(n_words, 1, 2) - 1);
    const Expr wide = (cast<int64_t>(high) << 32) | cast<int64_t>(cast<uint32_t>(low));
    return select(n_words == 2, wide, cast<int64_t>(low));
}

/// Positions as a GPU finds them in memory, and which of them have angles: those from first to last, or those of a
/// list.
class DevicePositions {
public:
    explicit DevicePositions(const Fields::Positions &given) : in(given) {}

    void constrain() const { begin_at_zero(*in.positions, *in.list); }

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

    Expr is_listed() const { return *in.n_list_steps > 0; }

    /// Defines a Func: how many positions of the list are below one, by bisection.
    void define_below(Halide::Func below, const std::vector<Halide::Var> &at, const Expr &position) const {
        const Halide::RDom steps(0, *in.n_list_steps, "list_steps");
        below(at) = 0;
        const Expr next = below(at) + (Expr(1) << cast<uint32_t>(*in.n_list_steps - 1 - steps.x));
        below(at) = select(next <= *in.n_listed && cast<int64_t>(listed(next - 1)) < position, next, below(at));
    }

    /// Whether a position has angles; `below` is the number of listed ones below it.
    Expr covers(const Expr &position, const Expr &below) const {
        return (is_listed() && is_in_list(position, below)) || (!is_listed() && position == nearest(position));
    }

    /// Whether the list has a position, and the number of the nearest that it has, the lower one of two.
    Expr is_in_list(const Expr &position, const Expr &below) const {
        return below < *in.n_listed && cast<int64_t>(listed(below)) == position;
    }
    Expr nearest_in_list(const Expr &position, const Expr &below) const {
        const Expr is_lower = below > 0 && (below == *in.n_listed || position - cast<int64_t>(listed(below - 1)) <=
                                                                         cast<int64_t>(listed(below)) - position);
        return select(is_lower, below - 1, below);
    }
    Expr has_list() const { return *in.n_listed > 0; }

private:
    const Fields::Positions &in;

    Expr listed(const Expr &i) const {
        return (*in.list)(
            unsafe_promise_clamped(Halide::clamp(i, 0, Halide::max(*in.n_listed, 1) - 1), 0, *in.n_listed - 1));
    }
};

/// An angle source of any kind. Kernels branch by its kind, and all threads take the same branch.
class DeviceAngles {
public:
    explicit DeviceAngles(const Fields::Angles &given) : in(given), positions(given.positions) {}

    void constrain() const {
        positions.constrain();
        begin_at_zero(*in.axis_of_pair, *in.first_rows, *in.second_rows, *in.first_halves, *in.second_halves);
    }

    /// cos and sin of a pair at a token, for a Func of these Vars.
    Angle at(const Target &target, const Expr &of_pair, const Expr &token, const std::vector<Halide::Var> &vars) {
        // Spare threads read nothing, but Halide's bounds include them.
        const Expr pair = unsafe_promise_clamped(of_pair, 0, in.axis_of_pair->dim(0).extent() - 1);
        const Expr exact = position(pair, token), nearest = positions.nearest(exact);
        positions.define_below(below, vars, exact);
        const Expr n_below = below(vars);
        const Expr is_known = exact == nearest || *in.clamps != 0;
        const Expr known = select(is_known, cast<int32_t>(nearest), 0);
        const Expr first = positions.first_position(), from_first = cast<uint32_t>(known) - cast<uint32_t>(first);
        const Expr in_list =
            select(positions.is_in_list(exact, n_below), n_below, *in.clamps != 0 && positions.has_list(),
                   positions.nearest_in_list(exact, n_below), *in.row_of_zero);
        const Expr in_order = select(is_known, cast<int32_t>(from_first), *in.row_of_zero);

        const Angle of_phase =
            phase_angle(ExprMath{target}, known, bits(*in.first_rows, *in.first_offset + pair),
                        bits(*in.second_rows, *in.second_offset + pair), *in.scale_high, *in.scale_low);
        const Angle of_f16 = halves(Dtype::f16, pair, in_order);
        const Angle of_bf16 = halves(Dtype::bf16, pair, in_order);
        const Angle of_f32 = floats(pair, select(positions.is_listed(), in_list, in_order));
        const auto one_of = [&](Expr Angle::*part) {
            return select(is(AngleForm::phase), of_phase.*part, is(AngleForm::rows_f16), of_f16.*part,
                          is(AngleForm::rows_bf16), of_bf16.*part, of_f32.*part);
        };
        return {one_of(&Angle::cos), one_of(&Angle::sin)};
    }

    /// Has a Func whose values at() gave take one branch for each form, once its loops are scheduled. `inside` is the
    /// innermost of them.
    void branch(Halide::Func angle, const Halide::Var &inside) {
        below.compute_at(angle, inside).store_in(Halide::MemoryType::Register);
        angle.specialize(is(AngleForm::rows_f32) && !positions.is_listed());
        for (const AngleForm other : {AngleForm::phase, AngleForm::rows_f16, AngleForm::rows_bf16}) {
            angle.specialize(is(other));
        }
    }

    /// Has a Func of that kind take a branch of its own where tokens have one position each. Comes before the next.
    void branch_if_one_axis(Halide::Func stored) const {
        stored.specialize(!positions.is_listed() && positions.n_axes() == 1);
    }

    /// Whether there are angles for all positions of a token, which a Func stores of each t, whatever its token is. Its
    /// innermost loop is told to branch_if_listed, once it is scheduled.
    Expr cover(const Expr &token) {
        positions.define_below(below_on_axis, {p, t}, position_on(p, token));
        Expr covered = Halide::Internal::const_true();
        for (int i = 0; i < HALYARD_MAX_AXES; i++) {
            covered = covered && positions.covers(position_on(i, token), below_on_axis(i, t));
        }
        return covered;
    }

    void branch_if_listed(Halide::Func stored, const Halide::Var &inside) {
        below_on_axis.compute_at(stored, inside).store_in(Halide::MemoryType::Register);
        below_on_axis.bound(p, 0, HALYARD_MAX_AXES).unroll(p).update().unroll(p);
        stored.specialize(positions.is_listed());
    }

private:
    const Fields::Angles &in;
    DevicePositions positions;
    Halide::Func below{"below"}, below_on_axis{"below_on_axis"};
    Halide::Var p{"p"}, t{"t"};

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

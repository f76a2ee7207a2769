// Where a GPU finds cos and sin: positions in memory, and an angle source of any kind.
#pragma once

#include "angles.h"
#include "storage.h"

#include <string>
#include <vector>

namespace halyard {

/// Positions as a GPU finds them in memory, and which of them have angles: those from first to last, or those of a
/// list.
class DevicePositions {
public:
    void add_to(Halide::Internal::GeneratorBase &generator) {
        positions = generator.add_input<Halide::Buffer<int32_t, 3>>("positions");
        n_words = generator.add_input<int32_t>("n_words");
        offset = generator.add_input<int32_t>("position_offset");
        start = generator.add_input<int64_t>("start");
        step = generator.add_input<int32_t>("step");
        first = generator.add_input<int32_t>("first");
        last = generator.add_input<int32_t>("last");
        list = generator.add_input<Halide::Buffer<int32_t, 1>>("list");
        n_list_steps = generator.add_input<int32_t>("n_list_steps");
        n_listed = generator.add_input<int32_t>("n_listed");
    }

    void constrain() {
        for (int i = 0; i < 3; i++) {
            positions->dim(i).set_min(0);
        }
        list->dim(0).set_min(0);
    }

    Expr n_tokens() const { return positions->dim(1).extent(); }
    Expr n_axes() const { return positions->dim(2).extent(); }

    /// The position of a token on an axis, in 64 bits.
    Expr at(const Expr &token, const Expr &axis) const {
        const Expr low = (*positions)(*offset, token, axis);
        const Expr high = (*positions)(*offset + unsafe_promise_clamped(*n_words, 1, 2) - 1, token, axis);
        const Expr wide = (cast<int64_t>(high) << 32) | cast<int64_t>(cast<uint32_t>(low));
        // Positions beyond int32 are all alike, and so far from its ends the sum cannot wrap.
        const Expr far = Halide::Internal::make_const(Halide::Int(64), int64_t(1) << 61);
        const Expr given = Halide::clamp(select(*n_words == 2, wide, cast<int64_t>(low)), -far, far);
        return given + *start + cast<int64_t>(token * *step);
    }

    /// The nearest position from first to last.
    Expr nearest(const Expr &position) const {
        return Halide::clamp(position, cast<int64_t>(*first), cast<int64_t>(*last));
    }

    Expr first_position() const { return *first; }

    Expr is_listed() const { return *n_list_steps > 0; }

    /// Defines a Func: how many positions of the list are below one, by bisection.
    void define_below(Halide::Func below, const std::vector<Halide::Var> &at, const Expr &position) const {
        const Halide::RDom steps(0, *n_list_steps, "list_steps");
        below(at) = 0;
        const Expr next = below(at) + (Expr(1) << cast<uint32_t>(*n_list_steps - 1 - steps.x));
        below(at) = select(next <= *n_listed && cast<int64_t>(listed(next - 1)) < position, next, below(at));
    }

    /// Whether a position has angles; `below` is the number of listed ones below it.
    Expr covers(const Expr &position, const Expr &below) const {
        return (is_listed() && is_in_list(position, below)) || (!is_listed() && position == nearest(position));
    }

    /// Whether the list has a position, and the number of the nearest that it has, the lower one of two.
    Expr is_in_list(const Expr &position, const Expr &below) const {
        return below < *n_listed && cast<int64_t>(listed(below)) == position;
    }
    Expr nearest_in_list(const Expr &position, const Expr &below) const {
        const Expr is_lower = below > 0 && (below == *n_listed || position - cast<int64_t>(listed(below - 1)) <=
                                                                      cast<int64_t>(listed(below)) - position);
        return select(is_lower, below - 1, below);
    }
    Expr has_list() const { return *n_listed > 0; }

private:
    Input<Halide::Buffer<int32_t, 3>> *positions = nullptr;  // [offset + word, token, axis]
    Input<int32_t> *n_words = nullptr;                       // 1, or 2 for int64 with the lower word first
    Input<int32_t> *offset = nullptr;
    Input<int64_t> *start = nullptr;                              // is added to every position,
    Input<int32_t> *step = nullptr;                               // and this, 0 or 1, times the token's number
    Input<int32_t> *first = nullptr, *last = nullptr;             // the positions that there are angles for, or
    Input<Halide::Buffer<int32_t, 1>> *list = nullptr;            // these, ascending, if there are steps
    Input<int32_t> *n_list_steps = nullptr, *n_listed = nullptr;  // 2^n_list_steps is more than n_listed

    Expr listed(const Expr &i) const {
        return (*list)(unsafe_promise_clamped(Halide::clamp(i, 0, Halide::max(*n_listed, 1) - 1), 0, *n_listed - 1));
    }
};

/// The numbers of DeviceForm in runtime/gpu/gpu_angles.h.
enum class AngleForm { rows_f32, rows_f16, rows_bf16, factored, phase };

/// What a GPU's kernel is told of an angle source, of whatever kind: kernels branch, but all threads alike.
class DeviceAngles {
public:
    void add_to(Halide::Internal::GeneratorBase &generator) {
        positions.add_to(generator);
        axis_of_pair = generator.add_input<Halide::Buffer<int32_t, 1>>("axis_of_pair");
        clamps = generator.add_input<int32_t>("clamps");
        form = generator.add_input<int32_t>("form");
        first_rows = generator.add_input<Halide::Buffer<float, 2>>("first_rows");
        second_rows = generator.add_input<Halide::Buffer<float, 2>>("second_rows");
        first_halves = generator.add_input<Halide::Buffer<uint16_t, 2>>("first_halves");
        second_halves = generator.add_input<Halide::Buffer<uint16_t, 2>>("second_halves");
        first_offset = generator.add_input<int32_t>("first_offset");
        second_offset = generator.add_input<int32_t>("second_offset");
        row_of_zero = generator.add_input<int32_t>("row_of_zero");
        first_fine_row = generator.add_input<int32_t>("first_fine_row");
        fine_bits = generator.add_input<int32_t>("fine_bits");
        scale_high = generator.add_input<float>("scale_high");
        scale_low = generator.add_input<float>("scale_low");
    }

    void constrain() {
        positions.constrain();
        axis_of_pair->dim(0).set_min(0);
        for (int i = 0; i < 2; i++) {
            first_rows->dim(i).set_min(0);
            second_rows->dim(i).set_min(0);
            first_halves->dim(i).set_min(0);
            second_halves->dim(i).set_min(0);
        }
    }

    /// cos and sin of a pair at a token, for a Func of these Vars.
    Angle at(const Target &target, const Expr &of_pair, const Expr &token, const std::vector<Halide::Var> &vars) {
        // Spare threads read nothing, but Halide's bounds include them.
        const Expr pair = unsafe_promise_clamped(of_pair, 0, axis_of_pair->dim(0).extent() - 1);
        const Expr exact = position(pair, token), nearest = positions.nearest(exact);
        positions.define_below(below, vars, exact);
        const Expr n_below = below(vars);
        const Expr is_known = exact == nearest || *clamps != 0;
        const Expr known = select(is_known, cast<int32_t>(nearest), 0);
        const Expr first = positions.first_position(), from_first = cast<uint32_t>(known) - cast<uint32_t>(first);
        const Expr in_list = select(positions.is_in_list(exact, n_below), n_below, *clamps != 0 && positions.has_list(),
                                    positions.nearest_in_list(exact, n_below), *row_of_zero);
        const Expr in_order = select(is_known, cast<int32_t>(from_first), *row_of_zero);
        // Position 0 turns nothing, not even by a rounding error.
        const Expr coarse = select(known == 0, *row_of_zero, cast<int32_t>(from_first >> cast<uint32_t>(*fine_bits)));
        const Expr fine = select(known == 0, Expr(0u), from_first & ((Expr(1u) << cast<uint32_t>(*fine_bits)) - 1));

        const Angle of_phase = phase_angle(ExprMath{target}, known, bits(*first_rows, *first_offset + pair),
                                           bits(*second_rows, *second_offset + pair), *scale_high, *scale_low);
        const Angle of_sum =
            sum_angle(ExprMath{target}, floats(pair, coarse), floats(pair, *first_fine_row + cast<int32_t>(fine)));
        const Angle of_f16 = halves(target, Storage::f16, pair, in_order);
        const Angle of_bf16 = halves(target, Storage::bf16, pair, in_order);
        const Angle of_f32 = floats(pair, select(positions.is_listed(), in_list, in_order));
        const auto one_of = [&](Expr Angle::*part) {
            return select(is(AngleForm::phase), of_phase.*part, is(AngleForm::factored), of_sum.*part,
                          is(AngleForm::rows_f16), of_f16.*part, is(AngleForm::rows_bf16), of_bf16.*part, of_f32.*part);
        };
        return {one_of(&Angle::cos), one_of(&Angle::sin)};
    }

    /// Has a Func whose values at() gave take one branch for each form, once its loops are scheduled. `inside` is the
    /// innermost of them.
    void branch(Halide::Func angle, const Halide::Var &inside) {
        below.compute_at(angle, inside).store_in(Halide::MemoryType::Register);
        angle.specialize(is(AngleForm::rows_f32) && !positions.is_listed());
        for (const AngleForm other :
             {AngleForm::phase, AngleForm::factored, AngleForm::rows_f16, AngleForm::rows_bf16}) {
            angle.specialize(is(other));
        }
    }

    /// Whether there are angles for all positions of a token, which a Func stores of tokens t. Its innermost loop is
    /// told to branch_if_listed, once it is scheduled.
    Expr cover(const Expr &token) {
        positions.define_below(below_on_axis, {p, t}, position_on(p, t));
        Expr covered = Halide::Internal::const_true();
        for (int i = 0; i < HALYARD_MAX_AXES; i++) {
            covered = covered && positions.covers(position_on(i, token), below_on_axis(i, token));
        }
        return covered;
    }

    void branch_if_listed(Halide::Func stored, const Halide::Var &inside) {
        below_on_axis.compute_at(stored, inside).store_in(Halide::MemoryType::Register);
        below_on_axis.bound(p, 0, HALYARD_MAX_AXES).unroll(p).update().unroll(p);
        stored.specialize(positions.is_listed());
    }

private:
    DevicePositions positions;
    Input<Halide::Buffer<int32_t, 1>> *axis_of_pair = nullptr;  // [pair]
    Input<int32_t> *clamps = nullptr;                           // 1: others count as the nearest; 0: as position 0
    Input<int32_t> *form = nullptr;                             // an AngleForm
    Input<Halide::Buffer<float, 2>> *first_rows = nullptr;      // [offset + pair, row]: cos. phase: bits of turns_high
    Input<Halide::Buffer<float, 2>> *second_rows = nullptr;     // likewise sin, or of turns_low, see phase_angle
    Input<Halide::Buffer<uint16_t, 2>> *first_halves = nullptr, *second_halves = nullptr;  // the same memory
    Input<int32_t> *first_offset = nullptr, *second_offset = nullptr;
    Input<int32_t> *row_of_zero = nullptr;     // position 0's; those of first … last, or of the list, come first
    Input<int32_t> *first_fine_row = nullptr;  // factored: after the coarse ones; a fine one for each multiple of
    Input<int32_t> *fine_bits = nullptr;       // 2^-fine_bits of a coarse one's distance to the next
    Input<float> *scale_high = nullptr, *scale_low = nullptr;
    Halide::Func below{"below"}, below_on_axis{"below_on_axis"};
    Halide::Var p{"p"}, t{"t"};

    /// A select whose values are not both worked out.
    static Expr branch_if(const Expr &condition, const Expr &a, const Expr &b) {
        using Call = Halide::Internal::Call;
        return Call::make(b.type(), Call::if_then_else, {condition, a, b}, Call::PureIntrinsic);
    }

    Expr is(AngleForm which) const { return *form == static_cast<int>(which); }

    Expr position(const Expr &pair, const Expr &token) const {
        const Expr n_axes = positions.n_axes();
        const Expr axis = branch_if(n_axes == 1, 0, unsafe_promise_clamped((*axis_of_pair)(pair), 0, n_axes - 1));
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
        return {in_row(*first_rows, *first_offset + pair, row), in_row(*second_rows, *second_offset + pair, row)};
    }
    Angle halves(const Target &target, Storage storage, const Expr &pair, const Expr &row) const {
        return {unpack(target, storage, in_row(*first_halves, *first_offset + pair, row))[0],
                unpack(target, storage, in_row(*second_halves, *second_offset + pair, row))[0]};
    }
};

}  // namespace halyard

// Where cos and sin come from, as small pure functions of Expr.
#pragma once

#include "rotation.h"

#include "angles/phase.h"
#include "halyard/halyard.h"

namespace halyard {

using Angle = CosAndSin<Expr>;

/// The arithmetic of phase.h on expressions.
struct ExprMath {
    using Float = Expr;
    using Word = Expr;
    using Int = Expr;

    Target target;

    Expr fma(const Expr &a, const Expr &b, const Expr &c) const { return precise_fma(target, a, b, c); }
    static Expr times(const Expr &a, const Expr &b) { return Halide::strict_float(a * b); }
    static Expr plus(const Expr &a, const Expr &b) { return Halide::strict_float(a + b); }
    static Expr flip_sign(const Expr &x, const Expr &sign) { return halyard::flip_sign(x, sign); }
    static Expr select(const Expr &condition, const Expr &a, const Expr &b) { return Halide::select(condition, a, b); }
    static Expr upper_product(const Expr &a, const Expr &b) {
        return cast<uint32_t>((cast<uint64_t>(a) * cast<uint64_t>(b)) >> 32);
    }
    static Expr to_word(const Expr &i) { return cast<uint32_t>(i); }
    static Expr to_int(const Expr &word) { return cast<int32_t>(word); }
    static Expr to_float(const Expr &i) { return cast<float>(i); }
};

template <typename T>
using Input = Halide::GeneratorInput<T>;

/// Positions as a GPU finds them in memory.
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
    }

    void constrain() {
        for (int i = 0; i < 3; i++) {
            positions->dim(i).set_min(0);
        }
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

    /// The nearest position that there are angles for.
    Expr nearest(const Expr &position) const {
        return Halide::clamp(position, cast<int64_t>(*first), cast<int64_t>(*last));
    }

    Expr first_position() const { return *first; }

private:
    Input<Halide::Buffer<int32_t, 3>> *positions = nullptr;  // [offset + word, token, axis]
    Input<int32_t> *n_words = nullptr;                       // 1, or 2 for int64 with the lower word first
    Input<int32_t> *offset = nullptr;
    Input<int64_t> *start = nullptr;                   // is added to every position,
    Input<int32_t> *step = nullptr;                    // and this, 0 or 1, times the token's number
    Input<int32_t> *first = nullptr, *last = nullptr;  // the positions that there are angles for
};

/// What a rotation kernel reads. The CPU's read rows that were made or looked up for them; a GPU's read positions, and
/// look up their rows in a table or work out their angles.
enum class AngleSource { rows, table, phase };

inline const std::map<std::string, AngleSource> angle_sources = {
    {"rows", AngleSource::rows}, {"table", AngleSource::table}, {"phase", AngleSource::phase}};

/// The inputs of an angle source, and the angles that follow from them.
class AngleInputs {
public:
    void add_to(Halide::Internal::GeneratorBase &generator, AngleSource angle_source) {
        source = angle_source;
        if (source == AngleSource::rows) {
            row_of_token = generator.add_input<Halide::Buffer<int32_t, 1>>("row_of_token");
        } else {
            positions.add_to(generator);
            axis_of_pair = generator.add_input<Halide::Buffer<int32_t, 1>>("axis_of_pair");
            clamps = generator.add_input<int32_t>("clamps");
        }
        if (source == AngleSource::phase) {
            turns_high = generator.add_input<Halide::Buffer<uint32_t, 1>>("turns_high");
            turns_low = generator.add_input<Halide::Buffer<uint32_t, 1>>("turns_low");
            scale_high = generator.add_input<float>("scale_high");
            scale_low = generator.add_input<float>("scale_low");
        } else {
            cos_rows = generator.add_input<Halide::Buffer<float, 2>>("cos_rows");
            sin_rows = generator.add_input<Halide::Buffer<float, 2>>("sin_rows");
        }
        if (source == AngleSource::table) {
            cos_offset = generator.add_input<int32_t>("cos_offset");
            sin_offset = generator.add_input<int32_t>("sin_offset");
            row_of_zero = generator.add_input<int32_t>("row_of_zero");
        }
    }

    Angle at(const Target &target, const Expr &pair, const Expr &token) const {
        if (source == AngleSource::phase) {
            return phase_angle(ExprMath{target}, position(pair, token, 0), (*turns_high)(pair), (*turns_low)(pair),
                               *scale_high, *scale_low);
        }
        if (source == AngleSource::rows) {
            const Expr row = unsafe_promise_clamped((*row_of_token)(token), 0, cos_rows->dim(1).extent() - 1);
            return {(*cos_rows)(pair, row), (*sin_rows)(pair, row)};
        }
        const Expr first = positions.first_position();
        const Expr row = unsafe_promise_clamped(position(pair, token, *row_of_zero + first) - first, 0,
                                                cos_rows->dim(1).extent() - 1);
        return {(*cos_rows)(*cos_offset + pair, row), (*sin_rows)(*sin_offset + pair, row)};
    }

    /// GPU: whether there are angles for all positions of a token.
    Expr cover(const Expr &token) const {
        Expr covered = Halide::Internal::const_true();
        for (int i = 0; i < HALYARD_MAX_AXES; i++) {
            const Expr position = positions.at(token, Halide::min(i, positions.n_axes() - 1));
            covered = covered && position == positions.nearest(position);
        }
        return covered;
    }

    /// GPU: whether every pair reads the same position, which saves looking up whose it is. Undefined for rows.
    Expr has_one_axis() const { return source == AngleSource::rows ? Expr() : positions.n_axes() == 1; }

    void constrain() {
        const auto set_min = [](auto *buffer, int n_dims) {
            for (int i = 0; buffer != nullptr && i < n_dims; i++) {
                buffer->dim(i).set_min(0);
            }
        };
        set_min(row_of_token, 1);
        set_min(axis_of_pair, 1);
        set_min(turns_high, 1);
        set_min(turns_low, 1);
        set_min(cos_rows, 2);
        set_min(sin_rows, 2);
        if (source != AngleSource::rows) {
            positions.constrain();
        }
    }

private:
    AngleSource source = AngleSource::rows;
    DevicePositions positions;
    Input<Halide::Buffer<int32_t, 1>> *row_of_token = nullptr;  // [token]
    Input<Halide::Buffer<int32_t, 1>> *axis_of_pair = nullptr;  // [pair]
    Input<int32_t> *clamps = nullptr;                           // 1: others count as the nearest; 0: as position 0
    Input<Halide::Buffer<float, 2>> *cos_rows = nullptr;        // [offset + pair, row]
    Input<Halide::Buffer<float, 2>> *sin_rows = nullptr;        // likewise
    Input<int32_t> *cos_offset = nullptr, *sin_offset = nullptr;
    Input<int32_t> *row_of_zero = nullptr;                     // position 0's; those of first … last come first
    Input<Halide::Buffer<uint32_t, 1>> *turns_high = nullptr;  // [pair]: see phase_angle
    Input<Halide::Buffer<uint32_t, 1>> *turns_low = nullptr;
    Input<float> *scale_high = nullptr, *scale_low = nullptr;

    /// A pair's position at a token, or another value where there are no angles for it.
    Expr position(const Expr &pair, const Expr &token, const Expr &otherwise) const {
        const Expr n_axes = positions.n_axes();
        const Expr axis = select(n_axes == 1, 0, unsafe_promise_clamped((*axis_of_pair)(pair), 0, n_axes - 1));
        const Expr exact = positions.at(token, axis), nearest = positions.nearest(exact);
        return select(exact == nearest || *clamps != 0, cast<int32_t>(nearest), otherwise);
    }
};

}  // namespace halyard

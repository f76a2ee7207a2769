// Where cos and sin come from, as small pure functions of Expr.
#pragma once

#include "rotation.h"

namespace halyard {

struct Angle {
    Expr cos, sin;
};

/// Fixed-point turns: cos and sin, times attention_factor, of a position and a frequency alone. A frequency is a
/// fraction of a turn per position in 64 bits, so position times frequency wraps modulo one turn exactly, at any int32
/// position. What is left of it in 32 bits is less than 1.5e-9 rad off.
///   turns_high           2^32 is one turn per position,
///   turns_low            and 2^64 with this below it
///   scale_high, _low     attention_factor in two parts
inline Angle phase_angle(const Target &target, const Expr &position, const Expr &turns_high, const Expr &turns_low,
                         const Expr &scale_high, const Expr &scale_low) {
    const auto sum = [&](const Expr &a, const Expr &b, const Expr &addend) {
        return precise_fma(target, a, b, addend);
    };
    // The upper half of 64 bits, by a widening product of the lower words; a negative p is p + 2^32 there.
    const Expr p = cast<uint32_t>(position);
    const Expr carry = cast<uint32_t>((cast<uint64_t>(turns_low) * cast<uint64_t>(p)) >> 32);
    const Expr turns = turns_high * p + carry - select(position < 0, turns_low, Expr(0u));

    // The nearest quarter turn, and what is left of it: an eighth of a turn or less, as float.
    const Expr quarter = (turns + Expr(0x20000000u)) >> 30;
    const Expr rest = cast<int32_t>(turns - (quarter << 30));
    const Expr coarse = cast<float>(rest & ~63), fine = cast<float>(rest & 63);  // both exact in 24 bits

    // z + tail is the angle in radians: 2 pi / 2^32 in two parts, products to twice float precision.
    const Expr unit = 0x1.921fb6p-30f, unit_low = -0x1.777a5cp-55f;
    const Expr z = Halide::strict_float(coarse * unit);
    const Expr tail = sum(fine, unit, sum(coarse, unit_low, sum(coarse, unit, flip_sign(z, sign_bit))));

    // Minimax polynomials on an eighth of a turn (Remez; sin z = z + z^3 P, cos z = 1 - (z^2/2 - z^4 Q); within
    // 2e-9 and 1e-10). Only the first term's rounding matters, so the others are kept apart from it.
    const Expr w = Halide::strict_float(z * z), half_w = Halide::strict_float(w * 0.5f);
    const Expr p_of_w = sum(w, sum(w, -1.94956359e-4f, 8.33197869e-3f), -1.66666508e-1f);
    const Expr q_of_w = sum(w, sum(w, 2.44384515e-5f, -1.38873677e-3f), 4.16666456e-2f);
    const Expr zw = Halide::strict_float(z * w), ww = Halide::strict_float(w * w);
    const Expr sin_rest = sum(zw, p_of_w, sum(tail, flip_sign(half_w, sign_bit), tail));
    const Expr one_less_cos = sum(tail, z, sum(flip_sign(ww, sign_bit), q_of_w, half_w));
    const Expr scaled_low = Halide::strict_float(scale_low * z);
    const Expr sin = sum(scale_high, z, sum(scale_high, sin_rest, scaled_low));
    const Expr cos = Halide::strict_float(scale_high + sum(flip_sign(scale_high, sign_bit), one_less_cos, scale_low));

    // Turn by the quarters: swap in odd ones, and the signs of the quadrant.
    const Expr is_odd = (quarter & 1) != 0;
    const Expr cos_sign = ((quarter + 1) & 2) << 30, sin_sign = (quarter & 2) << 30;
    return {flip_sign(select(is_odd, sin, cos), cos_sign), flip_sign(select(is_odd, cos, sin), sin_sign)};
}

/// The angle of two angles' sum, by one complex product.
inline Angle sum_angle(const Target &target, const Angle &a, const Angle &b) {
    const Expr minus = Halide::strict_float(flip_sign(a.sin, sign_bit) * b.sin);
    const Expr plus = Halide::strict_float(a.cos * b.sin);
    return {precise_fma(target, a.cos, b.cos, minus), precise_fma(target, a.sin, b.cos, plus)};
}

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
            return phase_angle(target, position(pair, token, 0), (*turns_high)(pair), (*turns_low)(pair), *scale_high,
                               *scale_low);
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

    /// GPU: whether every pair reads the same position, which saves looking up whose it is.
    Expr has_one_axis() const { return positions.n_axes() == 1; }

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

// The arithmetic of PHASE sources: cos and sin without a table. The generators of kernels instantiate it with Halide
// expressions, and the portable reference with numbers. Kernels and reference give the same bits.
//
// `Math` has the types Float (32 bits), Word (uint32) and Int (int32). Operators of Word and Int wrap. It also has
//   fma(a, b, c)         a * b + c, rounded once
//   times(a, b), plus(a, b)   rounded, and never fused with another operation
//   flip_sign(x, word)   x with its sign flipped if the sign bit of the word is set
//   select(condition, a, b)
//   upper_product(a, b)  the upper half of the 64-bit product of two words
//   to_word(int), to_int(word), to_float(int)
#pragma once

#include <cstdint>

namespace halyard {

template <typename Float>
struct CosAndSin {
    Float cos, sin;
};

template <typename Math>
typename Math::Float negate(const Math &math, const typename Math::Float &x) {
    return math.flip_sign(x, typename Math::Word(0x80000000u));
}

/// cos and sin, times attention_factor, of position times frequency. A frequency is a fraction of a full turn per
/// position in 64 bits of fixed point, so the product wraps modulo one turn exactly, at any int32 position. Its upper
/// 32 bits have an error of less than 1.5e-9 rad.
///   turns_high           the upper 32 bits of the frequency in 2^-64 turns
///   turns_low            its lower 32 bits
///   scale_high, _low     attention_factor as the sum of two floats
template <typename Math>
CosAndSin<typename Math::Float> phase_angle(const Math &math, const typename Math::Int &position,
                                            const typename Math::Word &turns_high, const typename Math::Word &turns_low,
                                            const typename Math::Float &scale_high,
                                            const typename Math::Float &scale_low) {
    using Float = typename Math::Float;
    using Word = typename Math::Word;
    using Int = typename Math::Int;
    // The upper half of the 64-bit product. As a word, a negative position is 2^32 too large, which adds turns_low to
    // the upper half, so that is subtracted.
    const Word p = math.to_word(position);
    const Word carry = math.upper_product(turns_low, p);
    const Word turns = turns_high * p + carry - math.select(position < 0, turns_low, Word(0u));

    // The nearest quarter turn, and the rest as float: an eighth of a turn or less.
    const Word quarter = (turns + Word(0x20000000u)) >> 30;
    const Int rest = math.to_int(turns - (quarter << 30));
    const Float coarse = math.to_float(rest & ~63), fine = math.to_float(rest & 63);  // both exact in 24 bits

    // z + tail is the rest in radians, to twice float precision; unit + unit_low is 2 pi / 2^32.
    const Float unit = 0x1.921fb6p-30f, unit_low = -0x1.777a5cp-55f;
    const Float z = math.times(coarse, unit);
    const Float tail = math.fma(fine, unit, math.fma(coarse, unit_low, math.fma(coarse, unit, negate(math, z))));

    // Minimax polynomials on an eighth of a turn (Remez; sin z = z + z^3 P, cos z = 1 - (z^2/2 - z^4 Q); within
    // 2e-9 and 1e-10). Only the first term's rounding matters, so the others are added to it last.
    const Float w = math.times(z, z), half_w = math.times(w, 0.5f);
    const Float p_of_w = math.fma(w, math.fma(w, -1.94956359e-4f, 8.33197869e-3f), -1.66666508e-1f);
    const Float q_of_w = math.fma(w, math.fma(w, 2.44384515e-5f, -1.38873677e-3f), 4.16666456e-2f);
    const Float zw = math.times(z, w), ww = math.times(w, w);
    const Float sin_rest = math.fma(zw, p_of_w, math.fma(tail, negate(math, half_w), tail));
    const Float one_less_cos = math.fma(tail, z, math.fma(negate(math, ww), q_of_w, half_w));
    const Float scaled_low = math.times(scale_low, z);
    const Float sin = math.fma(scale_high, z, math.fma(scale_high, sin_rest, scaled_low));
    const Float cos = math.plus(scale_high, math.fma(negate(math, scale_high), one_less_cos, scale_low));

    // Add the quarter turns: odd ones swap cos and sin, and the quadrant sets the signs.
    const auto is_odd = (quarter & 1) != 0;
    const Word cos_sign = ((quarter + 1) & 2) << 30, sin_sign = (quarter & 2) << 30;
    return {math.flip_sign(math.select(is_odd, sin, cos), cos_sign),
            math.flip_sign(math.select(is_odd, cos, sin), sin_sign)};
}

}  // namespace halyard

// cos and sin of position times frequency, correctly rounded to float32 at every int32 position.
//
// Ziv's strategy ("Fast evaluation of elementary mathematical functions with correctly rounded last bit", ACM TOMS 17,
// 1991): compute in plain double, whose error bound leaves the nearest float in doubt for about one entry in 2^23, and
// compute only those in double-double. Results are correctly rounded, so they depend on no platform, compiler or libm.
#include "frequencies/cos_sin.h"

#include "frequencies/frequencies.h"

#include <bit>
#include <cmath>
#include <cstdint>

namespace halyard {

QuarterTurns to_quarter_turns(DoubleDouble inv_freq) noexcept {
    // 2/pi in three parts, because an inverse frequency of 2^20 spends 20 bits on whole turns.
    constexpr double high = 0x1.45f306dc9c883p-1, middle = -0x1.6b01ec5417056p-55, low = -0x1.6447e493ad4cep-109;
    const DoubleDouble turns = two_product(inv_freq.hi, high);
    const double whole = 4.0 * std::nearbyint(turns.hi / 4.0);
    QuarterTurns result;
    result.value = two_sum(turns.hi - whole, turns.lo) + two_product(inv_freq.hi, middle) +
                   two_product(inv_freq.lo, high) + (inv_freq.hi * low + inv_freq.lo * middle);
    result.high = first_bits<21>(result.value.hi);
    const double rest = result.value.hi - result.high;
    result.middle = first_bits<21>(rest);
    result.low = (rest - result.middle) + result.value.lo;
    return result;
}

namespace {

double flip_sign(double value, std::uint64_t flip) noexcept {
    return std::bit_cast<double>(std::bit_cast<std::uint64_t>(value) ^ (flip << 63));
}

/// Rounds value to *out (-0 to 0), and returns whether value - error and value + error round to the same float.
bool try_round(double value, double error, float *out) noexcept {
    *out = static_cast<float>(value + error);
    return *out == static_cast<float>(value - error);
}

/// The fast path. Error bounds in the comments are in units of 2^-53, relative unless stated otherwise.
inline bool try_cos_sin(const QuarterTurns &frequency, double scale, double position, CosSin *out) noexcept {
    // The whole quarter turns. Adding 1.5 * 2^52 rounds to an integer, held in the low bits of the sum. The product may
    // have a rounding error, so |x| may slightly exceed a half.
    constexpr double to_integer = 0x1.8p52;
    const double product = position * frequency.value.hi;
    const double shifted = product + to_integer;
    const double whole = shifted - to_integer;
    const auto quadrant = std::bit_cast<std::uint64_t>(shifted);

    // The fraction x of a quarter turn. The products with high and middle and the difference are exact. Each of the two
    // sums rounds, with an error of 1. frequency.low and its product are rounded too, far below that: their error is up
    // to 3 * 2^-94 of position * frequency.
    const double x = ((position * frequency.high - whole) + position * frequency.middle) + position * frequency.low;

    // Taylor series in y, |y| <= pi/4. Errors: y 3.4 (x 2, the constant 0.4, the product 1); sin 3.4 from y, 0.6 from
    // the series (a tenth of sin), 1 from the last sum and 0.6 from truncation; cos 2.7 from y, 2.1 from the series and
    // 1 from the sum. Multiplying by the scale adds 1, so sin and cos stay below 7.
    const double y = x * half_pi.hi;
    const double z = y * y;
    double sin_series = -1.0 / 1307674368000.0;
    sin_series = sin_series * z + 1.0 / 6227020800.0;
    sin_series = sin_series * z - 1.0 / 39916800.0;
    sin_series = sin_series * z + 1.0 / 362880.0;
    sin_series = sin_series * z - 1.0 / 5040.0;
    sin_series = sin_series * z + 1.0 / 120.0;
    sin_series = sin_series * z - 1.0 / 6.0;
    double cos_series = 1.0 / 20922789888000.0;
    cos_series = cos_series * z - 1.0 / 87178291200.0;
    cos_series = cos_series * z + 1.0 / 479001600.0;
    cos_series = cos_series * z - 1.0 / 3628800.0;
    cos_series = cos_series * z + 1.0 / 40320.0;
    cos_series = cos_series * z - 1.0 / 720.0;
    cos_series = cos_series * z + 1.0 / 24.0;
    cos_series = cos_series * z - 1.0 / 2.0;

    // Quadrants are unpredictable, so a table lookup is faster than a branch.
    const double by_parity[2] = {scale * (1.0 + z * cos_series), scale * (y + y * z * sin_series)};
    const double cos = flip_sign(by_parity[quadrant & 1], ((quadrant + 1) >> 1) & 1);
    const double sin = flip_sign(by_parity[~quadrant & 1], (quadrant >> 1) & 1);

    // Twice the bound of 7 * 2^-53, and for the low part pi/2 times 3 * 2^-94, rounded up.
    constexpr double relative_error = 0x1p-49;
    const double absolute_error = std::fabs(product) * (scale * 0x1p-91);
    const bool cos_is_certain = try_round(cos, std::fabs(cos) * relative_error + absolute_error, &out->cos);
    const bool sin_is_certain = try_round(sin, std::fabs(sin) * relative_error + absolute_error, &out->sin);
    return cos_is_certain && sin_is_certain;
}

/// For |theta| < 2^-40, where scale * theta can be midway between two floats, or closer to the midpoint than
/// double-double resolves. Sums scale * theta without rounding errors; the next term of the series decides the side.
CosSin cos_sin_of_small_angle(DoubleDouble inv_freq, double scale, double position) noexcept {
    const DoubleDouble theta = two_product(position, inv_freq.hi);
    if (theta.hi == 0.0) {
        return {static_cast<float>(scale), 0.0f};
    }
    const DoubleDouble first = two_product(scale, theta.hi);
    const DoubleDouble second = two_product(scale, theta.lo);
    const double third = scale * (position * inv_freq.lo);
    const double cubic = -first.hi * (theta.hi * theta.hi) / 6.0;
    const double square = -scale * (theta.hi * theta.hi) / 2.0;
    return {round_to_float(sum_exactly({scale, square})),
            round_to_float(sum_exactly({first.hi, first.lo, second.hi, second.lo, third, cubic}))};
}

}  // namespace

bool try_cos_sin(const halyard_frequencies &frequencies, std::int64_t pair, std::int32_t position,
                 CosSin *out) noexcept {
    return try_cos_sin(frequencies.quarter_turns.get()[pair], frequencies.attention_factor, position, out);
}

namespace {

/// The slow path. turns_per_position is inv_freq in quarter turns, without whole turns if positions are integers.
CosSin precise_cos_sin(DoubleDouble inv_freq, DoubleDouble turns_per_position, double scale, double position) noexcept {
    if (std::fabs(position * inv_freq.hi) < 0x1p-40) {
        return cos_sin_of_small_angle(inv_freq, scale, position);
    }
    const DoubleDouble turns = two_product(position, turns_per_position.hi);
    const double whole = std::nearbyint(turns.hi);
    const auto quadrant = static_cast<std::int64_t>(whole);
    const DoubleDouble x = two_sum(turns.hi - whole, turns.lo) + two_product(position, turns_per_position.lo);
    const DoubleDoubleSinCos value = sin_cos_of_quarter_turns(x);
    DoubleDouble cos = quadrant & 1 ? value.sin : value.cos;
    DoubleDouble sin = quadrant & 1 ? value.cos : value.sin;
    cos = (quadrant + 1) & 2 ? -cos : cos;
    sin = quadrant & 2 ? -sin : sin;
    return {round_to_float(cos * scale), round_to_float(sin * scale)};
}

}  // namespace

CosSin precise_cos_sin(const halyard_frequencies &frequencies, std::int64_t pair, std::int32_t position) noexcept {
    return precise_cos_sin(frequencies.inv_freq.get()[pair], frequencies.quarter_turns.get()[pair].value,
                           frequencies.attention_factor, position);
}

void make_row(const halyard_frequencies &frequencies, std::int32_t position, float *cos_row, float *sin_row) noexcept {
    const double scale = frequencies.attention_factor, position_as_double = position;
    for (std::int64_t pair = 0; pair < frequencies.n_pairs; ++pair) {
        const QuarterTurns &turns = frequencies.quarter_turns.get()[pair];
        CosSin value;
        if (!try_cos_sin(turns, scale, position_as_double, &value)) {
            value = precise_cos_sin(frequencies.inv_freq.get()[pair], turns.value, scale, position_as_double);
        }
        cos_row[pair] = value.cos;
        sin_row[pair] = value.sin;
    }
}

CosSin cos_sin_of_angle(float angle, double factor) noexcept {
    static const QuarterTurns radian = to_quarter_turns({1.0, 0.0});
    CosSin value;
    if (std::fabs(angle) > 0x1p31f || !try_cos_sin(radian, factor, angle, &value)) {
        value = precise_cos_sin({1.0, 0.0}, radian.value, factor, angle);
    }
    return value;
}

std::uint64_t turns_of(const halyard_frequencies &frequencies, std::int64_t pair) noexcept {
    // The value is in quarter turns, at most 2 in magnitude: its upper 34 bits and sign are exact, the rest is rounded.
    const DoubleDouble turns = frequencies.quarter_turns.get()[pair].value;
    const double upper = std::floor(turns.hi * 0x1p32);
    const double rest = (turns.hi * 0x1p32 - upper) * 0x1p30 + turns.lo * 0x1p62;
    return (static_cast<std::uint64_t>(static_cast<std::int64_t>(upper)) << 30) +
           static_cast<std::uint64_t>(static_cast<std::int64_t>(std::nearbyint(rest)));
}

}  // namespace halyard

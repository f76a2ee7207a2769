// Arithmetic on unevaluated sums of two doubles: about 106 bits, from IEEE operations and fused multiply-adds only.
//
// Nothing here calls a libm function that may round differently elsewhere (fma, frexp, ldexp and nearbyint are exact or
// correctly rounded by definition), so every platform computes the same bits. The building blocks are Dekker's and
// Knuth's; the names and error bounds of the operators follow Joldes, Muller and Popescu, "Tight and rigorous error
// bounds for basic building blocks of double-word arithmetic" (ACM TOMS 44, 2017).
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <initializer_list>

namespace halyard {

/// The value hi + lo, where hi is the double nearest to the sum.
struct DoubleDouble {
    double hi = 0.0;
    double lo = 0.0;
};

/// A value with only the first n of its 53 significant bits.
template <int n>
double first_bits(double value) noexcept {
    return std::bit_cast<double>(std::bit_cast<std::uint64_t>(value) & ~std::uint64_t{0} << (53 - n));
}

/// a + b, exactly.
inline DoubleDouble two_sum(double a, double b) noexcept {
    const double sum = a + b;
    const double b_part = sum - a;
    const double a_part = sum - b_part;
    return {sum, (a - a_part) + (b - b_part)};
}

/// a + b, exactly, if |a| >= |b| or a is zero.
inline DoubleDouble fast_two_sum(double a, double b) noexcept {
    const double sum = a + b;
    return {sum, b - (sum - a)};
}

/// a * b, exactly, unless the low part underflows.
inline DoubleDouble two_product(double a, double b) noexcept {
    const double product = a * b;
    return {product, std::fma(a, b, -product)};
}

inline DoubleDouble operator-(DoubleDouble a) noexcept { return {-a.hi, -a.lo}; }

// Relative error below 2^-104, even where terms cancel.
inline DoubleDouble operator+(DoubleDouble a, DoubleDouble b) noexcept {
    const DoubleDouble high = two_sum(a.hi, b.hi);
    const DoubleDouble low = two_sum(a.lo, b.lo);
    const DoubleDouble sum = fast_two_sum(high.hi, high.lo + low.hi);
    return fast_two_sum(sum.hi, low.lo + sum.lo);
}

inline DoubleDouble operator-(DoubleDouble a, DoubleDouble b) noexcept { return a + -b; }

// Relative error below 2^-104.
inline DoubleDouble operator+(DoubleDouble a, double b) noexcept {
    const DoubleDouble high = two_sum(a.hi, b);
    return fast_two_sum(high.hi, a.lo + high.lo);
}

// Relative error below 2^-102.
inline DoubleDouble operator*(DoubleDouble a, DoubleDouble b) noexcept {
    const DoubleDouble high = two_product(a.hi, b.hi);
    return fast_two_sum(high.hi, high.lo + (a.hi * b.lo + a.lo * b.hi));
}

// Relative error below 2^-104.
inline DoubleDouble operator*(DoubleDouble a, double b) noexcept {
    const DoubleDouble high = two_product(a.hi, b);
    return fast_two_sum(high.hi, std::fma(a.lo, b, high.lo));
}

// Relative error below 2^-103; exact where the quotient is a double.
inline DoubleDouble operator/(DoubleDouble a, double b) noexcept {
    const double quotient = a.hi / b;
    const double remainder = std::fma(-quotient, b, a.hi) + a.lo;
    return fast_two_sum(quotient, remainder / b);
}

// Relative error below 2^-101.
inline DoubleDouble operator/(DoubleDouble a, DoubleDouble b) noexcept {
    const double quotient = a.hi / b.hi;
    const DoubleDouble remainder = a - b * quotient;
    return fast_two_sum(quotient, remainder.hi / b.hi);
}

/// The sum of up to 8 doubles: hi is a double next to the sum, and lo has exactly the sign of sum - hi.
inline DoubleDouble sum_exactly(std::initializer_list<double> terms) noexcept {
    double parts[8];  // Shewchuk's expansion: the exact sum, in parts that don't overlap, the largest last
    int n_parts = 0;
    for (const double term : terms) {
        double carry = term;
        for (int i = 0; i < n_parts; ++i) {
            const DoubleDouble sum = two_sum(carry, parts[i]);
            parts[i] = sum.lo;
            carry = sum.hi;
        }
        parts[n_parts++] = carry;
    }
    DoubleDouble total;
    for (int i = n_parts - 1; i >= 0 && total.lo == 0.0; --i) {
        total = two_sum(total.hi, parts[i]);
    }
    return total;
}

inline constexpr DoubleDouble ln_2 = {0x1.62e42fefa39efp-1, 0x1.abc9e3b39803fp-56};
inline constexpr DoubleDouble half_pi = {0x1.921fb54442d18p+0, 0x1.1a62633145c07p-54};

/// Base-2 logarithm of a positive, finite double. Exact for powers of two.
inline DoubleDouble precise_log2(double value) noexcept {
    int exponent = 0;
    double mantissa = std::frexp(value, &exponent);
    if (mantissa < 0.7071067811865476) {
        mantissa *= 2.0;
        --exponent;
    }
    // ln m = 2 atanh s = 2 s (1 + s^2/3 + s^4/5 + …) with s = (m - 1) / (m + 1), |s| < 0.172: 23 terms reach 2^-121.
    const DoubleDouble s = DoubleDouble{mantissa - 1.0, 0.0} / two_sum(mantissa, 1.0);
    const DoubleDouble square = s * s;
    DoubleDouble series = DoubleDouble{1.0, 0.0} / 45.0;
    for (int k = 43; k >= 1; k -= 2) {
        series = DoubleDouble{1.0, 0.0} / k + square * series;
    }
    return s * 2.0 * series / ln_2 + static_cast<double>(exponent);
}

/// 2 to the power of value; its hi is infinite beyond double's range. Exact for integers.
inline DoubleDouble precise_exp2(DoubleDouble value) noexcept {
    const double whole = std::nearbyint(value.hi);
    const DoubleDouble x = (value + -whole) * ln_2;
    // e^x = 1 + x/1 (1 + x/2 (1 + x/3 (…))) with |x| < 0.347: 25 terms reach 2^-122.
    DoubleDouble series = {1.0, 0.0};
    for (int k = 25; k >= 1; --k) {
        series = x * series / k + 1.0;
    }
    const int exponent = static_cast<int>(whole);
    return {std::ldexp(series.hi, exponent), std::ldexp(series.lo, exponent)};
}

struct DoubleDoubleSinCos {
    DoubleDouble sin;
    DoubleDouble cos;
};

/// Sine and cosine of x quarter turns, |x| <= 0.6. Relative error below 2^-99, also near zero.
inline DoubleDoubleSinCos sin_cos_of_quarter_turns(DoubleDouble x) noexcept {
    const DoubleDouble angle = x * half_pi;
    const DoubleDouble square = angle * angle;
    // sin a = a (1 - a^2/(2 3) (1 - a^2/(4 5) (…))),  cos a = 1 - a^2/(1 2) (1 - a^2/(3 4) (…)). The first term that
    // is left out of cos a, a^32/32!, is below 2^-120, since |a| <= 0.6 pi/2.
    DoubleDouble sin_series = {1.0, 0.0};
    DoubleDouble cos_series = {1.0, 0.0};
    for (int k = 15; k >= 1; --k) {
        sin_series = -(square * sin_series / (2.0 * k * (2.0 * k + 1.0))) + 1.0;
        cos_series = -(square * cos_series / (2.0 * k * (2.0 * k - 1.0))) + 1.0;
    }
    return {angle * sin_series, cos_series};
}

/// The float nearest to value, rounded once (ties to even). (Converting by way of a double would round twice.)
inline float round_to_float(DoubleDouble value) noexcept {
    // Rounding to odd: of the two doubles around hi + lo, the odd one can be neither a float nor midway between two
    // floats, so it rounds as the sum does (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008).
    auto bits = std::bit_cast<std::uint64_t>(value.hi);
    if (value.lo != 0.0 && (bits & 1) == 0) {
        bits = (value.lo > 0.0) == (value.hi > 0.0) ? bits + 1 : bits - 1;
    }
    return static_cast<float>(std::bit_cast<double>(bits));
}

}  // namespace halyard

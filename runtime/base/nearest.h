// Roots and quotients that are the nearest floats, where a device's own are a few ulps off: OpenCL allows a
// division 2.5 and a root 3 or 4. Stated once, for the kernels, where a value is an expression of Halide, and for
// tests, where it is a number.
//
// `Math` has the type Float (32 bits), whose comparisons are false for NaN, and
//   fma(a, b, c), times(a, b), plus(a, b)   as in angles/phase.h
//   negate(x), moved(x, n)       x with its sign turned, and x moved n ulps away from zero
//   select(condition, a, b)
//   let(value, body)             body(value), with value computed once
//   root_estimate(x), quotient_estimate(a, b)
#pragma once

namespace halyard {

/// How many ulps an estimate may be off.
inline constexpr int most_ulps_off = 4;

template <typename Math, typename Step>
typename Math::Float refine(const Math &math, const typename Math::Float &estimate, const Step &step,
                            int n_steps = most_ulps_off) {
    if (n_steps == 0) {
        return estimate;
    }
    return math.let(estimate, [&](const auto &x) { return refine(math, step(x), step, n_steps - 1); });
}

/// The nearest float to the root of x: any float, and NaN.
template <typename Math>
typename Math::Float nearest_root(const Math &math, const typename Math::Float &x) {
    using Float = typename Math::Float;
    // Residuals of small numbers would be denormal, and lose their sign.
    const auto is_small = x < Float(0x1p-40f);
    return math.let(math.select(is_small, math.times(x, 0x1p80f), x), [&](const auto &square) {
        const auto step = [&](const auto &root) {  // Tuckerman's test: it is s where s pred(s) < x <= s succ(s)
            const Float below = math.moved(root, -1), above = math.moved(root, 1);
            const auto is_high = math.fma(below, root, math.negate(square)) >= Float(0.0f);
            const auto is_low = math.fma(root, above, math.negate(square)) < Float(0.0f);
            return math.select(is_high, below, math.select(is_low, above, root));
        };
        const Float root = refine(math, math.root_estimate(square), step);
        return math.times(root, math.select(is_small, 0x1p-40f, 1.0f));
    });
}

/// The nearest float to a / b, where b is from 2^-75 to 2^75. a is at least 0, or NaN. A quotient that is denormal is
/// rounded twice.
template <typename Math>
typename Math::Float nearest_quotient(const Math &math, const typename Math::Float &a, const typename Math::Float &b) {
    using Float = typename Math::Float;
    const auto is_small = a < Float(0x1p-40f);  // as above
    return math.let(math.select(is_small, math.times(a, 0x1p80f), a), [&](const auto &dividend) {
        const auto step = [&](const auto &quotient) {  // what is left over is compared with half of an ulp
            const Float below = math.moved(quotient, -1), above = math.moved(quotient, 1);
            const Float rest = math.fma(math.negate(quotient), b, dividend);
            const Float up = math.times(math.times(math.plus(above, math.negate(quotient)), 0.5f), b);
            const Float down = math.times(math.times(math.plus(below, math.negate(quotient)), 0.5f), b);
            return math.select(rest > up, above, math.select(rest < down, below, quotient));
        };
        const Float quotient = refine(math, math.quotient_estimate(dividend, b), step);
        return math.times(quotient, math.select(is_small, 0x1p-80f, 1.0f));
    });
}

}  // namespace halyard

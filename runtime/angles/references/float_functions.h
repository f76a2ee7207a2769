// Logarithms and powers, correctly rounded to float32: what engines' logf and powf are within an ulp of, without the
// differences between one libm and the next.
#pragma once

#include "frequencies/double_double.h"

namespace halyard {

/// The natural logarithm of a positive, finite value, in twice double precision.
inline DoubleDouble precise_log(double value) noexcept { return precise_log2(value) * ln_2; }

/// base^exponent in twice double precision, for a positive, finite base.
inline DoubleDouble precise_pow(double base, double exponent) noexcept {
    return precise_exp2(precise_log2(base) * exponent);
}

inline float log_float(float value) noexcept { return round_to_float(precise_log(value)); }

inline float pow_float(float base, float exponent) noexcept { return round_to_float(precise_pow(base, exponent)); }

}  // namespace halyard

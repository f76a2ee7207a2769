// cos and sin of position times frequency, correctly rounded to float32: single entries and whole rows.
#pragma once

#include "frequencies/double_double.h"
#include "halyard/halyard.h"

#include <cstdint>

namespace halyard {

/// An inverse frequency in quarter turns per position, modulo 4, since whole turns change nothing at integer positions.
struct QuarterTurns {
    DoubleDouble value;
    // value = high + middle + low. A position times high or middle (21 bits each) is exact in double.
    double high = 0.0;
    double middle = 0.0;
    double low = 0.0;
};

QuarterTurns to_quarter_turns(DoubleDouble inv_freq) noexcept;

/// One entry of a row: cos theta and sin theta, each multiplied by the attention factor and then rounded to f32.
struct CosSin {
    float cos = 0.0f;
    float sin = 0.0f;
};

/// Computes in plain double. Returns whether the error bound proves both roundings right; if not, *out is meaningless.
bool try_cos_sin(const halyard_frequencies &frequencies, std::int64_t pair, std::int32_t position,
                 CosSin *out) noexcept;

/// Computes in twice double precision: always right, and about thirty times slower.
CosSin precise_cos_sin(const halyard_frequencies &frequencies, std::int64_t pair, std::int32_t position) noexcept;

/// Writes float32(f cos theta) and float32(f sin theta), correctly rounded, for every pair at one position.
void make_row(const halyard_frequencies &frequencies, std::int32_t position, float *cos_row, float *sin_row) noexcept;

/// float32(factor cos angle) and float32(factor sin angle), |angle| < 2^60, correctly rounded. (A libm's cosf and sinf
/// are within an ulp of these.)
CosSin cos_sin_of_angle(float angle, double factor) noexcept;

/// Returns a pair's frequency in units of 2^-64 full turns per position, rounded to nearest, without whole turns.
std::uint64_t turns_of(const halyard_frequencies &frequencies, std::int64_t pair) noexcept;

}  // namespace halyard

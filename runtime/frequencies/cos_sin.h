// cos and sin of position times frequency, correctly rounded to float32: single entries and whole rows.
#pragma once

#include "frequencies/double_double.h"
#include "halyard/halyard.h"

#include <cstdint>

namespace halyard {

/// An inverse frequency in quarter turns per position, modulo 4: whole turns change nothing at integer positions.
struct QuarterTurns {
    DoubleDouble value;
    // value in three: a position times high or middle (21 bits each) is exact in double.
    double high = 0.0;
    double middle = 0.0;
    double low = 0.0;
};

QuarterTurns to_quarter_turns(DoubleDouble inv_freq) noexcept;

/// One entry of a row: float32(f cos theta) and float32(f sin theta).
struct CosSin {
    float cos = 0.0f;
    float sin = 0.0f;
};

/// Works in plain double, and says whether its error bound settles both roundings. Where not, *out is meaningless.
bool try_cos_sin(const halyard_frequencies &frequencies, std::int64_t pair, std::int32_t position,
                 CosSin *out) noexcept;

/// Works in twice double precision: settles every case, some thirty times slower.
CosSin precise_cos_sin(const halyard_frequencies &frequencies, std::int64_t pair, std::int32_t position) noexcept;

/// Writes float32(f cos theta) and float32(f sin theta), correctly rounded, for every pair at one position.
void make_row(const halyard_frequencies &frequencies, std::int32_t position, float *cos_row, float *sin_row) noexcept;

/// float32(factor cos angle) and float32(factor sin angle), |angle| < 2^60, correctly rounded: what a libm's cosf and
/// sinf are within an ulp of.
CosSin cos_sin_of_angle(float angle, double factor) noexcept;

/// Returns a frequency in 2^-64 turns per position, rounded to nearest and without whole turns.
std::uint64_t turns_of(const halyard_frequencies &frequencies, std::int64_t pair) noexcept;

}  // namespace halyard

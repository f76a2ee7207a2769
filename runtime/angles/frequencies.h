// Inverse frequencies: what the rest of the runtime reads of them, and how it makes them.
#pragma once

#include "angles/cos_sin.h"
#include "angles/double_double.h"
#include "halyard/halyard.h"

#include <cstdint>
#include <memory>

struct halyard_frequencies {
    std::int64_t n_pairs = 0;
    double attention_factor = 1.0;
    halyard_frequencies_info about = {};  // what is known of the model; the fields above are not set in it
    std::unique_ptr<halyard::DoubleDouble[]> inv_freq;
    std::unique_ptr<double[]> rounded_inv_freq;  // what halyard_get_frequencies_info returns
    std::unique_ptr<halyard::QuarterTurns[]> quarter_turns;
};

namespace halyard {

inline constexpr std::int64_t max_rotary_dim = std::int64_t{1} << 20;
inline constexpr double max_inv_freq = 0x1p20;

/// Below 2^-126 the rows of a table would be subnormal, with errors beyond what results may have. A factor keeps to the
/// range of all other factors, which is far from that.
inline bool is_attention_factor(double value) noexcept { return value >= 0x1p-60 && value <= 0x1p60; }
inline constexpr char attention_factor_range[] = "in 2^-60 to 2^60";

/// Makes frequencies whose values are still to be set. `method` is a static string, and all that `about` says yet.
/// Returns NULL when memory runs out.
std::unique_ptr<halyard_frequencies> allocate_frequencies(std::int64_t n_pairs, const char *method) noexcept;

/// Sets an inverse frequency, |inv_freq| <= max_inv_freq.
void set_inv_freq(halyard_frequencies &frequencies, std::int64_t pair, DoubleDouble inv_freq) noexcept;

}  // namespace halyard

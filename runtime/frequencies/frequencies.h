// Inverse frequencies: the object that the rest of the runtime reads, and functions that make it.
#pragma once

#include "frequencies/cos_sin.h"
#include "frequencies/double_double.h"
#include "halyard/halyard.h"

#include <cstdint>
#include <memory>

namespace halyard {

inline constexpr std::int64_t max_tokens = std::int64_t{1} << 53;  // the largest count that a double holds exactly

/// What frequencies were made from, to make them again for other context lengths.
struct Origin {
    halyard_scaling scaling = {};               // checked, with its defaults; the lists are in factors
    std::unique_ptr<double[]> factors;          // [2 * n_factors], short_factor first; NULL without LONGROPE
    double short_attention_factor = 0.0;        // for contexts of at most original_max_position; 0: one factor for all
    double long_attention_factor = 0.0;         // for longer contexts; 0 likewise
    std::int64_t longest_seq_len = max_tokens;  // the longest context that Halyard knows the model's rule for
};

}  // namespace halyard

struct halyard_frequencies {
    std::int64_t n_pairs = 0;
    double attention_factor = 1.0;
    halyard_frequencies_info about = {};  // the model's properties; rotary_dim and attention_factor are not set in it
    std::unique_ptr<halyard::DoubleDouble[]> inv_freq;
    std::unique_ptr<double[]> rounded_inv_freq;  // what halyard_get_frequencies_info returns
    std::unique_ptr<halyard::QuarterTurns[]> quarter_turns;
    std::unique_ptr<halyard::Origin> origin;  // NULL if the frequencies come from a list
    std::int64_t first_seq_len = 0;           // first … last: the context lengths for which they are valid
    std::int64_t last_seq_len = halyard::max_tokens;
};

namespace halyard {

inline constexpr std::int64_t max_rotary_dim = std::int64_t{1} << 20;
inline constexpr double max_inv_freq = 0x1p20;

/// Whether an attention_factor is in range. The range is the same as for all other factors. It begins far above
/// 2^-126, below which rows of a table would be subnormal, and too inexact.
inline bool is_attention_factor(double value) noexcept { return value >= 0x1p-60 && value <= 0x1p60; }
inline constexpr char attention_factor_range[] = "in 2^-60 to 2^60";

/// Allocates frequencies, whose values are still to be set. Sets method (a static string) and axis_map of `about`, and
/// nothing else of it. Returns NULL when memory runs out.
std::unique_ptr<halyard_frequencies> allocate_frequencies(std::int64_t n_pairs, const char *method) noexcept;

/// Sets the context lengths for which the frequencies are valid, and origin, with a copy of the lists of factors.
/// Returns false when memory runs out.
bool keep_origin(halyard_frequencies &frequencies, const halyard_scaling &scaling) noexcept;

/// Sets an inverse frequency, |inv_freq| <= max_inv_freq.
void set_inv_freq(halyard_frequencies &frequencies, std::int64_t pair, DoubleDouble inv_freq) noexcept;

}  // namespace halyard

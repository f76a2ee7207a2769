// Inverse frequencies: what the rest of the runtime reads of them, and how it makes them.
#pragma once

#include "frequencies/cos_sin.h"
#include "frequencies/double_double.h"
#include "halyard/halyard.h"

#include <cstdint>
#include <memory>

namespace halyard {

inline constexpr std::int64_t max_tokens = std::int64_t{1} << 53;  // a double counts no further

/// What frequencies were made from, for other context lengths.
struct Origin {
    halyard_scaling scaling = {};               // checked, with its defaults; the lists are in factors
    std::unique_ptr<double[]> factors;          // [2 * n_factors], the short ones first; NULL without
    double short_attention_factor = 0.0;        // stated apart for contexts up to original_max_position and longer
    double long_attention_factor = 0.0;         // ones; 0: not so
    std::int64_t longest_seq_len = max_tokens;  // that a scaling is known for
};

}  // namespace halyard

struct halyard_frequencies {
    std::int64_t n_pairs = 0;
    double attention_factor = 1.0;
    halyard_frequencies_info about = {};  // what is known of the model; the fields above are not set in it
    std::unique_ptr<halyard::DoubleDouble[]> inv_freq;
    std::unique_ptr<double[]> rounded_inv_freq;  // what halyard_get_frequencies_info returns
    std::unique_ptr<halyard::QuarterTurns[]> quarter_turns;
    std::unique_ptr<halyard::Origin> origin;          // NULL where the frequencies are just a list
    std::int64_t first_seq_len = 0;                   // the context lengths that they are for,
    std::int64_t last_seq_len = halyard::max_tokens;  // both included
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

/// Stores what the frequencies were made from, with a copy of the lists, and the context lengths that they are for.
/// Returns false when memory runs out.
bool keep_origin(halyard_frequencies &frequencies, const halyard_scaling &scaling) noexcept;

/// Sets an inverse frequency, |inv_freq| <= max_inv_freq.
void set_inv_freq(halyard_frequencies &frequencies, std::int64_t pair, DoubleDouble inv_freq) noexcept;

}  // namespace halyard

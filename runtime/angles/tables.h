// Makes the memory that angle sources own: tables of rows, and frequencies as fixed-point turns.
#pragma once

#include "angles/angle_source.h"
#include "frequencies/frequencies.h"

#include <cstdint>
#include <limits>

namespace halyard {

inline constexpr std::int64_t max_rows = std::numeric_limits<std::int32_t>::max();  // kernels count them in 32 bits

halyard_status fail_too_many_rows(std::int64_t n_rows, halyard_error *error) noexcept;

/// Sets cos_memory and sin_memory of a source. Returns false if the rows leave the address space.
bool find_rows_memory(halyard_angle_source &source) noexcept;

// The next two functions fill in a source whose kind, rotary_dim and range of positions are set.

/// Makes a row for each position of the range, and one for position 0.
halyard_status make_table(const halyard_frequencies &frequencies, halyard_angle_source &source,
                          halyard_error *error) noexcept;

/// Stores the frequencies as fixed-point turns, and attention_factor.
halyard_status make_turns(const halyard_frequencies &frequencies, halyard_angle_source &source,
                          halyard_error *error) noexcept;

}  // namespace halyard

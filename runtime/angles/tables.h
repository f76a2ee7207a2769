// What angle sources are made of: tables, phases.
#pragma once

#include "angles/angle_source.h"
#include "frequencies/frequencies.h"

#include <cstdint>
#include <limits>

namespace halyard {

inline constexpr std::int64_t max_rows = std::numeric_limits<std::int32_t>::max();  // kernels count them in 32 bits

halyard_status fail_rows(std::int64_t n_rows, halyard_error *error) noexcept;

/// Sets the memory that the rows span. Returns false if they leave the address space.
bool find_rows_memory(halyard_angle_source &source) noexcept;

// Each of these fills in a source whose kind, rotary_dim and range are set.

/// Makes rows for the range.
halyard_status make_table(const halyard_frequencies &frequencies, halyard_angle_source &source,
                          halyard_error *error) noexcept;

/// Stores the frequencies as fixed-point turns, beside what the source has already.
halyard_status make_turns(const halyard_frequencies &frequencies, halyard_angle_source &source,
                          halyard_error *error) noexcept;

}  // namespace halyard

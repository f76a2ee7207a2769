// Re-rotation: keys that were rotated for one position move to another.
#pragma once

#include "rotate/read_run.h"

#include <cstdint>

namespace halyard {

/// Reads where the keys of a plan that rerotates come from, for a run whose positions were read; refuses it for other
/// plans.
halyard_status read_moves(const halyard_run_args &args, Run &run, halyard_error *error) noexcept;

/// Checks what positions hold, and the dynamic scales of the keys that move. Slots were checked before.
halyard_status check_moves(const Run &run, halyard_error *error) noexcept;

/// Makes some pairs of the rows by which tokens first, first + 1, … turn, counted through all batch rows, as many as
/// made_floats hold: [row][cos, sin][n_pairs]. Tokens in a row that move alike share one. Returns how many of the
/// tokens to `last` - 1 have a row now, at least one and at most max_piece_tokens.
std::int64_t make_moved_rows(const Run &run, std::int64_t first, std::int64_t last, std::int64_t first_pair,
                             std::int64_t n_pairs, float *rows, std::int32_t *row_of_token) noexcept;

/// A dynamic scale where it lies. Another part of the run may be renewing it meanwhile, so it is read and written as
/// one.
float read_cached_scale(const char *at) noexcept;
void write_cached_scale(char *at, float scale) noexcept;

}  // namespace halyard

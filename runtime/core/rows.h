// Finds the row of cos and sin of each token, and makes rows where the angle source has none in memory that a kernel
// can read.
#pragma once

#include "angles/angle_source.h"
#include "angles/positions.h"
#include "core/kernels.h"

#include <algorithm>
#include <cstdint>

namespace halyard {

/// The most tokens of a block: enough to make a kernel's call cheap, few enough for arrays of them on the stack.
inline constexpr std::int64_t max_block_tokens = 256;

/// Room for made rows on the stack: 16 KiB, half an L1 cache, so that they are still cached when they are read.
inline constexpr std::int64_t made_floats = 4096;

/// What determines which rows of cos and sin the tokens of a call use.
struct RowInput {
    const halyard_angle_source *angles;
    const Positions *positions;
    const void *position_data;
    BadPosition bad_position;
};

/// Finds the rows of n tokens on an axis, from the token `first` on: found[i] is the number of the row of token first +
/// i or, for PHASE, its position. Replaces bad positions as the policy says. Returns false if a position is bad and the
/// policy is `error`.
[[gnu::always_inline]] inline bool find_rows(const RowInput &input, std::int32_t axis, std::int64_t first,
                                             std::int64_t n, std::int32_t *found) noexcept {
    const halyard_angle_source &angles = *input.angles;
    const Positions &positions = *input.positions;
    const std::int64_t origin = angles.has_rows() ? angles.first : 0;  // the position of row 0
    std::int64_t batch = first < positions.n_tokens ? 0 : first / positions.n_tokens;
    std::int64_t token = first - batch * positions.n_tokens;
    bool all = true;
    for (std::int64_t i = 0; i < n; i++) {
        std::int64_t position = positions.at(input.position_data, batch, token, axis);
        if (position < angles.first || position > angles.last) {
            all = all && input.bad_position != BadPosition::error;
            position = input.bad_position == BadPosition::clamp ? std::clamp(position, angles.first, angles.last)
                                                                : origin + angles.identity_row;
        }
        found[i] = static_cast<std::int32_t>(position - origin);
        if (++token == positions.n_tokens) {
            token = 0;
            batch++;
        }
    }
    return all;
}

/// Fails, naming the first bad position, if a token of the set has one and that is an error. tokens NULL: all tokens.
halyard_status check_positions(const RowInput &input, const TokenSet *tokens, halyard_error *error) noexcept;

/// How much of the rows of cos and sin is made at once: n_pairs pairs of n_tokens rows, in made_floats floats.
struct RowBlock {
    std::int64_t n_tokens, n_pairs;
};
RowBlock row_block(std::int64_t rotary_dim) noexcept;

/// Where rows are written: cos of pair k of token t to data[t * stride_token + k], its sin stride_sin floats later.
struct RowOutput {
    float *data;
    std::int64_t stride_token, stride_sin;
};

/// Frequencies and attention_factor of a PHASE source, as halyard_rows_phase_kernel takes them.
struct Phases {
    const std::uint32_t *turns_high, *turns_low;
    float scale_high, scale_low;
};

/// Makes the rows of n_tokens positions, for the pairs of `phases`.
void make_phase_rows(const Phases &phases, const RowKernels &kernels, const std::int32_t *positions,
                     std::int64_t n_tokens, std::int64_t n_pairs, const RowOutput &out) noexcept;

/// Makes one row of angles in 2^-32 of a full turn, multiplied by attention_factor.
void make_row_of_turns(const std::uint32_t *turns, double attention_factor, const RowKernels &kernels,
                       std::int64_t n_pairs, const RowOutput &out) noexcept;

/// Makes pairs first_pair … first_pair + n_pairs - 1 of the rows of tokens first … first + n - 1, at most a RowBlock.
void make_rows(const RowInput &input, const RowKernels &kernels, std::int64_t first, std::int64_t n,
               std::int64_t first_pair, std::int64_t n_pairs, const RowOutput &out) noexcept;

}  // namespace halyard

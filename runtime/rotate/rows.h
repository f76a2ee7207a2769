// Rows of cos and sin that a kernel cannot read where they lie: made for a few tokens at a time.
#pragma once

#include "angles/angles.h"
#include "rotate/dispatch.h"

namespace halyard {

/// Room for rows on the stack: 16 KiB, half a first-level cache, so that they are still there when they are read.
inline constexpr std::int64_t made_floats = 4096;

/// How many tokens and pairs of rows are made at once.
struct RowBlock {
    std::int64_t n_tokens, n_pairs;
};
RowBlock row_block(std::int64_t rotary_dim) noexcept;

/// Where rows go: cos of pair k of token t is at data[t * stride_token + k], sin is stride_sin further.
struct RowOutput {
    float *data;
    std::int64_t stride_token, stride_sin;
};

/// Which tokens' rows: n_tokens from `first` on, counted through batch rows of tokens_in_batch.
struct RowTokens {
    const Positions *positions;
    std::int32_t bad_position;
    std::int64_t tokens_in_batch, first, n_tokens;
};

/// Makes pairs first_pair … first_pair + n_pairs - 1 of the rows of at most a RowBlock. A position that is bad under
/// HALYARD_BAD_POSITION_ERROR counts as 0.
void make_rows(const halyard_angle_source &source, const RowKernels &kernels, const RowTokens &tokens,
               std::int64_t first_pair, std::int64_t n_pairs, const RowOutput &out) noexcept;

/// The arithmetic of generators/rows_generator.cpp with std::fma, for one row: the same bits as every target with FMA.
void phase_row_reference(std::int32_t position, const std::uint32_t *turns_high, const std::uint32_t *turns_low,
                         float scale_high, float scale_low, std::int64_t n_pairs, float *cos_row,
                         float *sin_row) noexcept;
void factored_row_reference(const float *coarse_cos, const float *coarse_sin, const float *fine_cos,
                            const float *fine_sin, std::int64_t n_pairs, float *cos_row, float *sin_row) noexcept;

}  // namespace halyard

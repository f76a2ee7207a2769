// Makes rows of cos and sin for a few tokens at a time, where a kernel cannot read the source's rows from memory.
#pragma once

#include "angles/angle_source.h"
#include "angles/linear.h"
#include "angles/moves.h"
#include "angles/positions.h"
#include "walk/dispatch.h"

namespace halyard {

/// Room for rows on the stack: 16 KiB, half a first-level cache, so that the rows are still cached when they are read.
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

/// The tokens whose rows are made: n_tokens from `first` on, counted through batch rows of tokens_in_batch.
struct RowTokens {
    const CheckedPositions *positions;
    BadPosition bad_position;
    std::int64_t tokens_in_batch, first, n_tokens;
};

/// Makes pairs first_pair … first_pair + n_pairs - 1 of the rows of at most a RowBlock. A position that is bad under
/// BadPosition::error counts as 0.
void make_rows(const halyard_angle_source &source, const RowKernels &kernels, const RowTokens &tokens,
               std::int64_t first_pair, std::int64_t n_pairs, const RowOutput &out) noexcept;

/// Makes the rows of linear angles for tokens first, first + 1, … to last - 1, counted through batch rows of
/// tokens_in_batch: [token][cos, sin][pair], of which `rows` is that of token 0.
void make_linear_rows(const LinearAngles &linear, const RowKernels &kernels, std::int64_t tokens_in_batch,
                      std::int64_t first, std::int64_t last, float *rows) noexcept;

/// The tokens whose keys move: first, first + 1, … to last - 1, counted through batch rows of tokens_in_batch.
struct MovedTokens {
    std::int64_t tokens_in_batch, first, last;
};

/// Makes some pairs of the rows by which keys turn, for as many of the tokens as made_floats hold: [row][cos,
/// sin][n_pairs]. Tokens in a row that move alike share one. Returns how many tokens have a row now, at least one and
/// at most max_piece_tokens.
std::int64_t make_moved_rows(const Moves &moves, const RowKernels &kernels, const MovedTokens &tokens,
                             std::int64_t first_pair, std::int64_t n_pairs, float *rows,
                             std::int32_t *row_of_token) noexcept;

}  // namespace halyard

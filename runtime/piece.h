// A piece of work, and the two ways to do it: a generated kernel, or the portable reference.
#pragma once

#include "dispatch.h"

#include <cstdint>

namespace halyard {

/// Element strides of a tensor's pairs, as the algorithm sees them.
struct PairStrides {
    std::int64_t pair, member, head, token;
};

/// Tokens in one piece at most: enough to make a kernel's call cheap, few enough for their rows to be on the stack.
inline constexpr std::int64_t max_piece_tokens = 256;

/// Some heads of some tokens of one tensor.
struct Piece {
    std::int32_t dtype;
    const char *x;  // member 0 of pair 0 of the first head of the first token
    char *y;
    PairStrides in, out;
    std::int64_t n_pairs, n_heads, n_tokens;
    const float *cos_rows, *sin_rows;
    std::int64_t n_rows;
    std::int64_t stride_row;           // in floats
    const std::int64_t *row_of_token;  // [n_tokens]
    std::uint32_t sin_sign;            // 0x80000000 for the inverse
};

/// Runs a kernel on a piece, in as many calls as it takes to keep what each reaches within the kernel's 32-bit offsets.
/// The reference does what they cannot hold at all: a single head of more than 2^31 elements' reach.
void rotate_piece(const Kernel &kernel, const Piece &piece) noexcept;

/// Rotates with std::fma, in the canonical form of generators/rotation.h: the same bits as every target with FMA. It
/// serves any strides, and is the oracle of the tests.
void rotate_reference(const Piece &piece) noexcept;

}  // namespace halyard

// Token positions as the caller stores them.
#pragma once

#include "base/token_numbers.h"

#include <cstdint>
#include <limits>

namespace halyard {

/// The caller's positions, checked. Without data a token's position is its number, and stride_batch leads from one
/// batch row's to the next; with data, it is 0 where one row serves every batch row.
struct CheckedPositions : TokenNumbers {
    std::int64_t stride_axis;  // in elements; 0 where there is one axis

    /// The position of a token on an axis. Saturates where start + token leaves int64.
    std::int64_t at(std::int64_t batch, std::int64_t token, std::int32_t axis = 0) const noexcept {
        std::int64_t position = batch * stride_batch;  // where no data were given
        if (data != nullptr) {
            position = read(axis * stride_axis + batch * stride_batch + token * stride_token);
        }
        if (consecutive && __builtin_add_overflow(position, token, &position)) {
            position = std::numeric_limits<std::int64_t>::max();
        }
        return position;
    }
};

/// The tokens of a call, [n_batch, n_tokens].
struct Tokens {
    std::int64_t n_batch, n_tokens;
    const TokenNumbers *slots = nullptr;  // where each is written; NULL: all are

    /// Whether a token is written anywhere. Where it is not, nobody looks at its position.
    bool are_written(std::int64_t batch, std::int64_t token) const noexcept {
        return slots == nullptr || slots->read(batch * slots->stride_batch + token * slots->stride_token) != -1;
    }
};

/// The positions that there are, and who has no others, in words.
struct PositionRange {
    std::int64_t first, last;
    const char *whose;

    bool has(std::int64_t position) const noexcept { return position >= first && position <= last; }
};

/// Fails, naming the first that is out of range, unless the positions of all tokens that are written are within it.
halyard_status check_within(const PositionRange &range, const CheckedPositions &positions, std::int32_t n_axes,
                            const Tokens &tokens, const char *name, halyard_error *error) noexcept;

/// Checks positions (may be NULL) against the shape that a call works on. name is for the message.
halyard_status read_positions(const halyard_positions *positions, std::int64_t n_batch, std::int64_t n_tokens,
                              std::int32_t n_axes, CheckedPositions *out, halyard_error *error,
                              const char *name = "positions") noexcept;

/// Those where nothing is given: 0, 1, 2, … in every batch row.
inline constexpr CheckedPositions positions_in_order = {{nullptr, false, true, 0, 0, {0, 0}}, 0};

}  // namespace halyard

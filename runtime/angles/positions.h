// The positions of a call's tokens.
#pragma once

#include "base/token_numbers.h"

#include <cstdint>
#include <limits>

namespace halyard {

/// Where positions lie. Without an array, the strides lead from position to position: consecutive ones, or rows by
/// token.
struct Positions : TokenNumbers {
    std::int64_t stride_axis;  // in elements; 0 where there is one axis, or all axes share the positions

    /// The position of a token on an axis. Saturates where start + token leaves int64.
    std::int64_t at(const void *data, std::int64_t batch, std::int64_t token, std::int32_t axis = 0) const noexcept {
        std::int64_t position = batch * stride_batch + token * stride_token + axis * stride_axis;
        if (is_given) {
            position = read(data, position);
        }
        if (is_consecutive && __builtin_add_overflow(position, token, &position)) {
            position = std::numeric_limits<std::int64_t>::max();
        }
        return position;
    }

    /// How many batch rows have positions of their own.
    std::int64_t n_distinct() const noexcept { return stride_batch == 0 ? 1 : n_batch; }
};

/// Some of a call's tokens, which are counted through all batch rows.
struct TokenSet {
    bool (*holds)(const void *context, std::int64_t token);
    const void *context;
};

/// The positions that there are, and who has no others, in words.
struct PositionRange {
    std::int64_t first, last;
    const char *whose;

    bool has(std::int64_t position) const noexcept { return position >= first && position <= last; }
};

/// Fails, naming the first that is out of range, unless the positions of all tokens of the set are within it. NULL: all
/// tokens. name is for the message.
halyard_status check_within(const PositionRange &range, const Positions &positions, const void *data,
                            std::int32_t n_axes, const TokenSet *tokens, const char *name,
                            halyard_error *error) noexcept;

/// Those where nothing is given: 0, 1, 2, … in every batch row.
Positions positions_in_order(std::int64_t n_batch, std::int64_t n_tokens) noexcept;

/// Checks positions against the shape of a call. NULL stands for positions in order, but not for several sequences of
/// one token: they would all be at position 0. name is for the message.
halyard_status bind_positions(const halyard_positions *given, std::int64_t n_batch, std::int64_t n_tokens,
                              std::int32_t n_axes, const char *name, Positions *out, halyard_error *error) noexcept;

/// Has rows by token read: without positions, token t of batch row b reads row b * tokens + t, or just t.
void bind_rows_by_token(bool is_shared, Positions &positions) noexcept;

}  // namespace halyard

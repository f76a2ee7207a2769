// The positions of a call's tokens.
#pragma once

#include "base/token_numbers.h"

#include <cstdint>
#include <limits>

namespace halyard {

/// The shape and strides of positions. Without an array (is_given is false) the strides alone give the positions: the
/// number of the token's row if the angle source has a row for each token (by_token), else consecutive numbers.
struct Positions : TokenNumbers {
    std::int64_t stride_axis;  // in elements; 0 if there is one axis, or all axes share positions

    /// The position of a token on an axis. start + token saturates at the largest int64.
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

/// The positions that are valid.
struct PositionRange {
    std::int64_t first, last;
    const char *whose;  // for messages: "the angle source covers "

    bool has(std::int64_t position) const noexcept { return position >= first && position <= last; }
};

/// Fails, naming the first bad position, unless the positions of all tokens of the set are in the range. If `tokens` is
/// NULL, the set is all tokens. name is for the message.
halyard_status check_within(const PositionRange &range, const Positions &positions, const void *data,
                            std::int32_t n_axes, const TokenSet *tokens, const char *name,
                            halyard_error *error) noexcept;

/// The positions of a run that gives none: 0, 1, 2, … in every batch row.
Positions positions_in_order(std::int64_t n_batch, std::int64_t n_tokens) noexcept;

/// Checks positions against the shape of a call, and fills in *out. NULL means positions in order. For several
/// sequences of one token NULL is an error, because all would be at position 0. name is for the message.
halyard_status bind_positions(const halyard_positions *given, std::int64_t n_batch, std::int64_t n_tokens,
                              std::int32_t n_axes, const char *name, Positions *out, halyard_error *error) noexcept;

/// For angle sources that have a row for each token: makes each token's position the number of its row. For token t of
/// batch row b that is b * n_tokens + t, or t if all batch rows share the source's rows.
void set_positions_to_rows(bool is_shared, Positions &positions) noexcept;

}  // namespace halyard

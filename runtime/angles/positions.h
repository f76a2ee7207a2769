// Token positions as the caller stores them: any stride, any alignment, int32 or int64.
#pragma once

#include "base/overlap.h"
#include "halyard/halyard.h"

#include <cstdint>
#include <cstring>
#include <limits>

namespace halyard {

/// The caller's positions, checked and with the defaults filled in. (No initializers: a run would pay for them.)
struct CheckedPositions {
    const void *data;
    bool is_int64;  // else int32
    bool consecutive;
    std::int64_t stride_axis;   // in elements; 0 where there is one axis,
    std::int64_t stride_batch;  // or where one row serves every batch row. Without data: from row to row of positions
    std::int64_t stride_token;
    MemoryRange memory;

    /// The position of a token on an axis. Saturates where start + token leaves int64.
    std::int64_t at(std::int64_t batch, std::int64_t token, std::int32_t axis = 0) const noexcept {
        std::int64_t position = batch * stride_batch;  // where no data were given
        if (data != nullptr) {
            const std::int64_t index = axis * stride_axis + batch * stride_batch + token * stride_token;
            if (is_int64) {
                std::memcpy(&position, static_cast<const char *>(data) + index * 8, 8);
            } else {
                std::int32_t narrow = 0;
                std::memcpy(&narrow, static_cast<const char *>(data) + index * 4, 4);
                position = narrow;
            }
        }
        if (consecutive && __builtin_add_overflow(position, token, &position)) {
            position = std::numeric_limits<std::int64_t>::max();
        }
        return position;
    }
};

/// Checks positions (may be NULL) against the shape that a call works on. name is for the message.
halyard_status read_positions(const halyard_positions *positions, std::int64_t n_batch, std::int64_t n_tokens,
                              std::int32_t n_axes, CheckedPositions *out, halyard_error *error,
                              const char *name = "positions") noexcept;

}  // namespace halyard

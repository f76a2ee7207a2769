// Slots: where in its caches a run stores each token.
#pragma once

#include "base/token_numbers.h"

#include <cstdint>

namespace halyard {

/// The caller's slots. Their values are checked later, by check_slots.
struct CheckedSlots : TokenNumbers {
    bool may_be_doubled;  // then the later token is kept
    std::int64_t n_batch, n_tokens;
    std::int64_t n_slots;  // of the smallest cache
    unsigned char *scratch;
    MemoryRange scratch_memory;

    std::int64_t at(std::int64_t batch, std::int64_t token) const noexcept {
        const std::int64_t slot = read(batch * stride_batch + token * stride_token);
        // If the sum wraps, the start is out of range, and check_slots refuses that.
        return consecutive && slot != -1
                   ? static_cast<std::int64_t>(static_cast<std::uint64_t>(slot) + static_cast<std::uint64_t>(token))
                   : slot;
    }

    /// The slot of a token, counted through all batch rows; -1 if it is not stored. Never out of range, even if another
    /// thread has changed the caller's slots since they were checked.
    std::int64_t of_token(std::int64_t token) const noexcept {
        const std::int64_t batch = n_batch == 1 ? 0 : token / n_tokens;
        const std::int64_t slot = at(batch, token - batch * n_tokens);
        return slot < 0 || slot >= n_slots ? -1 : slot;
    }
};

/// Checks slots for a run of this shape, which is not empty, and whose smallest cache has n_slots.
halyard_status read_slots(const halyard_slots *slots, std::int64_t n_batch, std::int64_t n_tokens, std::int64_t n_slots,
                          CheckedSlots *out, halyard_error *error) noexcept;

/// Checks the values of slots, in time that is linear in their number.
halyard_status check_slots(const CheckedSlots &slots, halyard_error *error) noexcept;

}  // namespace halyard

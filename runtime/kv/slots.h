// Slots: where in its caches a run stores each token.
#pragma once

#include "base/token_numbers.h"
#include "halyard/halyard_kv.h"

#include <cstdint>

namespace halyard {

/// Where the caller's slots lie, and what they may be. Their values are checked in each call, by check_slots.
struct Slots : TokenNumbers {
    bool may_be_doubled;         // then the later token is kept
    std::int64_t n_slots;        // of the smallest cache
    std::int64_t scratch_bytes;  // 0 where slots may be doubled

    std::int64_t at(const void *data, std::int64_t batch, std::int64_t token) const noexcept {
        const std::int64_t slot = read(data, batch * stride_batch + token * stride_token);
        // If the sum wraps, the start is out of range, and check_slots refuses that.
        return is_consecutive && slot != -1
                   ? static_cast<std::int64_t>(static_cast<std::uint64_t>(slot) + static_cast<std::uint64_t>(token))
                   : slot;
    }

    /// The slot of a token, counted through all batch rows; -1 if it is not stored. Never out of range, even if another
    /// thread has changed the caller's slots since they were checked.
    std::int64_t of_token(const void *data, std::int64_t token) const noexcept {
        const std::int64_t batch = n_batch == 1 ? 0 : token / n_tokens;
        const std::int64_t slot = at(data, batch, token - batch * n_tokens);
        return slot < 0 || slot >= n_slots ? -1 : slot;
    }
};

/// Checks slots for a run of this shape, which is not empty, and whose smallest cache has n_slots.
halyard_status bind_slots(const halyard_slots *given, std::int64_t n_batch, std::int64_t n_tokens, std::int64_t n_slots,
                          Slots *out, halyard_error *error) noexcept;

/// Checks the values of slots, in time that is linear in their number. scratch is the caller's.
halyard_status check_slots(const Slots &slots, const void *data, unsigned char *scratch, halyard_error *error) noexcept;

}  // namespace halyard

// KV caches: a cache's description, the addresses of a slot's elements, the slots of a run, and tokens of a run that are
// evenly spaced in a cache.
#pragma once

#include "base/overlap.h"
#include "base/storage.h"
#include "base/token_numbers.h"
#include "base/transpose.h"
#include "halyard/halyard_kv.h"

#include <cstdint>

namespace halyard {

/// A checked halyard_cache_desc with its defaults filled in.
struct CacheDesc : halyard_cache_desc {  // tile_elements is at most head_dim
    std::int64_t spacing;                // of a head's elements; 0 if they are not evenly spaced
    Reach of_one_head;                   // of one head of all slots, in elements
    std::int64_t most_heads;             // with more heads, two elements could overlap

    /// The offset of element 0 of head 0 of a slot, in elements.
    std::int64_t offset_of(std::int64_t slot) const noexcept {
        const std::int64_t block = slot / block_size, t = slot - block * block_size;
        const std::int64_t tile = t / tile_tokens;
        return block * stride_block + tile * stride_tile_tokens + (t - tile * tile_tokens) * stride_token;
    }

    /// From an element of a head to the next one in its tile.
    std::int64_t element_stride() const noexcept { return spacing != 0 ? spacing : stride_element; }

    /// Whether tiles of contiguous elements are small enough to be copied each by one instruction.
    bool has_units(std::int64_t element_bytes) const noexcept {
        return spacing == 0 && stride_element == 1 && can_copy_units_of(tile_elements * element_bytes);
    }

    /// Whether elements lie too far apart, or tiles are too small, for a kernel to store them.
    bool scatters(std::int64_t element_bytes) const noexcept {
        return element_stride() != 1 || has_units(element_bytes);
    }

    /// Whether all heads of all slots begin an even number of elements apart.
    bool are_strides_even() const noexcept {
        return ((stride_block | stride_tile_tokens | stride_token | stride_head) & 1) == 0;
    }

    /// Sets *out to the reach of a cache of n_heads heads, in bytes; returns false if no address space can hold it.
    bool find_reach(std::int64_t n_heads, std::int64_t element_bytes, Reach *out) const noexcept {
        std::int64_t heads = 0;
        if (__builtin_mul_overflow(n_heads - 1, stride_head, &heads) || (heads ^ (heads >> 63)) >> 57 != 0) {
            return false;
        }
        const auto bytes = static_cast<std::uintptr_t>(element_bytes);
        *out = {(of_one_head.below + static_cast<std::uintptr_t>(heads < 0 ? -heads : 0)) * bytes,
                (of_one_head.above + static_cast<std::uintptr_t>(heads > 0 ? heads : 0)) * bytes};
        return true;
    }

    /// All elements of the cache, as if partial tiles were whole.
    Lattice elements(const void *data, Dtype dtype, std::int64_t n_heads, std::int64_t head_dim) const noexcept;
};

/// Checks a cache's description, except for the number of heads, which only a run knows. `name` is for error messages.
halyard_status read_cache(const halyard_cache_desc *cache, const char *name, std::int64_t head_dim, CacheDesc *out,
                          halyard_error *error) noexcept;

/// The caller's array of slots, without its address, and the valid values, which check_slots checks in each call.
struct Slots : TokenNumbers {
    bool may_be_doubled;         // two tokens may have one slot: the later token is kept
    std::int64_t n_slots;        // of the smallest cache
    std::int64_t scratch_bytes;  // 0 if may_be_doubled

    std::int64_t read_slot(const void *data, std::int64_t batch, std::int64_t token) const noexcept {
        const std::int64_t slot = read(data, batch * stride_batch + token * stride_token);
        // If the sum wraps, the start is out of range, and check_slots refuses that.
        const std::uint64_t step = is_consecutive ? 1 : 0;
        return slot == -1 ? slot : static_cast<std::int64_t>(static_cast<std::uint64_t>(slot) + step * static_cast<std::uint64_t>(token));
    }

    /// The slot of a token (counted through all batch rows); -1 if it is not stored. Never out of range, even if
    /// another thread has changed the caller's slots since they were checked.
    std::int64_t slot_of_token(const void *data, std::int64_t token) const noexcept {
        const std::int64_t batch = n_batch == 1 ? 0 : token / n_tokens;
        const std::int64_t slot = read_slot(data, batch, token - batch * n_tokens);
        return slot < 0 || slot >= n_slots ? -1 : slot;
    }
};

/// Checks halyard_slots for a run that is not empty. The numbers of the slots are checked when they are read, against
/// n_slots, the number of slots of the smallest cache.
halyard_status bind_slots(const halyard_slots *given, std::int64_t n_batch, std::int64_t n_tokens, std::int64_t n_slots,
                          Slots *out, halyard_error *error) noexcept;

/// Checks the values of slots, in linear time. scratch is the caller's, one bit for each slot of the cache.
halyard_status check_slots(const Slots &slots, const void *data, unsigned char *scratch, halyard_error *error) noexcept;

/// Consecutive tokens of a run that have slots and are evenly spaced in a cache.
struct Stored {
    std::int64_t first, n_tokens;       // n_tokens is 0 if there are none
    std::int64_t offset, stride_token;  // from slot 0 to the first token, and from token to token, in elements
};

/// Finds the next such tokens among tokens first … first + n - 1, counted through all batch rows.
Stored find_stored(const Slots &slots, const void *data, const CacheDesc &cache, std::int64_t first,
                   std::int64_t n) noexcept;

}  // namespace halyard

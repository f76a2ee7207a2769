// A cache: its description, where the elements of a slot lie, the slots of a run, and the stretches of tokens that lie
// evenly apart there.
#pragma once

#include "base/overlap.h"
#include "base/storage.h"
#include "base/token_numbers.h"
#include "halyard/halyard_kv.h"

#include <cstdint>

namespace halyard {

/// How elements of an output lie that are not all neighbours: in tiles of a few bytes, or single.
enum class Scatter { none, tiles, single };

/// A checked halyard_cache_desc with its defaults filled in.
struct CacheDesc : halyard_cache_desc {  // tile_elements is at most head_dim
    Reach of_one_head;                   // in elements
    std::int64_t most_heads;             // of so many, no two elements meet

    /// Where element 0 of a slot's head 0 lies, in elements.
    std::int64_t offset_of(std::int64_t slot) const noexcept {
        const std::int64_t block = slot / block_size, t = slot - block * block_size;
        const std::int64_t tile = t / tile_tokens;
        return block * stride_block + tile * stride_tile_tokens + (t - tile * tile_tokens) * stride_token;
    }

    /// Whether the elements of a head lie one stride apart, which *stride then is.
    bool is_linear(std::int64_t head_dim, std::int64_t *stride) const noexcept {
        *stride = tile_elements == 1 && head_dim > 1 ? stride_tile_elements : stride_element;
        return tile_elements == 1 || tile_elements == head_dim ||
               stride_tile_elements == tile_elements * stride_element;
    }

    Scatter scatter(std::int64_t head_dim, std::int64_t element_bytes) const noexcept;

    /// How far so many heads reach, in bytes; false where no address space holds them.
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

    /// All elements, as if partial tiles were whole.
    Lattice elements(const void *data, Dtype dtype, std::int64_t n_heads, std::int64_t head_dim) const noexcept;
};

/// Checks all that does not depend on the number of heads. `name` is what sentences call it.
halyard_status read_cache(const halyard_cache_desc *cache, const char *name, std::int64_t head_dim, CacheDesc *out,
                          halyard_error *error) noexcept;

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

/// Tokens that are stored and lie evenly apart in a cache.
struct Stored {
    std::int64_t first, n_tokens;       // n_tokens is 0 where there is none
    std::int64_t offset, stride_token;  // in elements, from slot 0 on
};

/// Finds the next of them among n tokens from `first` on, counted through all batch rows. data are the slots'.
Stored find_stored(const Slots &slots, const void *data, const CacheDesc &cache, std::int64_t first,
                   std::int64_t n) noexcept;

}  // namespace halyard

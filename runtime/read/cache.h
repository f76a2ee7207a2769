// A checked cache description: where the elements of a slot lie.
#pragma once

#include "base/overlap.h"
#include "base/storage.h"
#include "halyard/halyard.h"

#include <cstdint>

namespace halyard {

/// A checked halyard_cache_desc with its defaults filled in.
struct CacheDesc : halyard_cache_desc {  // tile_elements is at most head_dim
    std::int64_t overhang;  // by how many elements elements() reaches beyond the last one, in partial tiles

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

    /// All elements, as if partial tiles were whole: see overhang.
    Lattice elements(const void *data, Dtype dtype, std::int64_t n_heads, std::int64_t head_dim) const noexcept;
};

/// Checks all that does not depend on the number of heads.
halyard_status read_cache(const halyard_cache_desc *cache, int index, std::int64_t head_dim, CacheDesc *out,
                          halyard_error *error) noexcept;

}  // namespace halyard

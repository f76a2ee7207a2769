// The layouts of caches that engines have, as descriptions.
#pragma once

#include "halyard/halyard_kv.h"

#include <cstdint>
#include <iterator>

enum CacheLayout {
    no_cache,
    rows,          // [slots, H, D]
    nhd,           // [pages, bs, H, D]
    hnd,           // [pages, H, bs, D]
    transposed_k,  // [pages, H, D, bs]
    amx_k,         // [pages, H, bs / 16, D / 2, 16, 2], the last of elements
    amx_v,         // [pages, H, D / 16, bs / 2, 16, 2], the last of tokens
    x_split,       // [pages, H, D / x, bs, x]
    x_split_v,     // [pages, H, bs / xv, D, xv]
    packed_v,      // [pages, H, bs, 2 D], of which it is the first half
    n_layouts_of_caches
};

inline void describe_layout(int layout, std::int64_t n_pages, std::int64_t bs, std::int64_t n_heads,
                            std::int64_t head_dim, halyard_cache_desc &cache) {
    const std::int64_t H = n_heads, D = head_dim, xv = 8;
    const std::int64_t x = D % 128 == 0 ? 64 : 8;  // few, or so many that kernels write them where they belong
    const bool is_rows = layout == rows, is_by_token = is_rows || layout == nhd;
    const std::int64_t width = layout == packed_v ? 2 * D : D;
    cache.n_slots = n_pages * bs;
    cache.block_size = is_rows ? 0 : bs;
    cache.stride_block = is_rows ? 12345 : H * bs * width;  // of rows there is one block
    cache.stride_head = is_by_token ? D : bs * width;
    // tile_tokens, stride_tile_tokens, stride_token, tile_elements, stride_tile_elements, stride_element
    const std::int64_t tiles[][6] = {{},
                                     {0, 0, H * D, 0, 0, 0},
                                     {0, 0, H * D, 0, 0, 0},
                                     {0, 0, D, 0, 0, 0},
                                     {bs, 0, 1, 1, bs, 0},
                                     {16, 16 * D, 2, 2, 32, 1},
                                     {2, 32, 1, 16, 16 * bs, 2},
                                     {0, 0, x, x, bs * x, 0},
                                     {xv, D * xv, 1, 0, 0, xv},
                                     {0, 0, 2 * D, 0, 0, 0}};
    static_assert(std::size(tiles) == n_layouts_of_caches);
    const auto &[tile_tokens, stride_tile_tokens, stride_token, tile_elements, stride_tile_elements, stride_element] =
        tiles[layout];
    cache.tile_tokens = tile_tokens;
    cache.stride_tile_tokens = stride_tile_tokens;
    cache.stride_token = stride_token;
    cache.tile_elements = tile_elements;
    cache.stride_tile_elements = stride_tile_elements;
    cache.stride_element = stride_element;
}

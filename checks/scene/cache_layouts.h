// The layouts of caches that engines have: as descriptions, and as formulas that know nothing of those.
#pragma once

#include "halyard/halyard_kv.h"

#include <cstdint>
#include <iterator>

enum CacheLayout {
    no_cache,
    rows,
    nhd,
    hnd,
    transposed_k,
    amx_k,
    amx_v,
    x_split,
    x_split_v,
    packed_v,
    n_layouts_of_caches
};

/// Elements of a tile of x_split: few, or so many that kernels write them where they belong.
inline std::int64_t x_of_split(std::int64_t head_dim) { return head_dim % 128 == 0 ? 64 : 8; }
inline constexpr std::int64_t x_of_split_v = 8;

/// Fills in the description, and returns how many elements the cache has.
inline std::int64_t describe_layout(int layout, std::int64_t n_pages, std::int64_t bs, std::int64_t n_heads,
                                    std::int64_t head_dim, halyard_cache_desc &cache) {
    const std::int64_t H = n_heads, D = head_dim, x = x_of_split(D), xv = x_of_split_v;
    const bool is_rows = layout == rows, is_by_token = is_rows || layout == nhd;
    const std::int64_t width = layout == packed_v ? 2 * D : D;  // [pages, H, bs, 2 D], of which it is the first half
    cache.n_slots = n_pages * bs;
    cache.block_size = is_rows ? 0 : bs;
    cache.stride_block = is_rows ? 12345 : H * bs * width;  // of rows there is one block
    cache.stride_head = is_by_token ? D : bs * width;
    cache.extent = is_rows              ? 0
                   : layout == nhd      ? (bs - 1) * H * D + D
                   : layout == packed_v ? (bs - 1) * width + D
                                        : bs * D;
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
    return n_pages * H * bs * width - (width - D);
}

inline std::int64_t index_in_layout(int layout, std::int64_t bs, std::int64_t n_heads, std::int64_t head_dim,
                                    std::int64_t slot, std::int64_t h, std::int64_t d) {
    const std::int64_t H = n_heads, D = head_dim, x = x_of_split(D), xv = x_of_split_v, page = slot / bs, t = slot % bs;
    const std::int64_t head = page * H + h;
    switch (layout) {
    case rows: return (slot * H + h) * D + d;
    case nhd: return ((page * bs + t) * H + h) * D + d;
    case hnd: return (head * bs + t) * D + d;
    case transposed_k: return (head * D + d) * bs + t;
    case amx_k: return ((head * (bs / 16) + t / 16) * (D / 2) + d / 2) * 32 + t % 16 * 2 + d % 2;
    case amx_v: return ((head * (D / 16) + d / 16) * (bs / 2) + t / 2) * 32 + d % 16 * 2 + t % 2;
    case x_split: return ((head * (D / x) + d / x) * bs + t) * x + d % x;
    case x_split_v: return ((head * (bs / xv) + t / xv) * D + d) * xv + t % xv;
    case packed_v: return (head * bs + t) * 2 * D + d;
    default: return -1;
    }
}

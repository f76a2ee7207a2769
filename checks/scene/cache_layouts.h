// The layouts of caches that engines have: as descriptions, and as formulas that know nothing of those.
#pragma once

#include "halyard/halyard.h"

#include <cstdint>

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

inline constexpr std::int64_t x_of_split = 8;

/// Fills in the description, and returns how many elements the cache has.
inline std::int64_t describe_layout(int layout, std::int64_t n_pages, std::int64_t bs, std::int64_t n_heads,
                                    std::int64_t head_dim, halyard_cache_desc &cache) {
    const std::int64_t H = n_heads, D = head_dim, x = x_of_split;
    cache.n_slots = n_pages * bs;
    cache.block_size = bs;
    cache.stride_block = H * bs * D;
    cache.stride_head = bs * D;
    cache.stride_token = D;
    cache.extent = bs * D;
    switch (layout) {
    case rows:
        cache.block_size = 0;
        cache.stride_block = 12345;  // there is one block
        cache.stride_head = D;
        cache.stride_token = H * D;
        cache.extent = 0;
        break;
    case nhd:
        cache.stride_head = D;
        cache.stride_token = H * D;
        cache.extent = (bs - 1) * H * D + D;
        break;
    case hnd: break;
    case transposed_k:
        cache.tile_tokens = bs;
        cache.stride_token = 1;
        cache.tile_elements = 1;
        cache.stride_tile_elements = bs;
        break;
    case amx_k:
        cache.tile_tokens = 16;
        cache.stride_tile_tokens = 16 * D;
        cache.stride_token = 2;
        cache.tile_elements = 2;
        cache.stride_tile_elements = 32;
        cache.stride_element = 1;
        break;
    case amx_v:
        cache.tile_tokens = 2;
        cache.stride_tile_tokens = 32;
        cache.stride_token = 1;
        cache.tile_elements = 16;
        cache.stride_tile_elements = 16 * bs;
        cache.stride_element = 2;
        break;
    case x_split:
        cache.stride_token = x;
        cache.tile_elements = x;
        cache.stride_tile_elements = bs * x;
        break;
    case x_split_v:
        cache.tile_tokens = x;
        cache.stride_tile_tokens = D * x;
        cache.stride_token = 1;
        cache.stride_element = x;
        break;
    case packed_v:  // [pages, H, bs, 2 D], of which this is the first half
        cache.stride_block = H * bs * 2 * D;
        cache.stride_head = bs * 2 * D;
        cache.stride_token = 2 * D;
        cache.extent = (bs - 1) * 2 * D + D;
        return n_pages * H * bs * 2 * D - D;
    default: break;
    }
    return n_pages * bs * H * D;
}

inline std::int64_t index_in_layout(int layout, std::int64_t bs, std::int64_t n_heads, std::int64_t head_dim,
                                    std::int64_t slot, std::int64_t h, std::int64_t d) {
    const std::int64_t H = n_heads, D = head_dim, x = x_of_split, page = slot / bs, t = slot % bs;
    const std::int64_t head = page * H + h;
    switch (layout) {
    case rows: return (slot * H + h) * D + d;
    case nhd: return ((page * bs + t) * H + h) * D + d;
    case hnd: return (head * bs + t) * D + d;
    case transposed_k: return (head * D + d) * bs + t;
    case amx_k: return ((head * (bs / 16) + t / 16) * (D / 2) + d / 2) * 32 + t % 16 * 2 + d % 2;
    case amx_v: return ((head * (D / 16) + d / 16) * (bs / 2) + t / 2) * 32 + d % 16 * 2 + t % 2;
    case x_split: return ((head * (D / x) + d / x) * bs + t) * x + d % x;
    case x_split_v: return ((head * (bs / x) + t / x) * D + d) * x + t % x;
    case packed_v: return (head * bs + t) * 2 * D + d;
    default: return -1;
    }
}

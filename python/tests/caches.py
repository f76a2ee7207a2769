"""Small caches in two layouts."""

import halyard

N_SLOTS, PAGE, TILE = 32, 8, 8


def shape_of(layout, heads, dim):
    """The shape of a cache. "tiled" is the layout of vLLM's paged attention: elements of a head in tiles."""
    n = N_SLOTS // PAGE
    return {"hnd": (n, heads, PAGE, dim), "tiled": (n, heads, dim // TILE, PAGE, TILE)}[layout]


def tiled(heads, dim):
    """The CacheLayout of a "tiled" cache."""
    return halyard.CacheLayout(N_SLOTS, PAGE, heads * dim * PAGE, dim * PAGE, stride_token=TILE, tile_elements=TILE,
                               stride_tile_elements=PAGE * TILE)

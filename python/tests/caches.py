"""Small caches in each layout, with slots and positions for tests that store and re-rotate tokens."""

import numpy as np

import halyard

N_SLOTS, PAGE, TILE = 32, 8, 8
SLOTS = np.array([9, 30, -1, 0, 17])
FROM, TO = np.array([7, 100, 3, 0, 131_071]), np.array([0, 90, 2**31 - 1, 5, 131_000])
# For each layout, the order of its dimensions that gives pages and slots, then heads, then elements.
ORDERS = {"rows": (0, 1, 2), "nhd": (0, 1, 2, 3), "hnd": (0, 2, 1, 3), "tiled": (0, 3, 1, 2, 4)}


def shape_of(layout, heads, dim):
    """The shape of a cache. "tiled" is the layout of vLLM's paged attention: elements of a head in tiles."""
    n = N_SLOTS // PAGE
    return {"rows": (N_SLOTS, heads, dim), "nhd": (n, PAGE, heads, dim), "hnd": (n, heads, PAGE, dim),
            "tiled": (n, heads, dim // TILE, PAGE, TILE)}[layout]


def tiled(heads, dim, **more):
    """The CacheLayout of a "tiled" cache."""
    return halyard.CacheLayout(N_SLOTS, PAGE, heads * dim * PAGE, dim * PAGE, stride_token=TILE, tile_elements=TILE,
                               stride_tile_elements=PAGE * TILE, **more)


def in_slots(layout, cache):
    """A copy of a cache as [slots, heads, head_dim]."""
    heads = cache.shape[1] if layout in ("hnd", "tiled") else cache.shape[-2]
    return cache.transpose(ORDERS[layout]).reshape(N_SLOTS, heads, -1)

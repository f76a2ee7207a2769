"""The formula in long double, and how far a result may be from it."""

import ml_dtypes
import numpy as np

BF16 = np.dtype(ml_dtypes.bfloat16)
EPS = 2.0 ** -23
# Bits of the significand, and the exponent of the smallest number.
STORED = {"float16": (11, -24), "bfloat16": (8, -133)}


def inv_freq(base, rotary_dim):
    k = np.arange(rotary_dim // 2, dtype=np.longdouble)
    return np.longdouble(base) ** (-2 * k / rotary_dim)


def members(rotary_dim, pairing, offset=0):
    """The columns of both members of each pair."""
    k = np.arange(rotary_dim // 2)
    first, second = (k, k + rotary_dim // 2) if pairing == "half" else (2 * k, 2 * k + 1)
    return first + offset, second + offset


def turn(x, cos, sin, *, pairing="half", out_pairing=None, offset=0):
    """x [..., tokens, heads, head_dim] turned by rows [..., tokens, 1, pairs], and the length that each turned pair has
    then, 0 beside the window; in long double."""
    x, cos, sin = (np.asarray(each).astype(np.longdouble) for each in (x, cos, sin))
    a, b = (x[..., columns] for columns in members(2 * cos.shape[-1], pairing, offset))
    first, second = members(2 * cos.shape[-1], out_pairing or pairing, offset)
    y, length = x.copy(), np.zeros_like(x)
    y[..., first], y[..., second] = a * cos - b * sin, a * sin + b * cos
    length[..., first] = length[..., second] = np.hypot(a, b) * np.hypot(cos, sin)
    return y, length


def check_near(y, exact, length, dtype, eps=2 * EPS):
    """Asserts that y is within eps of the pair's length, and half a unit in the last place of 16-bit storage; where there
    is no length, that it is the same."""
    allowed = eps * length
    allowed[length > 0] += 2.0 ** -149
    if np.dtype(dtype).name in STORED:
        bits, smallest = STORED[np.dtype(dtype).name]
        reach = (np.abs(exact) + allowed).astype(np.float64)
        exponent = np.floor(np.log2(np.maximum(reach, 2.0 ** -140)))
        allowed += np.where(length > 0, np.maximum(2.0 ** (exponent - bits), 2.0 ** (smallest - 1)), 0)
    error = np.abs(np.asarray(y).astype(np.longdouble) - exact)
    worst = np.unravel_index(np.argmax(error - allowed), error.shape)
    assert (error <= allowed).all(), f"at {worst}: {y[worst]}, exactly {exact[worst]}, within {allowed[worst]}"


def check(y, x, positions, frequencies, *, inverse=False, factor=1.0, eps=2 * EPS, **pairs):
    """Asserts that y is x turned at integer positions [..., tokens], or with one for each pair [..., tokens, pairs]."""
    positions = np.asarray(positions)
    if positions.ndim < x.ndim - 1:
        positions = positions[..., None]
    theta = (positions.astype(np.longdouble) * frequencies)[..., None, :]
    exact, length = turn(x, factor * np.cos(theta), factor * np.sin(theta) * (-1 if inverse else 1), **pairs)
    check_near(y, exact, length, y.dtype, eps)


def as_numpy(tensor):
    """Of PyTorch's tensors, whose bfloat16 NumPy does not know."""
    import torch
    tensor = tensor.detach()
    return tensor.view(torch.int16).numpy().view(BF16) if tensor.dtype == torch.bfloat16 else tensor.numpy()


# ---- Caches ----------------------------------------------------------------------------------------------------------

PAGES, PAGE, TILE = 4, 8, 8


def cache_shape(layout, heads, dim):
    """tiled: as paged attention has it."""
    return {"rows": (PAGES * PAGE, heads, dim), "nhd": (PAGES, PAGE, heads, dim), "hnd": (PAGES, heads, PAGE, dim),
            "tiled": (PAGES, heads, dim // TILE, PAGE, TILE)}[layout]


def tiled(heads, dim):
    """Its CacheLayout, for the array's dimensions don't tell where things lie."""
    return dict(n_slots=PAGES * PAGE, block_size=PAGE, stride_block=heads * dim * PAGE, stride_head=dim * PAGE,
                stride_token=TILE, tile_elements=TILE, stride_tile_elements=PAGE * TILE)


def at_slots(layout, slots):
    """The index of the heads of slots in such a cache: [slots, heads, head_dim], or in tiles of it."""
    page, row = np.divmod(slots, PAGE)
    return {"rows": (slots,), "nhd": (page, row), "hnd": (page, slice(None), row),
            "tiled": (page, slice(None), slice(None), row)}[layout]

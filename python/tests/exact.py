"""The formula in long double, and how far a result may be from it."""

import ml_dtypes
import numpy as np

BF16 = np.dtype(ml_dtypes.bfloat16)
EPS = 2.0 ** -23
MANTISSAS = {"float32": 24, "float16": 11, "bfloat16": 8}


def inv_freq(base, rotary_dim):
    k = np.arange(rotary_dim // 2, dtype=np.longdouble)
    return np.longdouble(base) ** (-2 * k / rotary_dim)


def members(rotary_dim, pairing, offset=0):
    """The columns of both members of each pair."""
    k = np.arange(rotary_dim // 2)
    first, second = (k, k + rotary_dim // 2) if pairing == "half" else (2 * k, 2 * k + 1)
    return first + offset, second + offset


def rotate(x, positions, frequencies, *, pairing="half", out_pairing=None, offset=0, inverse=False, factor=1.0):
    """x [..., tokens, heads, head_dim] turned, in long double. positions: integers [..., tokens], or with one for each
    pair [..., tokens, pairs]."""
    x = x.astype(np.longdouble)
    positions = np.asarray(positions)
    if positions.ndim < x.ndim - 1:
        positions = positions[..., None]
    theta = (positions.astype(np.longdouble) * frequencies)[..., None, :]
    cos, sin = factor * np.cos(theta), factor * np.sin(theta) * (-1 if inverse else 1)
    a, b = (x[..., columns] for columns in members(2 * len(frequencies), pairing, offset))
    y = x.copy()
    first, second = members(2 * len(frequencies), out_pairing or pairing, offset)
    y[..., first], y[..., second] = a * cos - b * sin, a * sin + b * cos
    return y


def bound(x, exact, dtype, rotary_dim, *, pairing="half", offset=0, factor=1.0, eps=2 * EPS):
    """2 eps of the pair's length, and half a unit in the last place of 16-bit storage; 0 beside the window."""
    wide = x.astype(np.longdouble)
    first, second = members(rotary_dim, pairing, offset)
    length = np.zeros_like(wide)
    length[..., first] = length[..., second] = np.hypot(wide[..., first], wide[..., second])
    allowed = eps * length * factor
    allowed[length > 0] += 2.0 ** -149
    if np.dtype(dtype).itemsize == 2:
        mantissa = MANTISSAS[np.dtype(dtype).name]
        smallest = -24 if np.dtype(dtype).name == "float16" else -133
        reach = (np.abs(exact) + allowed).astype(np.float64)
        exponent = np.floor(np.log2(np.maximum(reach, 2.0 ** -140)))
        allowed += np.where(length > 0, np.maximum(2.0 ** (exponent - mantissa), 2.0 ** (smallest - 1)), 0)
    return allowed


def check(y, x, positions, frequencies, **options):
    """Asserts that y is x turned, within the bound."""
    eps = options.pop("eps", 2 * EPS)
    exact = rotate(x, positions, frequencies, **options)
    pairing = {"pairing": options.get("out_pairing") or options.get("pairing", "half")}
    # The length of a pair is found in the output's order.
    turned = rotate(x, np.zeros_like(positions), frequencies, **{**options, "factor": 1.0})
    allowed = bound(turned, exact, y.dtype, 2 * len(frequencies), **pairing, offset=options.get("offset", 0),
                    factor=options.get("factor", 1.0), eps=eps)
    error = np.abs(y.astype(np.longdouble) - exact)
    worst = np.unravel_index(np.argmax(error - allowed), error.shape)
    assert (error <= allowed).all(), f"at {worst}: {y[worst]}, exactly {exact[worst]}, within {allowed[worst]}"

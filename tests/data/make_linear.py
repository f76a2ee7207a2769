#!/usr/bin/env python3
"""Writes tests/data/golden/linear: cos and sin of angles that are linear in fractional positions, computed with mpmath.

    .deps/peers/bin/python tests/data/make_linear.py

Positions [axes, tokens] and matrices [heads, axes, pairs] are float32 or float64. The sums of their products, cos and
sin are computed to 60 digits from the stored numbers, and rounded to float64.
"""

import json
import pathlib

import mpmath
import numpy as np

FOLDER = pathlib.Path(__file__).resolve().parent / "golden/linear"
LARGEST = 2.0 ** 31
mpmath.mp.dps = 60


def draw(rng, shape, least, most):
    """Random numbers of either sign, with magnitudes 2**least to 2**most, uniform in the exponent."""
    return rng.choice([-1, 1], shape) * 2.0 ** rng.uniform(least, most, shape)


def spread(rng, kind):
    """Three axes, angles of every size up to 2^31; some positions are zeros, integers and denormal."""
    positions = draw(rng, (3, 24), -30, 20)
    positions[:, 0] = 0
    positions[:, 1] = [-0.0, 1.0, -7.0]
    positions[:, 2] = np.finfo(kind).smallest_subnormal
    return positions, draw(rng, (1, 3, 12), -40, 8)


def far(rng, _):
    """One axis, angles just below 2^31."""
    positions = 2.0 ** 20 * (1 - 2.0 ** -rng.uniform(10, 24, (1, 24)))
    return positions, -2.0 ** 11 * (1 - 2.0 ** -rng.uniform(20, 50, (1, 1, 12)))


def cancelling(rng, _):
    """Two axes, terms near 2^31 or beyond, up to 2^39, and sums that are far smaller."""
    positions = draw(rng, (2, 24), 25, 27)
    positions[1] = -positions[0] * (1 + 2.0 ** -rng.uniform(10, 40, 24))
    matrix = draw(rng, (1, 2, 12), 4, 12)
    matrix[:, 1] = matrix[:, 0] * (1 + 2.0 ** -rng.uniform(9, 40, 12))
    return positions, matrix


def four_axes(rng, _):
    """Four axes whose terms cancel in turn, for each of three heads."""
    positions = draw(rng, (4, 16), -3, 12)
    positions[3] = positions[:3].sum(axis=0)
    matrix = draw(rng, (3, 4, 8), -6, 16)
    matrix[:, 1:3] = matrix[:, :1]
    matrix[:, 3] = -matrix[:, 0] * (1 + 2.0 ** -rng.uniform(12, 50, (3, 8)))
    return positions, matrix


def factors(rng, kind):
    """An attention_factor, applied before rounding."""
    return spread(rng, kind)[0][:2, :9], draw(rng, (2, 2, 5), -20, 9)


def exact(positions, matrix, factor):
    """Returns factor * (cos, sin), [heads, tokens, 2, pairs]."""
    heads, axes, pairs = matrix.shape
    result = np.empty((heads, positions.shape[1], 2, pairs))
    for head, token, pair in np.ndindex(heads, positions.shape[1], pairs):
        theta = mpmath.fsum(mpmath.mpf(float(positions[a, token])) * mpmath.mpf(float(matrix[head, a, pair]))
                            for a in range(axes))
        assert abs(theta) <= LARGEST, (float(theta), token, pair)
        result[head, token, :, pair] = float(factor * mpmath.cos(theta)), float(factor * mpmath.sin(theta))
    return result


def main():
    rng = np.random.default_rng(20)
    cases, arrays, data = [], {}, b""

    def store(name, array):
        nonlocal data
        content = np.ascontiguousarray(array).tobytes()
        arrays[name] = {"file": "linear.bin", "dtype": str(array.dtype), "shape": list(array.shape),
                        "offset": len(data), "nbytes": len(content)}
        data += content

    for make in (spread, far, cancelling, four_axes, factors):
        for kind in ("float32", "float64"):
            name = f"{make.__name__}_{kind}"
            positions, matrix = make(rng, kind)
            positions = positions.astype(kind)
            factor = 1.2707 if make is factors else 1.0
            store(f"{name}.positions", positions)
            store(f"{name}.matrix", matrix)
            store(f"{name}.rows", exact(positions, matrix, mpmath.mpf(factor)))
            cases.append({"name": name, "attention_factor": factor, "about": make.__doc__})
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / "linear.bin").write_bytes(data)
    manifest = {"section": "linear", "about": "cos and sin of sum_a positions[a, t] * matrix[h, a, k], [heads, tokens, "
                "2, pairs], exact, rounded to float64. Made by tests/data/make_linear.py.", "cases": cases,
                "arrays": arrays}
    (FOLDER / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")


if __name__ == "__main__":
    main()

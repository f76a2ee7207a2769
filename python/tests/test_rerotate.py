"""rerotate's arguments compared with rotate, and refusals. test_kv_path.py re-rotates keys in caches."""

import ml_dtypes
import numpy as np
import pytest

import caches
import halyard
from caches import FROM, TO
from halyard import AngleSource, Cache, Frequencies, Tensor

DIM, HEADS, TOKENS = 64, 2, 5


def test_arguments(angles, keys):
    """Re-rotation equals one rotation by the difference of positions, in each layout and pairing."""
    moved, given = keys.copy(), dict(angles=angles, from_positions=FROM, positions=TO)
    assert halyard.rerotate(moved, **given) is moved
    np.testing.assert_allclose(moved, halyard.rotate(keys, angles=angles, positions=TO - FROM), atol=2e-6)
    pairs = np.arange(DIM).reshape(2, -1).T.ravel()
    for x, more, expected in ((keys.swapaxes(0, 1), dict(layout="bhsd"), moved.swapaxes(0, 1)),
                              (keys[..., pairs], dict(pairing="interleaved"), moved[..., pairs]),
                              (keys, dict(inverse=True, positions=FROM, from_positions=TO), moved),
                              (keys, dict(threads=2), moved)):
        out = np.empty_like(x)
        assert halyard.rerotate(Tensor(x, out=out), **{**given, **more}) is out
        np.testing.assert_allclose(out, expected, atol=0 if "inverse" not in more else 2e-6)
    short, long = (AngleSource(Frequencies.from_list(1e4 ** (-np.arange(0, 1, 1 / 32)) / factor)) for factor in (1, 4))
    there = halyard.rotate(keys, angles=short, positions=FROM)
    halyard.rerotate(there, angles=long, from_angles=short, from_positions=FROM, positions=FROM)
    np.testing.assert_allclose(there, halyard.rotate(keys, angles=long, positions=FROM), atol=3e-6)


def test_eight_bits(angles, keys):
    """Dynamic scales are replaced; uint8 arrays are read as dtype's 8-bit floats."""
    move, scales = dict(angles=angles, from_positions=FROM, positions=TO), np.zeros((TOKENS, HEADS), np.float32)
    scale = halyard.DynamicScale(scales)
    stored = halyard.rotate(Tensor(keys, dtype="int8", scale=scale), angles=angles, positions=FROM)
    halyard.rerotate(Tensor(stored, scale=scale), **move)
    there = halyard.rotate(keys, angles=angles, positions=TO)
    assert np.abs(stored * scales[..., None] - there).max() <= 2.5 * scales.max()
    assert (np.abs(stored).max(-1) == 127).all()
    e4m3 = keys.astype(ml_dtypes.float8_e4m3fn)
    words = e4m3.copy().view(np.uint8)
    halyard.rerotate(e4m3, **move)
    halyard.rerotate(Tensor(words, dtype="e4m3"), **move)
    assert np.array_equal(words, e4m3.view(np.uint8))


def test_bad_input(angles, keys):
    cache, tiles = np.ones((9, HEADS, DIM), np.float32), np.ones(caches.shape_of("tiled", HEADS, DIM), np.float32)
    fixed, three = np.broadcast_to(keys, keys.shape), np.array([3])
    for keys_, more, raised, words in (
            (fixed, {}, halyard.Error, "read-only"), ([1.0], {}, TypeError, "keys is a list"),
            (keys, dict(angles=None), TypeError, "angles"),
            (keys, dict(from_positions=None), halyard.Error, "from_positions"),
            (Tensor(keys, out=keys[:3].copy()), {}, halyard.Error, "out of keys"),
            (cache, dict(slots=np.array([3, 3])), halyard.Error, "slot"),
            (Tensor(cache, out=cache), dict(slots=three), halyard.Error, "keys in slots"),
            (Cache(cache, "dnh"), dict(slots=three), halyard.Error, "cache_layout"),
            *((Cache(tiles, caches.tiled(HEADS, DIM, **bad)), dict(slots=three), halyard.Error, "cache_layout")
              for bad in (dict(n_heads=HEADS), dict(head_dim=DIM), dict(n_heads=HEADS, head_dim=DIM + 1)))):
        before = [each.copy() for each in (keys, cache, tiles)]
        with pytest.raises(raised, match=words):
            halyard.rerotate(keys_, **{"angles": angles, "from_positions": 0, "positions": 1, **more})
        assert all(map(np.array_equal, before, (keys, cache, tiles)))

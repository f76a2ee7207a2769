"""Keys that move: as views and in caches, of several dtypes, between sources; and what is refused."""

import ml_dtypes
import numpy as np
import pytest

import exact
import halyard
from halyard import Cache, Tensor

DIM, HEADS, TOKENS, BASE = 64, 2, 5, 1e4
FREQUENCIES = exact.inv_freq(BASE, DIM)
FROM, TO = np.array([7, 100, 3, 0, 131_071]), np.array([0, 90, 2**31 - 1, 5, 131_000])


@pytest.fixture
def keys(rng):
    return rng.standard_normal((TOKENS, HEADS, DIM)).astype(np.float32)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("layout", ["bshd", "bhsd"])
def test_views(angles, keys, dtype, layout):
    keys = keys.astype(dtype)
    moved = keys.copy()
    given = moved if layout == "bshd" else moved.swapaxes(0, 1)
    assert halyard.rerotate(given, angles=angles, from_positions=FROM, positions=TO, layout=layout) is given
    exact.check(moved, keys, TO - FROM, FREQUENCIES)
    other = np.empty_like(keys)
    assert halyard.rerotate(Tensor(keys, out=other), angles=angles, from_positions=FROM, positions=TO) is other
    assert np.array_equal(other, moved)


@pytest.mark.parametrize("bad", [dict(), dict(n_heads=HEADS), dict(n_heads=HEADS + 1, head_dim=DIM),
                                 dict(n_heads=HEADS, head_dim=DIM + 1), dict(n_heads=-1, head_dim=DIM)])
def test_heads_that_are_not_in_the_tiles(angles, bad):
    cache = np.full(exact.cache_shape("tiled", HEADS, DIM), 5, np.float32)
    with pytest.raises(halyard.Error):
        halyard.rerotate(Cache(cache, halyard.CacheLayout(**exact.tiled(HEADS, DIM), **bad)), angles=angles,
                         from_positions=FROM, positions=TO, slots=np.arange(TOKENS))
    assert (cache == 5).all()


def test_dynamic_scales_are_renewed(angles, keys):
    scales = np.zeros((TOKENS, HEADS), np.float32)
    scale = halyard.DynamicScale(scales)
    stored = halyard.rotate(Tensor(keys, dtype="int8", scale=scale), angles=angles, positions=FROM)
    halyard.rerotate(Tensor(stored, scale=scale), angles=angles, from_positions=FROM, positions=TO)
    there = halyard.rotate(keys, angles=angles, positions=TO)
    assert np.abs(stored * scales[..., None] - there).max() <= 2.5 * scales.max()
    assert (np.abs(stored).max(-1) == 127).all()


def test_eight_bits_as_bytes(angles, keys):
    e4m3 = keys.astype(ml_dtypes.float8_e4m3fn)
    words = e4m3.copy().view(np.uint8)
    halyard.rerotate(e4m3, angles=angles, from_positions=FROM, positions=TO)
    halyard.rerotate(Tensor(words, dtype="e4m3"), angles=angles, from_positions=FROM, positions=TO)
    assert np.array_equal(words, e4m3.view(np.uint8))


def test_between_sources(keys):
    short, long = (halyard.Frequencies.from_list(FREQUENCIES.astype(float) / factor) for factor in (1, 4))
    short, long = halyard.AngleSource(short), halyard.AngleSource(long)
    there = halyard.rotate(keys, angles=short, positions=FROM)
    halyard.rerotate(there, angles=long, from_angles=short, from_positions=FROM, positions=FROM)
    assert np.abs(there - halyard.rotate(keys, angles=long, positions=FROM)).max() < 8 * exact.EPS * 4


def test_bad_input(angles, keys):
    given = halyard.AngleSource.given(np.ones((9, 32), np.float32), np.ones((9, 32), np.float32))
    cache = np.ones((9, HEADS, DIM), np.float32)
    read_only = keys.copy()
    read_only.flags.writeable = False
    base = dict(keys=keys, angles=angles, from_positions=0, positions=1)
    for bad, raised in (
            (dict(keys=read_only), halyard.Error), (dict(keys=keys.astype(np.float64)), halyard.Error),
            (dict(keys=[1.0]), TypeError), (dict(from_positions=None), halyard.Error), (dict(angles=None), TypeError),
            (dict(angles=given), halyard.Error), (dict(from_positions=np.zeros(4, int)), halyard.Error),
            (dict(keys=Tensor(keys, out=keys[:3].copy())), halyard.Error),
            (dict(keys=Tensor(keys, scale=halyard.DynamicScale(keys[..., 0]))), halyard.Error),
            (dict(keys=Tensor(keys, norm=halyard.Norm())), halyard.Error),
            (dict(keys=cache, slots=np.array([0, 9])), halyard.Error),
            (dict(keys=cache, slots=np.array([3, 3])), halyard.Error),
            (dict(keys=cache, slots=np.array(3)), halyard.Error),
            (dict(keys=Tensor(cache, out=cache), slots=np.array([3])), halyard.Error),
            (dict(keys=Cache(cache, "dnh"), slots=np.array([3])), halyard.Error)):
        arguments = {**base, **bad}
        before = [keys.copy(), cache.copy()]
        with pytest.raises(raised):
            halyard.rerotate(arguments.pop("keys"), **arguments)
        assert np.array_equal(keys, before[0]) and np.array_equal(cache, before[1])

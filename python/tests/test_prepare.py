"""Prepared calls: rotate's bits, whatever is bound, and what they refuse."""

import numpy as np
import pytest
from exact import TILE

import halyard

BASE, DIM = 10000.0, 64
HEADS = 6, 2, 2
COLUMNS = sum(HEADS) * DIM


def split(packed):
    return np.split(packed.reshape(-1, sum(HEADS), DIM), np.cumsum(HEADS)[:-1], axis=1)


@pytest.fixture
def packed(rng):
    return lambda n: rng.standard_normal((n, COLUMNS)).astype(np.float32)


@pytest.mark.parametrize("threads", [0, 1, 2])
@pytest.mark.parametrize("norms", [False, True])
def test_bits_of_rotate(rng, angles, packed, norms, threads):
    """Into caches of two layouts, for several numbers of tokens, each more than once."""
    n_slots, block = 96, 16
    norm = halyard.Norm(rng.standard_normal(DIM).astype(np.float32)) if norms else None
    tiled = halyard.CacheLayout(n_slots, block, block * HEADS[1] * DIM, block * DIM, stride_token=TILE,
                                tile_elements=TILE, stride_tile_elements=block * TILE)
    caches = [(np.zeros((n_slots * HEADS[1] * DIM,), np.float32),
               np.zeros((n_slots // block, HEADS[2], block, DIM), np.float32)) for _ in range(2)]

    def tensors(q, k, v, caches):
        return (halyard.Tensor(q, norm=norm), halyard.Tensor(k, norm=norm, cache=halyard.Cache(caches[0], tiled)),
                halyard.Tensor(v, cache=halyard.Cache(caches[1], "hnd")))

    how = dict(angles=angles, duplicate_slots="last")
    prepared = halyard.prepare(*tensors(*HEADS, caches[0]), head_dim=DIM, threads=threads, **how)
    for n in (1, 7, 1, 40, 7, 0):
        x = packed(n)
        before = x.copy()
        positions, slots = rng.integers(0, 99, n), rng.permutation(n_slots)[:n]
        slots[:1] = -1
        out = np.zeros((n, HEADS[0] * DIM), np.float32)
        prepared(x, positions, slots, out)
        q, _, _ = halyard.rotate(*tensors(*split(before), caches[1]), positions=positions, slots=slots, **how)
        assert np.array_equal(out.reshape(q.shape), q) and np.array_equal(x, before)
        for mine, other in zip(*caches):
            assert np.array_equal(mine, other)
        prepared(x, positions, slots)  # in place: only q is
        assert np.array_equal(split(x)[0], q) and np.array_equal(x[:, HEADS[0] * DIM:], before[:, HEADS[0] * DIM:])


def test_rows_with_gaps_and_no_cache(angles, packed):
    wide = packed(2 * 5).reshape(5, 2, COLUMNS)
    before = wide.copy()
    halyard.prepare(*HEADS[:2], head_dim=DIM, angles=angles)(wide[:, 1, :(HEADS[0] + HEADS[1]) * DIM])
    q, k, _ = split(before[:, 1])
    for x, y in zip(split(wide[:, 1]), (*halyard.rotate(q, k, angles=angles), split(before[:, 1])[2])):
        assert np.array_equal(x, y)
    assert np.array_equal(wide[:, 0], before[:, 0])


def test_many_forms(angles, packed):
    prepared = halyard.prepare(*HEADS, head_dim=DIM, angles=angles)
    for n in (*range(1, 80), *range(1, 80)):  # more than are kept
        x = packed(n)
        q = split(x.copy())[0]
        prepared(x, np.arange(n, dtype=np.int32))
        assert np.array_equal(split(x)[0], halyard.rotate(q, angles=angles, positions=0))


def test_what_is_refused(angles, packed):
    prepared = halyard.prepare(*HEADS, head_dim=DIM, angles=angles)
    x, fixed = packed(4), packed(4)
    fixed.flags.writeable = False
    prepared(packed(4))  # so that its form is known
    for arguments, kind, words in (
            ((x[:, :-1],), halyard.Error, "packed has the shape"), ((x[:, ::2],), halyard.Error, "dense"),
            ((x[0],), halyard.Error, "columns"), ((x, np.arange(3)), halyard.Error, "positions"),
            ((x, np.arange(4.0)), halyard.Error, "positions"), ((None,), TypeError, "packed"),
            ((x, None, np.arange(4)), halyard.Error, "slots"), ((x, None, None, x[:, :3]), halyard.Error, "out has"),
            ((fixed,), halyard.Error, "read-only"), ((x.astype(np.int32),), halyard.Error, "int32")):
        before = x.copy()
        with pytest.raises(kind, match=words):
            prepared(*arguments)
        assert np.array_equal(x, before)
    for heads, head_dim in (((0,), DIM), ((6, -1), DIM), (HEADS, 0), ((6.5,), DIM)):
        with pytest.raises(halyard.Error, match=f"heads of {head_dim}, but these are numbers"):
            halyard.prepare(*heads, head_dim=head_dim, angles=angles)
    with pytest.raises(TypeError, match="angles"):
        halyard.prepare(*HEADS, head_dim=DIM, angles=None)
    with pytest.raises(halyard.Error, match="position"):
        short = halyard.AngleSource(halyard.Frequencies.from_base(BASE, DIM), n_positions=3)
        halyard.prepare(*HEADS, head_dim=DIM, angles=short)(x)

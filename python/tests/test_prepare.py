"""halyard.prepare gives the bits of rotate for every number of tokens, and refuses bad arguments."""

import numpy as np
import pytest

import caches
import halyard
from halyard import Cache, Tensor

DIM, HEADS = 64, (6, 2, 2)
COLUMNS = sum(HEADS) * DIM


def split(packed):
    return np.split(packed.reshape(-1, sum(HEADS), DIM), np.cumsum(HEADS)[:-1], axis=1)


@pytest.fixture
def packed(rng):
    return lambda n: rng.standard_normal((n, COLUMNS)).astype(np.float32)


@pytest.mark.parametrize("threads", [0, 1, 2])
@pytest.mark.parametrize("norms", [False, True])
def test_bits_of_rotate(rng, angles, packed, norms, threads):
    """Stores k and v in caches of two layouts, for several numbers of tokens, each more than once."""
    norm = halyard.Norm(rng.standard_normal(DIM).astype(np.float32)) if norms else None
    stored = [[np.zeros(caches.shape_of(layout, 2, DIM), np.float32) for layout in ("tiled", "hnd")] for _ in range(2)]

    def tensors(q, k, v, stored):
        return (Tensor(q, norm=norm), Tensor(k, norm=norm, cache=Cache(stored[0], caches.tiled(2, DIM))),
                Tensor(v, cache=Cache(stored[1], "hnd")))

    how = dict(angles=angles, duplicate_slots="last")
    prepared = halyard.prepare(*tensors(*HEADS, stored[0]), head_dim=DIM, threads=threads, **how)
    for n in (1, 7, 1, 30, 7, 0):
        x, out = packed(n), np.zeros((n, HEADS[0] * DIM), np.float32)
        before, positions, slots = x.copy(), rng.integers(0, 99, n), rng.permutation(caches.N_SLOTS)[:n]
        slots[:1] = -1
        prepared(x, positions, slots, out)
        q, _, _ = halyard.rotate(*tensors(*split(before), stored[1]), positions=positions, slots=slots, **how)
        assert np.array_equal(out.reshape(q.shape), q) and np.array_equal(x, before)
        assert all(map(np.array_equal, *stored))
        prepared(x, positions, slots)  # without out: q is rotated in place, k and v of packed stay as they are
        assert np.array_equal(split(x)[0], q) and np.array_equal(x[:, HEADS[0] * DIM:], before[:, HEADS[0] * DIM:])


def test_forms(angles, packed):
    """More numbers of tokens than bound runs are kept, rows with gaps between them, and fewer tensors."""
    prepared = halyard.prepare(*HEADS, head_dim=DIM, angles=angles)
    for n in (*range(1, 80), *range(1, 80)):
        x, wide = packed(n), packed(2 * n)
        wide[::2] = x
        (q, k, v), between = split(x.copy()), wide[1::2].copy()
        expected = *halyard.rotate(q, k, angles=angles, positions=0), v
        for given, positions in (x, np.arange(n)), (wide[::2], np.arange(n, dtype=np.int32)):
            prepared(given, positions)
            assert all(map(np.array_equal, split(given), expected))
        assert np.array_equal(wide[1::2], between)
    first_two = np.concatenate([q, k], 1).reshape(n, -1)
    halyard.prepare(*HEADS[:2], head_dim=DIM, angles=angles)(first_two)
    assert np.array_equal(first_two, x[:, :first_two.shape[1]])


def test_what_is_refused(angles, packed):
    prepared = halyard.prepare(*HEADS, head_dim=DIM, angles=angles)
    x = packed(4)
    prepared(packed(4))  # so that a run for this shape is already bound
    for arguments, kind, words in (
            ((x[:, :-1],), halyard.Error, "packed has the shape"), ((x[:, ::2],), halyard.Error, "dense"),
            ((x[0],), halyard.Error, "columns"), ((x, np.arange(3)), halyard.Error, "positions"),
            ((None,), TypeError, "packed"), ((x, None, None, x[:, :3]), halyard.Error, "out has"),
            ((np.broadcast_to(x, x.shape),), halyard.Error, "read-only")):
        before = x.copy()
        with pytest.raises(kind, match=words):
            prepared(*arguments)
        assert np.array_equal(x, before)
    for heads, head_dim in (((0,), DIM), ((6, -1), DIM), (HEADS, 0), ((6.5,), DIM)):
        with pytest.raises(halyard.Error, match=f"heads of {head_dim}, but these are numbers"):
            halyard.prepare(*heads, head_dim=head_dim, angles=angles)
    with pytest.raises(TypeError, match="angles"):
        halyard.prepare(*HEADS, head_dim=DIM, angles=None)
    short = halyard.AngleSource(halyard.Frequencies.from_base(1e4, DIM), n_positions=3)
    with pytest.raises(halyard.Error, match="position"):
        halyard.prepare(*HEADS, head_dim=DIM, angles=short)(x)

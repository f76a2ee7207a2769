"""Norms, scales, caches and slots: what a Tensor has beside its array."""

import dataclasses

import ml_dtypes
import numpy as np
import pytest

import exact
import halyard
from halyard import Cache, Tensor

DIM, HEADS, TOKENS = 64, 3, 5
PAGES, PAGE = exact.PAGES, exact.PAGE
BASE = 1e6
SLOTS = np.array([9, 30, -1, 0, 17])


@pytest.fixture
def qkv(rng):
    return tuple(rng.standard_normal((TOKENS, heads, DIM)).astype(np.float32) for heads in (2 * HEADS, HEADS, HEADS))


def normed(x, size=DIM, weight=1.0, bias=0.0, centred=False):
    """By the formula, in parts of size elements."""
    parts = x.reshape(TOKENS, -1, size).astype(np.float64)
    parts -= centred * parts.mean(-1, keepdims=True)
    return (parts / np.sqrt((parts ** 2).mean(-1, keepdims=True) + 1e-5)).reshape(x.shape) * weight + bias


def test_norms(rng, angles, qkv):
    """Each field of Norm gets through; bounds of norms are for C++'s tests."""
    q = qkv[0]
    weight, bias, of_heads = (rng.standard_normal(shape).astype(np.float32) for shape in (DIM, DIM, (2 * HEADS, DIM)))
    window = q.copy()
    window[..., 8:24] = normed(q[..., 8:24], 16)
    for expected, arguments in (
            (normed(q), dict()), (normed(q, weight=weight), dict(weight=weight)),
            (normed(q, weight=1 + weight), dict(weight=weight, unit_offset=True)),
            (normed(q, weight=of_heads), dict(weight=of_heads)),
            (window, dict(window_offset=8, window_size=16)),
            (normed(q, 2 * HEADS * DIM, of_heads), dict(weight=of_heads.ravel(), width="row")),
            (normed(q, weight=weight, centred=True), dict(weight=weight, kind="layer")),
            (normed(q, weight=weight, bias=bias, centred=True), dict(weight=weight, kind="layer", bias=bias)),
            (normed(q, weight=weight.astype(ml_dtypes.bfloat16)), dict(weight=weight.astype(ml_dtypes.bfloat16)))):
        y = halyard.rotate(Tensor(q, norm=halyard.Norm(**arguments, eps=1e-5)), angles=angles,
                           positions=np.zeros(TOKENS, np.int32))  # which leaves all where it is
        np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)
    after = halyard.rotate(Tensor(q, norm=halyard.Norm(weight, 1e-5, order="after")), angles=angles)
    np.testing.assert_allclose(after, normed(halyard.rotate(q, angles=angles), weight=weight), rtol=1e-4, atol=1e-5)


def test_scales_by_position(rng, angles, qkv):
    """Of tokens and of heads, shared or not, in any strides: one product of float32 behind the rotation."""
    plain = halyard.rotate(*qkv, angles=angles, positions=7)
    of_tokens = rng.standard_normal(2 * TOKENS).astype(np.float32)[::-2]
    of_heads = rng.standard_normal((HEADS, TOKENS)).astype(np.float32).T
    y = halyard.rotate(Tensor(qkv[0], position_scales=of_tokens), qkv[1], Tensor(qkv[2], position_scales=of_heads),
                       angles=angles, positions=7)
    for x, expected in zip(y, (plain[0] * of_tokens[:, None, None], plain[1], qkv[2] * of_heads[..., None])):
        assert np.array_equal(x, expected)
    batch = np.stack([qkv[0], qkv[0] + 1])
    plain = halyard.rotate(batch, angles=angles, positions=0)
    scales = rng.standard_normal((2, TOKENS, 2 * HEADS)).astype(np.float32)
    for given, wide in ((of_tokens, of_tokens[:, None, None]), (scales[..., 0], scales[..., :1, None]),
                        (scales, scales[..., None])):
        y = halyard.rotate(Tensor(batch, position_scales=given), angles=angles, positions=0)
        assert np.array_equal(y, plain * wide)
    heads_first = halyard.rotate(Tensor(batch.swapaxes(1, 2), position_scales=scales.swapaxes(1, 2)), angles=angles,
                                 positions=0, layout="bhsd")
    assert np.array_equal(heads_first.swapaxes(1, 2), y)


def test_hadamard(angles, qkv):
    """Of some tensors; twice it is nothing, and keys move with it."""
    plain = halyard.rotate(*qkv, angles=angles)
    y = halyard.rotate(Tensor(qkv[0], hadamard=DIM), qkv[1], Tensor(qkv[2], hadamard=DIM), angles=angles)
    lengths = [np.linalg.norm(each.astype(np.float64), axis=-1, keepdims=True) for each in plain]
    assert (np.abs(halyard.convert(y[0], hadamard=DIM) - plain[0]) <= 12 * exact.EPS * lengths[0]).all()
    assert (np.abs(y[0].sum(-1) - plain[0][..., 0] * np.sqrt(DIM)) <= 12 * exact.EPS * DIM * lengths[0][..., 0]).all()
    assert np.array_equal(y[1], plain[1]) and np.array_equal(y[2], halyard.convert(qkv[2], hadamard=DIM))
    here, there = (halyard.rotate(Tensor(qkv[1], hadamard=DIM), angles=angles, positions=at) for at in (0, 5))
    moved = halyard.rerotate(Tensor(here, hadamard=DIM), angles=angles, from_positions=0, positions=5)
    assert (np.abs(moved - there) <= 24 * exact.EPS * lengths[1]).all()


KINDS = {"f32": dict(), "bf16": dict(dtype="bf16"), "e4m3": dict(dtype="e4m3"),
         "records": dict(groups="ggml_q8_0", hadamard=64)}
FROM, TO = np.array([7, 100, 3, 0, 131_071]), np.array([0, 90, 2**31 - 1, 5, 131_000])


@pytest.mark.parametrize("kind, layout", [(kind, layout) for kind in KINDS for layout in ("rows", "nhd", "hnd", "tiled")
                                          if (kind, layout) != ("records", "tiled")])  # tiles cut no record of 68 bytes
def test_caches(angles, qkv, kind, layout):
    """What goes to an array is stored by slot, and moves there as in an array; nothing else is written."""
    stages = KINDS[kind]
    wanted = halyard.rotate(qkv[0], *(Tensor(x, **stages) for x in qkv[1:]), angles=angles, positions=FROM)
    caches = [np.full(exact.cache_shape(layout, HEADS, x.shape[-1]), i).astype(x.dtype) for i, x in enumerate(wanted)]
    caches, expected, q = caches[1:], [cache.copy() for cache in caches[1:]], qkv[0].copy()
    described = {"hnd": "hnd", "tiled": halyard.CacheLayout(**exact.tiled(HEADS, DIM))}.get(layout, "nhd")
    returned = halyard.rotate(Tensor(q, out=q),
                              *(Tensor(x, cache=Cache(to, described), **stages) for x, to in zip(qkv[1:], caches)),
                              angles=angles, positions=FROM, slots=SLOTS)
    assert returned[0] is q and all(x is y for x, y in zip(returned[1:], caches))
    assert np.array_equal(q, wanted[0])
    stored, move = SLOTS >= 0, dict(angles=angles, from_positions=FROM, positions=TO)
    as_stored = {name: value for name, value in stages.items() if name != "dtype"}
    if layout == "tiled":
        described = dataclasses.replace(described, n_heads=HEADS, head_dim=DIM)
    place = exact.at_slots(layout, SLOTS[stored])
    for cache, old, x in zip(caches, expected, wanted[1:]):
        for _ in range(2):
            old[place] = x[stored].reshape(old[place].shape)
            assert np.array_equal(cache, old)
            halyard.rerotate(Tensor(x, **as_stored), **move)
            halyard.rerotate(Tensor(cache=Cache(cache, described), **as_stored), slots=SLOTS, **move)


def test_interleaved_cache_and_batches(angles, rng):
    """k and v in one array, as some engines have it, and slots of a batch."""
    x = rng.standard_normal((2, 3, HEADS, DIM)).astype(np.float32)
    pages = np.zeros((PAGES, 2, PAGE, HEADS, DIM), np.float32)
    slots = np.array([[1, 2, 3], [8, 9, -1]], np.int32)
    q, k, v = x.copy(), x.copy(), x.copy()
    halyard.rotate(Tensor(q, out=q), Tensor(k, cache=pages[:, 0]), Tensor(v, cache=pages[:, 1]), angles=angles,
                   positions=0, slots=slots)
    expected = np.zeros_like(pages)
    for slot, stored, given in zip(slots.flat, q.reshape(-1, HEADS, DIM), x.reshape(-1, HEADS, DIM)):
        if slot >= 0:
            expected[slot // PAGE, :, slot % PAGE] = stored, given
    assert np.array_equal(pages, expected)


def test_padded_tokens(angles, rng):
    k = rng.standard_normal((4, HEADS, DIM)).astype(np.float32)
    slots, stored = np.array([0, 1, -1, -1]), []
    for padding in (-1, 1 << 40), (0, 0):
        positions = np.array([10, 11, *padding])
        stored.append(np.zeros((PAGES, PAGE, HEADS, DIM), np.float32))
        halyard.rotate(Tensor(k, cache=stored[-1]), angles=angles, positions=positions, slots=slots)
        halyard.rerotate(stored[-1], angles=angles, from_positions=positions, positions=positions + 2, slots=slots)
    assert np.array_equal(*stored) and stored[0].any()
    with pytest.raises(halyard.Error, match=r"positions\[batch 0, token 3\] is 1099511627776"):  # q is written
        halyard.rotate(k, Tensor(k, cache=stored[0]), angles=angles, positions=np.array([10, 11, 12, 1 << 40]),
                       slots=slots)


def test_ranges_of_slots(angles, rng):
    x = rng.standard_normal((3, 4, HEADS, DIM)).astype(np.float32)
    starts = np.array([[20], [-1], [3]])
    each = np.where(starts < 0, -1, starts + np.arange(4))
    caches = [np.zeros((PAGES, PAGE, HEADS, DIM), np.float32) for _ in range(2)]
    for cache, slots in zip(caches, (starts, each)):
        halyard.rotate(Tensor(x, cache=cache), angles=angles, positions=9, slots=slots)
    assert np.array_equal(*caches) and np.count_nonzero(caches[0].any((2, 3))) == 8
    for cache, slots in zip(caches, (8, np.arange(8, 12))):
        halyard.rotate(Tensor(x[0], cache=cache), angles=angles, positions=9, slots=slots)
    assert np.array_equal(*caches)
    for bad in (29, -2, 2**70, np.array([[29]])):
        with pytest.raises(halyard.Error, match="slot"):
            halyard.rotate(Tensor(x[0], cache=caches[0]), angles=angles, positions=9, slots=bad)
    with pytest.raises(halyard.Error):
        halyard.rotate(Tensor(x, cache=caches[0]), angles=angles, positions=0, slots=np.array([[0], [3], [9]]))  # slot 3 twice
    assert np.array_equal(*caches)


def test_scales(angles, qkv, rng):
    y = halyard.rotate(qkv[1], angles=angles)
    for scale in (np.float32(0.5), rng.uniform(0.1, 1, (HEADS, 1)).astype(np.float32)):
        scaled = halyard.rotate(Tensor(qkv[1], scale=scale.ravel() if scale.ndim else 0.5, dtype="e4m3"), angles=angles)
        assert np.array_equal(scaled, (y * (np.float32(1) / scale)).astype(ml_dtypes.float8_e4m3fn))


@pytest.mark.parametrize("layout", ["bshd", "bhsd"])
def test_dynamic_scales(angles, rng, layout):
    x = rng.standard_normal((2, TOKENS, HEADS, DIM)).astype(np.float32)
    y = halyard.rotate(x, angles=angles, positions=0)
    expected = np.abs(y).max(-1) / np.float32(127)
    scales = np.zeros(expected.shape, np.float32)
    given, out = (x, scales) if layout == "bshd" else (x.swapaxes(1, 2), scales.swapaxes(1, 2))
    stored = halyard.rotate(Tensor(given, scale=halyard.DynamicScale(out), dtype="int8"), angles=angles, positions=0,
                            layout=layout)
    assert np.array_equal(scales, expected)
    stored = stored if layout == "bshd" else stored.swapaxes(1, 2)
    assert np.abs(stored * scales[..., None] - y).max() <= scales.max()


def test_dynamic_scales_by_slot(angles, qkv):
    cache = np.zeros((PAGES, PAGE, HEADS, DIM), np.int8)
    scales = np.full((PAGES * PAGE, HEADS), -1, np.float32)
    halyard.rotate(Tensor(qkv[1], cache=cache, scale=halyard.DynamicScale(scales)), angles=angles, positions=0,
                   slots=SLOTS)
    y = halyard.rotate(qkv[1], angles=angles, positions=0)
    stored = SLOTS >= 0
    assert np.array_equal(scales[SLOTS[stored]], (np.abs(y).max(-1) / np.float32(127))[stored])
    assert np.count_nonzero(scales != -1) == 4 * HEADS


def test_doubled_slots(angles, qkv):
    cache = np.zeros((PAGES * PAGE, HEADS, DIM), np.float32)
    slots = np.array([1, 2, 1, 3, 4])
    with pytest.raises(halyard.Error) as caught:
        halyard.rotate(Tensor(qkv[1], cache=cache), angles=angles, positions=0, slots=slots)
    assert caught.value.status == "HALYARD_ERROR_SLOT" and not cache.any()
    halyard.rotate(Tensor(qkv[1], cache=cache), angles=angles, positions=0, slots=slots, duplicate_slots="last")
    assert np.array_equal(cache[1], halyard.rotate(qkv[1], angles=angles, positions=0)[2])


def test_v_takes_no_rotation(angles, qkv):
    v = halyard.rotate(*qkv[:2], Tensor(qkv[2], dtype="bf16"), angles=angles, positions=5)[2]
    assert np.array_equal(v, qkv[2].astype(ml_dtypes.bfloat16))

"""Each argument of a Tensor reaches the library: norms, scales, caches and slots. The C++ tests check error bounds."""

import ml_dtypes
import numpy as np
import pytest

import caches
import halyard
from caches import FROM, SLOTS, TO
from halyard import Cache, Norm, Tensor, rerotate, rotate

DIM, HEADS, TOKENS = 64, 3, 5
STORED = SLOTS >= 0


@pytest.fixture
def qkv(rng):
    return tuple(rng.standard_normal((TOKENS, heads, DIM)).astype(np.float32) for heads in (2 * HEADS, HEADS, HEADS))


def test_norms(rng, angles, qkv):
    q, zero = qkv[0], np.zeros(TOKENS, np.int32)  # position 0 for all tokens, so that the rotation changes nothing
    weight, bias, by_head = (rng.standard_normal(shape).astype(np.float32) for shape in (DIM, DIM, (2 * HEADS, DIM)))
    short, short_weight = q.astype(ml_dtypes.bfloat16), weight.astype(ml_dtypes.bfloat16)
    window, centred = q.copy(), q - q.mean(-1, keepdims=True)

    def normed(x):
        return x / np.sqrt((x.astype(float) ** 2).mean(-1, keepdims=True) + 0.1)

    window[..., 8:24] = normed(q[..., 8:24])
    both = dict(weight=short_weight, rounding="before_weight")
    for x, expected, fields in (
            (q, normed(q), {}), (q, normed(q) * weight, dict(weight=weight)),
            (q, normed(q) * by_head, dict(weight=by_head)),
            (q, normed(q) * (1 + weight), dict(weight=weight, unit_offset=True)),
            (q, window, dict(window_offset=8, window_size=16)), (q, normed(centred), dict(kind="layer")),
            (q, normed(centred) * weight + bias, dict(weight=weight, kind="layer", bias=bias)),
            (q, normed(q.reshape(TOKENS, -1)).reshape(q.shape) * by_head, dict(weight=by_head.ravel(), width="row")),
            (q, normed(q) * short_weight.astype(float), dict(weight=short_weight)),
            (short, normed(short).astype(short.dtype).astype(float) * short_weight.astype(float), both)):
        y = rotate(Tensor(x, norm=Norm(**fields, eps=0.1), dtype="f32"), angles=angles, positions=zero)
        np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)
    after = rotate(Tensor(q, norm=Norm(weight, 0.1, order="after")), angles=angles)
    np.testing.assert_allclose(after, normed(rotate(q, angles=angles)) * weight, rtol=1e-4, atol=1e-5)


def test_scales_by_position(rng, angles, qkv):
    """Scales by token or head, with any strides, equal a float32 product after the rotation."""
    x = np.stack([qkv[0], qkv[0] + 1])
    y = rotate(x, angles=angles, positions=7)
    each = rng.standard_normal((2, TOKENS, 2 * HEADS)).astype(np.float32)
    for scales, wide in ((each[0, ::-1, 0], each[0, ::-1, :1, None]), (each[..., 0], each[..., :1, None]),
                         (each, each[..., None])):
        assert np.array_equal(rotate(Tensor(x, position_scales=scales), angles=angles, positions=7), y * wide)
    heads_first = rotate(Tensor(x.swapaxes(1, 2), position_scales=each.swapaxes(1, 2)), angles=angles,
                                 positions=7, layout="bhsd")
    assert np.array_equal(heads_first.swapaxes(1, 2), y * each[..., None])


def test_hadamard(angles, qkv):
    """Some tensors of a call are transformed; the transform is its own inverse; transformed keys can be re-rotated."""
    plain = rotate(*qkv, angles=angles)
    q, k, v = rotate(Tensor(qkv[0], hadamard=DIM), qkv[1], Tensor(qkv[2], hadamard=DIM), angles=angles)
    np.testing.assert_allclose(halyard.convert(q, hadamard=DIM), plain[0], atol=1e-5)
    assert np.array_equal(k, plain[1]) and np.array_equal(v, halyard.convert(qkv[2], hadamard=DIM))
    here, there = (rotate(Tensor(qkv[1], hadamard=DIM), angles=angles, positions=at) for at in (0, 5))
    rerotate(Tensor(here, hadamard=DIM), angles=angles, from_positions=0, positions=5)
    np.testing.assert_allclose(here, there, atol=2e-5)


KINDS = {"f32": {}, "bf16": dict(dtype="bf16"), "e4m3": dict(dtype="e4m3"),
         "records": dict(groups="ggml_q8_0", hadamard=64)}


@pytest.mark.parametrize("kind, layout", [(kind, layout) for kind in KINDS for layout in caches.ORDERS
                                          if (kind, layout) != ("records", "tiled")])  # 68 bytes are no whole tiles
def test_caches(angles, qkv, kind, layout):
    """rotate and rerotate write the same bytes to a token's slot of a cache as to an array, and nothing else."""
    stages = KINDS[kind]
    wanted = rotate(qkv[0], *(Tensor(x, **stages) for x in qkv[1:]), angles=angles, positions=FROM)
    between = 0 if layout == "tiled" else 1  # the new dimension for k and v, in one array as in some engines
    shape = np.insert(caches.shape_of(layout, HEADS, wanted[1].shape[-1]), between, 2)
    stored = list(np.moveaxis(np.full(shape, 3).astype(wanted[1].dtype), between, 0))
    described = {"hnd": "hnd", "tiled": caches.tiled(HEADS, DIM, n_heads=HEADS, head_dim=DIM)}.get(layout, "nhd")
    returned = rotate(qkv[0], *(Tensor(x, cache=Cache(to, described), **stages) for x, to in zip(qkv[1:], stored)),
                      angles=angles, positions=FROM, slots=SLOTS)
    assert np.array_equal(returned[0], wanted[0]) and all(x is y for x, y in zip(returned[1:], stored))
    move = dict(angles=angles, from_positions=FROM, positions=TO)
    as_stored = {name: value for name, value in stages.items() if name != "dtype"}
    for cache, x in zip(stored, wanted[1:]):
        for _ in range(2):
            expected = np.full((caches.N_SLOTS, *x.shape[1:]), 3).astype(x.dtype)
            expected[SLOTS[STORED]] = x[STORED]
            assert np.array_equal(caches.in_slots(layout, cache), expected)
            rerotate(Tensor(x, **as_stored), **move)
            rerotate(Tensor(cache=Cache(cache, described), **as_stored), slots=SLOTS, **move)


def test_forms_of_slots(angles, rng):
    """Slots that are given by the first slot of each sequence, one slot for two tokens, and bad slot numbers."""
    x = rng.standard_normal((3, 4, HEADS, DIM)).astype(np.float32)
    starts = np.array([[20], [-1], [3]])

    def store(x, slots, **more):
        cache = np.zeros((4, 8, HEADS, DIM), np.float32)
        try:
            rotate(Tensor(x, cache=cache), angles=angles, positions=9, slots=slots, **more)
        except halyard.Error as refusal:
            assert refusal.status == "HALYARD_ERROR_SLOT" and not cache.any()
            raise
        return cache.reshape(32, HEADS, DIM)

    by_start = store(x, starts)
    assert np.array_equal(by_start, store(x, np.where(starts < 0, -1, starts + np.arange(4))))
    assert np.array_equal(np.flatnonzero(by_start.any((1, 2))), [3, 4, 5, 6, 20, 21, 22, 23])
    assert np.array_equal(store(x[0], 20)[20:24], by_start[20:24])
    for bad in (29, -2, 2**70, np.array([[29]]), np.array([1, 2, 1, 3])):
        with pytest.raises(halyard.Error, match="slot"):
            store(x[0], bad)
    twice = store(x[0], np.array([1, 2, 1, 3]), duplicate_slots="last")
    assert np.array_equal(twice[1], by_start[22])


def test_scales(angles, qkv, rng):
    y = rotate(qkv[1], angles=angles)
    by_head = rng.uniform(0.1, 1, HEADS).astype(np.float32)
    for scale, wide in (0.5, np.float32(0.5)), (by_head, by_head[:, None]):
        scaled = rotate(Tensor(qkv[1], scale=scale, dtype="e4m3"), angles=angles)
        assert np.array_equal(scaled, (y * (np.float32(1) / wide)).astype(ml_dtypes.float8_e4m3fn))


def test_dynamic_scales(angles, rng):
    """Dynamic scales of an array, by token and head, and of a cache, by slot and head."""
    def check(stored, scales, y):
        assert np.array_equal(scales, np.abs(y).max(-1) / np.float32(127))
        assert np.abs(stored * scales[..., None] - y).max() <= scales.max()

    x = rng.standard_normal((2, TOKENS, HEADS, DIM)).astype(np.float32)
    y, scales = rotate(x, angles=angles, positions=0), np.zeros((2, TOKENS, HEADS), np.float32)
    scale = halyard.DynamicScale(scales)
    check(rotate(Tensor(x, scale=scale, dtype="int8"), angles=angles, positions=0), scales, y)
    scales.fill(0)
    heads_first = Tensor(x.swapaxes(1, 2), scale=halyard.DynamicScale(scales.swapaxes(1, 2)), dtype="int8")
    check(rotate(heads_first, angles=angles, positions=0, layout="bhsd").swapaxes(1, 2), scales, y)
    cache, scales = np.zeros((32, HEADS, DIM), np.int8), np.full((32, HEADS), -1, np.float32)
    rotate(Tensor(x[0], cache=cache, scale=halyard.DynamicScale(scales)), angles=angles, positions=0, slots=SLOTS)
    check(cache[SLOTS[STORED]], scales[SLOTS[STORED]], y[0, STORED])
    assert np.count_nonzero(scales != -1) == 4 * HEADS

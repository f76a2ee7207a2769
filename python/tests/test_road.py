"""Norms, scales, caches and slots: the road as keyword arguments of rotate."""

import ml_dtypes
import numpy as np
import pytest

import exact
import halyard

DIM, HEADS, TOKENS = 64, 3, 5
PAGES, PAGE = exact.PAGES, exact.PAGE
BASE = 1e6
FREQUENCIES = exact.inv_freq(BASE, DIM)
SLOTS = np.array([9, 30, -1, 0, 17])


@pytest.fixture
def qkv(rng):
    return tuple(rng.standard_normal((TOKENS, heads, DIM)).astype(np.float32) for heads in (2 * HEADS, HEADS, HEADS))


def normed(x, weight, eps, axes=(-1,)):
    wide = x.astype(np.longdouble)
    return wide / np.sqrt((wide ** 2).mean(axes, keepdims=True) + eps) * weight


def test_norm_of_heads(rng, angles, qkv):
    weight = rng.standard_normal(DIM).astype(np.float32)
    n_eps = (2 + 4 + (DIM / 16 + 5) / 2) * exact.EPS
    for norm, factor in ((halyard.Norm(weight, 1e-5), weight), (halyard.Norm(eps=1e-5), 1.0),
                         (halyard.Norm(weight, 1e-5, unit_offset=True), 1.0 + weight)):
        y = halyard.rotate(qkv[0], angles=angles, norm=norm)
        exact.check(y, normed(qkv[0], factor, 1e-5), np.arange(TOKENS), FREQUENCIES, eps=n_eps)
    in_half = weight.astype(ml_dtypes.bfloat16)
    y = halyard.rotate(qkv[0], angles=angles, norm=halyard.Norm(in_half, 1e-5))
    exact.check(y, normed(qkv[0], in_half.astype(np.float64), 1e-5), np.arange(TOKENS), FREQUENCIES, eps=n_eps)


def test_norm_of_a_window_and_of_rows(rng, angles, qkv):
    window = halyard.rotate(qkv[0], angles=angles, norm=halyard.Norm(window_offset=8, window_size=16))
    expected = qkv[0].astype(np.longdouble)
    expected[..., 8:24] = normed(qkv[0][..., 8:24], 1.0, 1e-6)
    exact.check(window, expected, np.arange(TOKENS), FREQUENCIES, eps=12 * exact.EPS)
    weight = rng.standard_normal(2 * HEADS * DIM).astype(np.float32)
    row = halyard.rotate(qkv[0], angles=angles, norm=halyard.Norm(weight, width="row"))
    expected = normed(qkv[0], weight.reshape(2 * HEADS, DIM), 1e-6, axes=(-1, -2))
    exact.check(row, expected, np.arange(TOKENS), FREQUENCIES, eps=24 * exact.EPS)
    after = halyard.rotate(qkv[0], angles=angles, norm=halyard.Norm(eps=0.0, order="after"))
    np.testing.assert_allclose(np.square(after).mean(-1), 1, rtol=1e-5)


def test_scales_by_position(rng, angles, qkv):
    """Of tokens and of heads, shared or not, in any strides: one product of float32 behind the rotation."""
    plain = halyard.rotate(*qkv, angles=angles, positions=7)
    of_tokens = rng.standard_normal(2 * TOKENS).astype(np.float32)[::-2]
    of_heads = rng.standard_normal((HEADS, TOKENS)).astype(np.float32).T
    y = halyard.rotate(*qkv, angles=angles, positions=7, position_scales=(of_tokens, None, of_heads))
    assert np.array_equal(y[0], plain[0] * of_tokens[:, None, None])
    assert np.array_equal(y[1], plain[1])
    assert np.array_equal(y[2], qkv[2] * of_heads[..., None])
    batch = np.stack([qkv[0], qkv[0] + 1])
    plain = halyard.rotate(batch, angles=angles, positions=0)
    for scales in (of_tokens, rng.standard_normal((2, TOKENS)).astype(np.float32),
                   rng.standard_normal((2, TOKENS, 2 * HEADS)).astype(np.float32)):
        y = halyard.rotate(batch, angles=angles, positions=0, position_scales=scales)
        wide = scales.reshape(*(1,) * (scales.ndim == 1), *scales.shape, *(1,) * (4 - max(scales.ndim, 2)))
        assert np.array_equal(y, plain * wide)
    heads_first = halyard.rotate(batch.swapaxes(1, 2), angles=angles, positions=0, layout="bhsd",
                                 position_scales=scales.swapaxes(1, 2))
    assert np.array_equal(heads_first.swapaxes(1, 2), y)
    out = np.empty(batch.shape, np.int8)
    halyard.rotate(batch, angles=angles, positions=0, position_scales=of_tokens, scale=0.05, out=out)
    expected = np.clip(np.rint(plain * of_tokens[:, None, None] * np.float32(1 / np.float32(0.05))), -128, 127)
    assert np.array_equal(out, expected)


def test_hadamard(rng, angles, qkv):
    """Of heads of 64: NumPy's matrix in float64, for q and v; twice it is nothing, and keys move with it."""
    matrix = np.array([[1.0]])
    while len(matrix) < DIM:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    matrix /= np.sqrt(DIM)
    plain = halyard.rotate(*qkv, angles=angles)
    y = halyard.rotate(*qkv, angles=angles, hadamard=(DIM, 0, DIM))
    lengths = [np.linalg.norm(each.astype(np.float64), axis=-1, keepdims=True) for each in plain]
    for i in 0, 2:
        assert (np.abs(y[i] - plain[i].astype(np.float64) @ matrix) <= 6 * exact.EPS * lengths[i]).all()
    assert np.array_equal(y[1], plain[1])
    again = halyard.rotate(v=y[2], q=y[2], angles=angles, positions=np.zeros(TOKENS, np.int32), hadamard=DIM)[1]
    assert (np.abs(again - qkv[2]) <= 12 * exact.EPS * lengths[2]).all()
    moved = halyard.rerotate(halyard.rotate(qkv[1], angles=angles, hadamard=DIM), angles=angles, hadamard=DIM,
                             from_positions=0, positions=5)
    there = halyard.rotate(qkv[1], angles=angles, positions=5, hadamard=DIM)
    assert (np.abs(moved - there) <= 24 * exact.EPS * lengths[1]).all()


@pytest.mark.parametrize("per_head", [False, True])
@pytest.mark.parametrize("has_bias", [False, True])
def test_layer_norms(rng, angles, qkv, per_head, has_bias):
    shape = (2 * HEADS, DIM) if per_head else (DIM,)
    weight, bias = (rng.standard_normal(shape).astype(np.float32) for _ in range(2))
    y = halyard.rotate(qkv[0], angles=angles, positions=np.zeros(TOKENS, np.int32),  # which leaves all where it is
                       norm=halyard.Norm(weight, 1e-5, kind="layer", bias=bias if has_bias else None))
    wide = qkv[0].astype(np.longdouble)
    expected = normed(wide - wide.mean(-1, keepdims=True), weight, 1e-5)
    bound = (np.abs(expected) * (2 + 4 + (DIM / 16 + 5) / 2 + 12) + 12 * np.abs(weight) + np.abs(bias)) * exact.EPS
    assert (np.abs(y - (expected + bias * has_bias)) <= bound).all()


def test_weights_of_each_head(rng, angles, qkv):
    weight = rng.standard_normal((2 * HEADS, DIM)).astype(np.float32)
    y = halyard.rotate(qkv[0], angles=angles, norm=halyard.Norm(weight, 1e-5))
    exact.check(y, normed(qkv[0], weight, 1e-5), np.arange(TOKENS), FREQUENCIES, eps=12 * exact.EPS)
    for head in range(2 * HEADS):
        alone = halyard.rotate(qkv[0][:, head:head + 1], angles=angles, norm=halyard.Norm(weight[head], 1e-5))
        assert np.array_equal(alone[:, 0], y[:, head])


def test_layer_norm_is_that_of_torch(rng, angles):
    torch = pytest.importorskip("torch")
    norm = torch.nn.LayerNorm(DIM)
    with torch.no_grad():
        norm.weight.copy_(torch.from_numpy(1 + 0.1 * rng.standard_normal(DIM)))
        norm.bias.copy_(torch.from_numpy(rng.standard_normal(DIM)))
        for dtype, allowed in ((torch.float32, 2e-6), (torch.bfloat16, 0.0)):
            norm.to(dtype)
            x = torch.from_numpy(rng.standard_normal((200, HEADS, DIM)) + 3).to(dtype)
            y = halyard.rotate(x, angles=angles, positions=torch.zeros(200, dtype=torch.int32),
                               norm=halyard.Norm(norm.weight.detach(), norm.eps, kind="layer",
                                                 bias=norm.bias.detach(), rounding="after_weight"))
            off = (y.double() - norm(x).double()).abs()
            # Rounded to bf16 they may differ by one step, where the sums' rounding errors decide.
            assert (off <= allowed + (0.0 if allowed else 2.0 ** -7) * y.double().abs()).all()
            assert (off > allowed).sum() <= 0.01 * off.numel()


KINDS = {"f32": dict(), "bf16": dict(dtype="bf16"), "e4m3": dict(dtype="e4m3"),
         "records": dict(groups="ggml_q8_0", hadamard=64)}
FROM, TO = np.array([7, 100, 3, 0, 131_071]), np.array([0, 90, 2**31 - 1, 5, 131_000])


@pytest.mark.parametrize("kind, layout", [(kind, layout) for kind in KINDS for layout in ("rows", "nhd", "hnd", "tiled")
                                          if (kind, layout) != ("records", "tiled")])  # tiles cut no record of 68 bytes
def test_caches(angles, qkv, kind, layout):
    """What goes to an array is stored by slot, and moves there as in an array; nothing else is written."""
    def for_each(*members):
        return {name: tuple(value if each else 0 if name == "hadamard" else None for each in members)
                for name, value in KINDS[kind].items()}

    wanted = halyard.rotate(*qkv, angles=angles, positions=FROM, **for_each(False, True, True))
    caches = [np.full(exact.cache_shape(layout, HEADS, x.shape[-1]), i).astype(x.dtype) for i, x in enumerate(wanted)]
    caches, expected, q = caches[1:], [cache.copy() for cache in caches[1:]], qkv[0].copy()
    where = dict(slots=SLOTS, cache_layout={"hnd": "hnd", "tiled": halyard.CacheLayout(**exact.tiled(HEADS, DIM))}.get(
        layout, "nhd"))
    returned = halyard.rotate(q, *qkv[1:], angles=angles, positions=FROM, out=(q,), cache=(None, *caches), **where,
                              **for_each(False, True, True))
    assert returned[0] is q and all(x is y for x, y in zip(returned[1:], caches))
    assert np.array_equal(q, wanted[0])
    stored, move = SLOTS >= 0, dict(angles=angles, from_positions=FROM, positions=TO,
                                    **{name: value for name, value in KINDS[kind].items() if name != "dtype"})
    place = exact.at_slots(layout, SLOTS[stored])
    for cache, old, x in zip(caches, expected, wanted[1:]):
        for _ in range(2):
            old[place] = x[stored].reshape(old[place].shape)
            assert np.array_equal(cache, old)
            halyard.rerotate(x, **move)
            halyard.rerotate(cache, **move, **where,
                             **(dict(n_heads=HEADS, head_dim=DIM) if layout == "tiled" else {}))


def test_interleaved_cache_and_batches(angles, rng):
    """k and v in one array, as some engines have it, and slots of a batch."""
    x = rng.standard_normal((2, 3, HEADS, DIM)).astype(np.float32)
    pages = np.zeros((PAGES, 2, PAGE, HEADS, DIM), np.float32)
    slots = np.array([[1, 2, 3], [8, 9, -1]], np.int32)
    q, k, v = x.copy(), x.copy(), x.copy()
    halyard.rotate(q, k, v, angles=angles, positions=0, out=(q,), cache=(None, pages[:, 0], pages[:, 1]), slots=slots)
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
        halyard.rotate(k, angles=angles, positions=positions, cache=stored[-1], slots=slots)
        halyard.rerotate(stored[-1], angles=angles, from_positions=positions, positions=positions + 2, slots=slots)
    assert np.array_equal(*stored) and stored[0].any()
    with pytest.raises(halyard.Error, match=r"positions\[batch 0, token 3\] is 1099511627776"):  # q is written
        halyard.rotate(k, k, angles=angles, positions=np.array([10, 11, 12, 1 << 40]), cache=(None, stored[0]),
                       slots=slots)


def test_ranges_of_slots(angles, rng):
    x = rng.standard_normal((3, 4, HEADS, DIM)).astype(np.float32)
    starts = np.array([[20], [-1], [3]])
    each = np.where(starts < 0, -1, starts + np.arange(4))
    caches = [np.zeros((PAGES, PAGE, HEADS, DIM), np.float32) for _ in range(2)]
    for cache, slots in zip(caches, (starts, each)):
        halyard.rotate(x, angles=angles, positions=9, cache=cache, slots=slots)
    assert np.array_equal(*caches) and np.count_nonzero(caches[0].any((2, 3))) == 8
    for cache, slots in zip(caches, (8, np.arange(8, 12))):
        halyard.rotate(x[0], angles=angles, positions=9, cache=cache, slots=slots)
    assert np.array_equal(*caches)
    for bad in (29, -2, 2**70, np.array([[29]])):
        with pytest.raises(halyard.Error, match="slot"):
            halyard.rotate(x[0], angles=angles, positions=9, cache=caches[0], slots=bad)
    with pytest.raises(halyard.Error):
        halyard.rotate(x, angles=angles, cache=caches[0], slots=np.array([[0], [3], [9]]))  # slot 3 twice
    assert np.array_equal(*caches)


def test_scales(angles, qkv, rng):
    x = qkv[1]
    y = halyard.rotate(x, angles=angles)
    for scale in (0.5, rng.uniform(0.1, 1, HEADS)):
        scale = np.float32(scale) if isinstance(scale, np.ndarray) else scale
        reciprocal = np.float32(1) / np.float32(scale)
        if np.shape(scale) == (HEADS,):
            reciprocal = reciprocal[:, None]
        scaled = halyard.rotate(x, angles=angles, scale=scale, dtype="e4m3")
        assert np.array_equal(scaled, (y * reciprocal).astype(ml_dtypes.float8_e4m3fn))


@pytest.mark.parametrize("layout", ["bshd", "bhsd"])
def test_dynamic_scales(angles, rng, layout):
    x = rng.standard_normal((2, TOKENS, HEADS, DIM)).astype(np.float32)
    y = halyard.rotate(x, angles=angles, positions=0)
    expected = np.abs(y).max(-1) / np.float32(127)
    scales = np.zeros(expected.shape, np.float32)
    given, out = (x, scales) if layout == "bshd" else (x.swapaxes(1, 2), scales.swapaxes(1, 2))
    stored = halyard.rotate(given, angles=angles, positions=0, layout=layout, scale=halyard.DynamicScale(out),
                            dtype="int8")
    assert np.array_equal(scales, expected)
    stored = stored if layout == "bshd" else stored.swapaxes(1, 2)
    assert np.abs(stored * scales[..., None] - y).max() <= scales.max()


def test_dynamic_scales_by_slot(angles, qkv):
    cache = np.zeros((PAGES, PAGE, HEADS, DIM), np.int8)
    scales = np.full((PAGES * PAGE, HEADS), -1, np.float32)
    halyard.rotate(qkv[1], angles=angles, positions=0, cache=cache, slots=SLOTS, scale=halyard.DynamicScale(scales))
    y = halyard.rotate(qkv[1], angles=angles, positions=0)
    stored = SLOTS >= 0
    assert np.array_equal(scales[SLOTS[stored]], (np.abs(y).max(-1) / np.float32(127))[stored])
    assert np.count_nonzero(scales != -1) == 4 * HEADS


def test_doubled_slots(angles, qkv):
    cache = np.zeros((PAGES * PAGE, HEADS, DIM), np.float32)
    slots = np.array([1, 2, 1, 3, 4])
    with pytest.raises(halyard.Error) as caught:
        halyard.rotate(qkv[1], angles=angles, positions=0, cache=cache, slots=slots)
    assert caught.value.status == "HALYARD_ERROR_SLOT" and not cache.any()
    halyard.rotate(qkv[1], angles=angles, positions=0, cache=cache, slots=slots, duplicate_slots="last")
    assert np.array_equal(cache[1], halyard.rotate(qkv[1], angles=angles, positions=0)[2])


def test_v_takes_no_rotation(angles, qkv):
    v = halyard.rotate(*qkv, angles=angles, positions=5, dtype=(None, None, "bf16"))[2]
    assert np.array_equal(v, qkv[2].astype(ml_dtypes.bfloat16))

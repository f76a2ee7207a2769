"""Records of groups: views, caches and slots, scales apart, moves, other libraries, bad input.
Which bytes records hold is for tests/road/test_groups.cpp."""

import re

import ml_dtypes
import numpy as np
import pytest

import exact
import halyard
from halyard import Groups, Tensor

DIM, HEADS, TOKENS, BASE = 64, 2, 5, 1e4
PAGES, PAGE = exact.PAGES, exact.PAGE
SLOTS = np.array([9, 30, -1, 0, 17])
FROM, TO = np.array([7, 100, 3, 0, 131_071]), np.array([0, 90, 2**31 - 1, 5, 131_000])


@pytest.fixture
def keys(rng):
    return rng.standard_normal((TOKENS, HEADS, DIM)).astype(np.float32)


def records_of(values, groups="ggml_q8_0", **options):
    return halyard.convert(values, groups=groups, **options)


def test_a_rotation_goes_to_records(angles, keys):
    """As the floats that it would go to; in any strides, and into what is given."""
    plain = halyard.rotate(keys, angles=angles, positions=7)
    got = halyard.rotate(Tensor(keys, groups="ggml_q8_0"), angles=angles, positions=7)
    assert got.shape == (TOKENS, HEADS, 68) and got.dtype == np.uint8
    assert np.array_equal(got, records_of(plain))
    wide = np.zeros((HEADS, TOKENS, 80), np.uint8)
    out = wide.swapaxes(0, 1)[..., 7:75]
    assert halyard.rotate(Tensor(keys, groups="ggml_q8_0", out=out), angles=angles, positions=7) is out
    assert np.array_equal(out, got) and not wide[..., :7].any() and not wide[..., 75:].any()
    batch = np.stack([keys, keys])
    first = halyard.rotate(Tensor(batch.swapaxes(1, 2), groups="ggml_q8_0"), angles=angles, positions=7, layout="bhsd")
    assert first.shape == (2, HEADS, TOKENS, 68) and np.array_equal(first[1].swapaxes(0, 1), got)


def test_tensors_of_their_own(angles, keys):
    q, k, v = halyard.rotate(Tensor(keys, dtype="f16"), Tensor(keys, groups="ggml_q8_0", hadamard=64),
                             Tensor(keys, groups="ggml_q4_0", hadamard=64), angles=angles)
    assert np.array_equal(q, halyard.rotate(Tensor(keys, dtype="f16"), angles=angles))
    turned = halyard.rotate(keys, angles=angles)
    assert np.array_equal(k, records_of(turned, hadamard=64))
    assert np.array_equal(v, records_of(keys, "ggml_q4_0", hadamard=64))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_back_to_floats(keys, dtype):
    records = records_of(keys.astype(dtype))
    values = halyard.convert(records, from_groups="ggml_q8_0")
    parts = records.reshape(TOKENS, HEADS, 2, 34)
    expected = parts[..., 2:].view(np.int8) * parts[..., :2].copy().view(np.float16).astype(np.float32)
    assert values.dtype == np.float32 and np.array_equal(values, expected.reshape(keys.shape))
    rounded = halyard.convert(records, from_groups="ggml_q8_0", dtype="bf16")
    assert np.array_equal(rounded, values.astype(ml_dtypes.bfloat16))
    out = np.empty(keys.shape, dtype)
    assert halyard.convert(records, from_groups="ggml_q8_0", out=out) is out
    assert np.array_equal(out, values.astype(dtype))
    other = halyard.convert(records, from_groups="ggml_q8_0", groups="ggml_q4_0")
    assert np.array_equal(other, records_of(values, "ggml_q4_0"))


def test_moves_are_as_if_rotated_there(angles, keys):
    stored = dict(groups="ggml_q8_0", hadamard=64)
    records = halyard.rotate(Tensor(keys, **stored), angles=angles, positions=1000)
    out = np.empty_like(records)
    assert halyard.rerotate(Tensor(records, out=out, **stored), angles=angles, from_positions=1000,
                            positions=200) is out
    there = halyard.rotate(keys, angles=angles, positions=200)
    values = halyard.convert(halyard.convert(out, from_groups="ggml_q8_0"), hadamard=64)
    assert np.abs(values - there).max() < 3 * np.abs(keys).max() * 3 / 127


@pytest.mark.parametrize("preset, dtype, of_groups", [("vllm_int8", np.float32, ()), ("vllm_fp8", np.float32, ()),
                                                      ("mla_v41", np.uint8, (16,)), ("mla_v4", np.uint8, (7,))])
def test_scales_apart(rng, preset, dtype, of_groups):
    """Made where none are given, in any strides where they are, and by slot or page in caches."""
    width = 512 if of_groups else DIM
    angles = halyard.AngleSource(halyard.Frequencies.from_base(BASE, 64))
    keys = rng.standard_normal((TOKENS, HEADS, width)).astype(np.float32)
    records, scales = halyard.rotate(Tensor(keys, groups=preset), angles=angles)
    assert scales.shape == (TOKENS, HEADS, *of_groups) and scales.dtype == dtype
    wide = np.zeros((HEADS + 1, 2 * TOKENS, *of_groups), dtype)
    given = wide[:HEADS, ::2].swapaxes(0, 1)
    assert np.array_equal(halyard.rotate(Tensor(keys, groups=Groups(preset, given)), angles=angles), records)
    assert np.array_equal(given, scales) and not wide[HEADS:].any() and not wide[:, 1::2].any()
    values = halyard.convert(records, from_groups=Groups(preset, given))
    assert np.abs(values - halyard.rotate(keys, angles=angles)).max() < 0.3
    kept, moved, moved_scales = SLOTS >= 0, records.copy(), scales.copy()
    move = dict(angles=angles, from_positions=FROM, positions=TO)
    halyard.rerotate(Tensor(moved, groups=Groups(preset, moved_scales)), **move)
    # Bytes of a page's records and, as DeepSeek has them, its scales behind these.
    page = np.zeros((PAGES, PAGE * HEADS * (records.shape[-1] + 64)), np.uint8)
    cache = page[:, :PAGE * HEADS * records.shape[-1]].reshape(PAGES, PAGE, HEADS, -1)
    of_pages = page[:, PAGE * HEADS * records.shape[-1]:].view(dtype).reshape(PAGES, PAGE, HEADS, -1)
    of_pages = of_pages[..., :of_groups[0]] if of_groups else of_pages[..., 0]
    for of_cache in np.zeros((PAGES * PAGE, HEADS, *of_groups), dtype), of_pages:
        stored_keys = Tensor(keys, groups=Groups(preset, of_cache), cache=cache)
        halyard.rotate(stored_keys, angles=angles, slots=SLOTS, positions=0)
        for moves in False, True:
            for stored, wanted in (cache, (records, moved)), (of_cache, (scales, moved_scales)):
                flat = stored.reshape(PAGES * PAGE, *wanted[0].shape[1:])
                assert np.array_equal(flat[SLOTS[kept]], wanted[moves][kept])
                assert not np.delete(flat, SLOTS[kept], 0).any()
            if not moves:
                halyard.rerotate(stored_keys, slots=SLOTS, **move)


def test_torch_and_jax(angles, keys):
    torch = pytest.importorskip("torch")
    want = halyard.rotate(Tensor(keys, groups="ggml_q8_0"), angles=angles)
    got = halyard.rotate(Tensor(torch.from_numpy(keys), groups="ggml_q8_0"), angles=angles)
    assert got.dtype == torch.uint8 and np.array_equal(got.numpy(), want)
    records, scales = halyard.convert(torch.from_numpy(keys), groups="vllm_int8")
    assert scales.dtype == torch.float32 and scales.shape == (TOKENS, HEADS)
    jax = pytest.importorskip("jax.numpy")
    got = halyard.rotate(Tensor(jax.asarray(keys), groups="ggml_q8_0"), angles=angles)
    assert np.array_equal(got, want)
    _, of_jax = halyard.convert(jax.asarray(keys), groups="vllm_int8")
    assert np.array_equal(of_jax, scales.numpy())


X, U8 = np.zeros((2, 1, 64), np.float32), np.zeros((2, 1, 68), np.uint8)
BAD = [
    (dict(groups="q8_0"), 'groups of v is "q8_0", which is none of: ggml_q8_0, '),
    (dict(groups="mla_v4"), "groups of v: preset is 10, whose heads have 512 elements, but head_dim is 64"),
    (dict(groups="ggml_q8_0", dtype="int8"), "dtype of v is int8, but groups of v make records"),
    (dict(groups="ggml_q8_0", scale=2.0), "scale is set, but groups have scales of their own"),
    (dict(groups="ggml_q8_0", out=np.zeros((2, 1, 68), np.int8)), "out of v holds int8, but records are bytes, uint8"),
    (dict(groups="ggml_q8_0", out=np.zeros((2, 1, 64), np.uint8)), "shape[3] is 64, but a record of the plan's has 68"),
    (dict(groups="ggml_q8_0", out=np.zeros((2, 1, 136), np.uint8)[..., ::2]), "bytes of a record lie one after"),
    (dict(groups=Groups("ggml_q8_0", X[..., 0])), "groups of v"),
    (dict(groups=Groups("vllm_int8", np.zeros((2, 2), np.float32))), "scales of groups of v is float32 [2, 2], but has"),
    (dict(groups=Groups("vllm_int8", np.zeros((2, 1), np.float16))), "scales of groups of v is float16 [2, 1], but has"),
    (dict(v=np.zeros((2, 1, 512), np.float32), groups=Groups("mla_v41", np.zeros((2, 1, 32), np.uint8)[..., ::2])),
     "scales of groups of v has scales in steps of 2"),
    (dict(groups="vllm_int8", cache=np.zeros((4, 1, 64), np.uint8), slots=0), "groups of v"),
    (dict(groups="ggml_q8_0", cache=np.zeros((4, 1, 64), np.uint8), slots=0), "heads of 68, the bytes of a record"),
    (dict(groups="ggml_q8_0", cache=np.zeros((4, 1, 68), np.int8), slots=0), "cache of v holds int8, but records"),
    (dict(from_groups="ggml_q8_0"), "v is float32 [2, 1, 64], but has to be uint8, the bytes of records"),
    (dict(v=U8), "v holds uint8, but has to hold float32"),
    (dict(v=U8[..., :40].copy(), from_groups="ggml_q8_0"), "no head has one of 40 bytes"),
    (dict(v=U8, from_groups="vllm_int8"), "from_groups of v"),
]


@pytest.mark.parametrize("bad, words", BAD, ids=range(len(BAD)))
def test_bad_groups(bad, words):
    arguments = {"v": X, **bad}
    arrays = [each for each in arguments.values() if isinstance(each, np.ndarray)]
    before = [each.copy() for each in arrays]
    with pytest.raises(halyard.Error, match=re.escape(words)):
        halyard.convert(arguments.pop("v"), **arguments)
    assert all(np.array_equal(*each) for each in zip(arrays, before))


def test_bad_groups_of_other_calls(angles, keys):
    records = records_of(keys)
    for call, raised, words in (
            (lambda: halyard.rotate(Tensor(keys, groups=7), angles=angles), TypeError, "groups of q is a int, not the name"),
            (lambda: halyard.rotate(None, v=keys, angles=angles), TypeError, "q is a NoneType"),
            (lambda: halyard.rerotate(Tensor(keys, groups="ggml_q8_0"), angles=angles, from_positions=0), halyard.Error,
             "keys is float32"),
            (lambda: halyard.rerotate(records, angles=angles, from_positions=0), halyard.Error, "keys holds uint8"),
            (lambda: halyard.rerotate(Tensor(records, groups="ggml_q8_0", dtype="e4m3"), angles=angles, from_positions=0),
             halyard.Error, "dtype of keys is e4m3, but groups of keys make records"),
            (lambda: halyard.rerotate(Tensor(records, groups="ggml_q4_0"), angles=angles, from_positions=0), halyard.Error,
             "no head has one of 68 bytes"),
            (lambda: halyard.rerotate(Tensor(np.full_like(records, 255), groups="ggml_q8_0"), angles=angles, from_positions=0),
             halyard.Error, "must be finite")):
        with pytest.raises(raised, match=re.escape(words)):
            call()
    assert np.array_equal(records, records_of(keys))

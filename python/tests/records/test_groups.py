"""Records of quantisation groups in arrays: strides, scales outside the records, re-rotation, bad input.
test_kv_path.py tests records in caches, the C++ tests their bytes."""

import re

import ml_dtypes
import numpy as np
import pytest

import halyard
from caches import FROM, SLOTS, TO
from halyard import Groups, Tensor

DIM, HEADS, TOKENS = 64, 2, 5
MOVE = dict(from_positions=FROM, positions=TO)


def test_rotations_go_to_records(angles, keys):
    """rotate into records equals rotate into floats and then convert; each tensor of a call may have another format."""
    rotated = halyard.rotate(keys, angles=angles, positions=7)
    records, short, hadamard = halyard.rotate(
        Tensor(keys, groups="ggml_q8_0"), Tensor(keys, dtype="f16"), Tensor(keys, groups="ggml_q4_0", hadamard=64),
        angles=angles, positions=7)
    assert records.shape == (TOKENS, HEADS, 68) and records.dtype == np.uint8
    assert np.array_equal(records, halyard.convert(rotated, groups="ggml_q8_0"))
    assert np.array_equal(short, rotated.astype(np.float16))
    assert np.array_equal(hadamard, halyard.convert(halyard.convert(keys, hadamard=64), groups="ggml_q4_0"))
    wide = np.zeros((HEADS, TOKENS, 80), np.uint8)
    out = wide.swapaxes(0, 1)[..., 7:75]
    assert halyard.rotate(Tensor(keys, groups="ggml_q8_0", out=out), angles=angles, positions=7) is out
    assert np.array_equal(out, records) and not wide[..., :7].any() and not wide[..., 75:].any()
    batch = Tensor(np.stack([keys, keys]).swapaxes(1, 2), groups="ggml_q8_0")
    first = halyard.rotate(batch, angles=angles, positions=7, layout="bhsd")
    assert np.array_equal(first.swapaxes(1, 2), np.stack([records, records]))


def test_back_to_floats(keys):
    records = halyard.convert(keys.astype(np.float16), groups="ggml_q8_0")
    values = halyard.convert(records, from_groups="ggml_q8_0")
    assert values.dtype == np.float32 and np.abs(values - keys).max() < np.abs(keys).max() / 250
    for dtype in ml_dtypes.bfloat16, np.float16:
        out = np.empty(keys.shape, dtype)
        assert halyard.convert(records, from_groups="ggml_q8_0", out=out) is out
        for made in out, halyard.convert(records, from_groups="ggml_q8_0", dtype=dtype):
            assert np.array_equal(made, values.astype(dtype))
    assert np.array_equal(halyard.convert(records, from_groups="ggml_q8_0", groups="ggml_q4_0"),
                          halyard.convert(values, groups="ggml_q4_0"))


@pytest.mark.parametrize("preset, dtype, of_groups", [("vllm_int8", np.float32, ()), ("vllm_fp8", np.float32, ()),
                                                      ("mla_v41", np.uint8, (16,)), ("mla_v4", np.uint8, (7,))])
def test_scales_apart(rng, angles, preset, dtype, of_groups):
    """Scales outside the records are made if not given, and written with any strides, in caches by slot or page."""
    keys = rng.standard_normal((TOKENS, HEADS, 512 if of_groups else DIM)).astype(np.float32)
    records, scales = halyard.rotate(Tensor(keys, groups=preset), angles=angles)
    width = records.shape[-1]
    assert scales.shape == (TOKENS, HEADS, *of_groups) and scales.dtype == dtype
    wide = np.zeros((HEADS + 1, 2 * TOKENS, *of_groups), dtype)
    given = wide[:HEADS, ::2].swapaxes(0, 1)
    assert np.array_equal(halyard.rotate(Tensor(keys, groups=Groups(preset, given)), angles=angles), records)
    assert np.array_equal(given, scales) and not wide[HEADS:].any() and not wide[:, 1::2].any()
    values = halyard.convert(records, from_groups=Groups(preset, given))
    assert np.abs(values - halyard.rotate(keys, angles=angles)).max() < 0.3
    # Pages as in DeepSeek: the bytes of all records of a page, and then their scales.
    page = np.zeros((4, 8 * HEADS * (width + 64)), np.uint8)
    cache = page[:, :8 * HEADS * width].reshape(4, 8, HEADS, width)
    of_pages = page[:, 8 * HEADS * width:].view(dtype).reshape(4, 8, HEADS, -1)
    of_pages = of_pages[..., :of_groups[0]] if of_groups else of_pages[..., 0]
    for of_cache in np.zeros((32, HEADS, *of_groups), dtype), of_pages:
        stored = Tensor(keys, groups=Groups(preset, of_cache), cache=cache)
        halyard.rotate(stored, angles=angles, slots=SLOTS, positions=0)
        moved = records.copy(), scales.copy()
        for _ in range(2):
            for found, wanted in zip((cache, of_cache), moved):
                flat = found.reshape(32, *wanted.shape[1:])
                assert np.array_equal(flat[SLOTS[SLOTS >= 0]], wanted[SLOTS >= 0])
                assert not np.delete(flat, SLOTS[SLOTS >= 0], 0).any()
            halyard.rerotate(Tensor(moved[0], groups=Groups(preset, moved[1])), angles=angles, **MOVE)
            halyard.rerotate(stored, angles=angles, slots=SLOTS, **MOVE)


X, U8 = np.zeros((2, 1, 64), np.float32), np.zeros((2, 1, 68), np.uint8)
BAD = [
    (dict(groups="q8_0"), 'groups of v is "q8_0", which is none of: ggml_q8_0, '),
    (dict(groups="mla_v4"), "groups of v: preset is 10, whose heads have 512 elements, but head_dim is 64"),
    (dict(groups="ggml_q8_0", dtype="int8"), "dtype of v is int8, but groups of v make records"),
    (dict(groups="ggml_q8_0", out=np.zeros((2, 1, 68), np.int8)), "out of v holds int8, but records are bytes, uint8"),
    (dict(groups=Groups("ggml_q8_0", X[..., 0])), "groups of v"),
    (dict(groups=Groups("vllm_int8", np.zeros((2, 2), np.float32))), "scales of groups of v is float32 [2, 2], but"),
    (dict(groups=Groups("vllm_int8", np.zeros((2, 1), np.float16))), "scales of groups of v is float16 [2, 1], but"),
    (dict(v=np.zeros((2, 1, 512), np.float32), groups=Groups("mla_v41", np.zeros((2, 1, 32), np.uint8)[..., ::2])),
     "scales of groups of v has scales in steps of 2"),
    (dict(groups="vllm_int8", cache=np.zeros((4, 1, 64), np.uint8), slots=0), "groups of v"),
    (dict(groups="ggml_q8_0", cache=np.zeros((4, 1, 64), np.uint8), slots=0), "heads of 68, the bytes of a record"),
    (dict(groups="ggml_q8_0", cache=np.zeros((4, 1, 68), np.int8), slots=0), "cache of v holds int8, but records"),
    (dict(from_groups="ggml_q8_0"), "v is float32 [2, 1, 64], but has to be uint8, the bytes of records"),
    (dict(v=U8), "v holds uint8, but has to hold float32"),
    (dict(v=U8[..., :40].copy(), from_groups="ggml_q8_0"), "no head has one of 40 bytes"),
    (dict(move=X, groups="ggml_q8_0"), "keys is float32"),
    (dict(move=U8), "keys holds uint8"),
]


@pytest.mark.parametrize("bad, words", BAD, ids=range(len(BAD)))
def test_bad_groups(angles, bad, words):
    """convert, or rerotate if `move` is given, raises Error and writes nothing."""
    arguments = {"v": X, **bad}
    arrays = [each for each in arguments.values() if isinstance(each, np.ndarray)]
    before = [each.copy() for each in arrays]
    v, keys = arguments.pop("v"), arguments.pop("move", None)
    with pytest.raises(halyard.Error, match=re.escape(words)):
        if keys is None:
            halyard.convert(v, **arguments)
        else:
            halyard.rerotate(Tensor(keys, **arguments), angles=angles, from_positions=0)
    assert all(map(np.array_equal, arrays, before))

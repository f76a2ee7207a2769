"""What test_cases.py does not draw of quantisation groups: default dtypes, and bad input. The C++ tests check bytes."""

import re

import ml_dtypes
import numpy as np
import pytest

import halyard
from halyard import Groups, Tensor


def test_default_dtype(keys):
    records = halyard.convert(keys, groups="ggml_q8_0")
    values = halyard.convert(records, from_groups="ggml_q8_0")
    assert values.dtype == np.float32 and np.abs(values - keys).max() < np.abs(keys).max() / 250
    short = halyard.convert(records, from_groups="ggml_q8_0", dtype=ml_dtypes.bfloat16)
    assert np.array_equal(short, values.astype(ml_dtypes.bfloat16))


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

"""Bad input: an exception with a sentence, and nothing is written."""

import dataclasses

import numpy as np
import pytest

import exact
import halyard

DIM = 64


@pytest.fixture(scope="module")
def angles():
    return halyard.AngleSource(halyard.Frequencies.from_base(1e4, DIM), first=0, n_positions=100)


def zeros(*shape, dtype=np.float32):
    return np.zeros(shape, dtype)


def read_only():
    array = zeros(3, 2, DIM)
    array.flags.writeable = False
    return array


SHARED = zeros(4, 2, DIM)
X = np.ones((3, 2, DIM), np.float32)
TILES, TILED = zeros(*exact.cache_shape("tiled", 2, DIM)), halyard.CacheLayout(**exact.tiled(2, DIM))
# What is said of q, which is X if nothing else is, of k and of the call, and a part of the sentence that is raised. q goes
# to a poisoned array if they say no more.
BAD = {
    "float64": (dict(q=zeros(3, 2, DIM, dtype=np.float64)), "q holds float64"),
    "8 bits as an input": (dict(q=zeros(3, 2, DIM, dtype=np.int8)), "q holds int8"),
    "objects": (dict(q=np.full((3, 2, DIM), None)), "q cannot be read"),
    "big-endian": (dict(q=zeros(3, 2, DIM, dtype=">f4")), "native byte order"),
    "nothing": (dict(q=None), "q is a NoneType"),
    "0-d": (dict(q=zeros()), r"q has the shape \[\]"),
    "2-D": (dict(q=zeros(3, DIM)), r"\[tokens, heads, head_dim\]"),
    "7-D": (dict(q=zeros(1, 1, 1, 1, 3, 2, DIM)), "7 dimensions"),
    "a narrow head": (dict(q=zeros(3, 2, DIM - 2), out=zeros(3, 2, DIM - 2)), "rotary_offset"),
    "a read-only output": (dict(out=read_only()), "read-only"),
    "an output of another shape": (dict(out=zeros(3, 3, DIM)), "shape"),
    "an output of more dimensions": (dict(out=zeros(1, 3, 2, DIM)), "out of q has the shape"),
    "an output of uint8 alone": (dict(out=zeros(3, 2, DIM, dtype=np.uint8)), "uint8"),
    "an unknown dtype": (dict(dtype="f64"), "f64"),
    "NumPy's dtype of another kind": (dict(dtype=np.float64, out=None), "^dtype is float64"),
    "an overlapping output": (dict(q=SHARED[:3], out=SHARED[1:]), "out of q.* shares elements with q"),
    "an output whose elements meet": (
        dict(out=np.lib.stride_tricks.as_strided(zeros(3, DIM), (3, 2, DIM), (256, 0, 4))), "stride"),
    "k of other tokens": (dict(k=zeros(4, 2, DIM)), r"k.shape\[1\] is 4"),
    "float positions": (dict(positions=zeros(3)), "positions holds float32"),
    "0-d positions": (dict(positions=np.array(3)), "positions has the shape"),
    "too many positions": (dict(positions=zeros(4, dtype=np.int64)), "positions"),
    "no positions of one token": (dict(q=zeros(1, 2, DIM)), "positions is left out, but q has one token"),
    "no positions of a batch": (dict(q=zeros(1, 3, 2, DIM)), "positions is left out, but q has a batch"),
    "no positions for a cache": (dict(cache=zeros(9, 2, DIM), slots=0, positions=None),
                                 "positions is left out, but tokens go into a cache"),
    "heads before tokens": (dict(q=zeros(2, 5, DIM), out=zeros(2, 5, DIM), positions=np.arange(5)),
                            'heads come before tokens, say layout="bhsd"'),
    "k's heads before tokens": (dict(q=zeros(8, 5, DIM), k=zeros(2, 5, DIM), out=None, positions=0),
                                'heads come before tokens, say layout="bhsd"'),
    "a position that is not covered": (dict(positions=np.array([0, 100, 1])), "100"),
    "a start beyond int64": (dict(positions=2**70), "positions"),
    "positions as a list": (dict(positions=[0, 1, 2]), "positions is a list"),
    "an unknown layout": (dict(layout="sbhd"), "layout"),
    "an unknown pairing": (dict(pairing="neox"), "half, interleaved"),
    "an unknown target": (dict(target="x86_mmx"), "x86_mmx"),
    "no threads": (dict(threads=0), "0"),
    "slots without a cache": (dict(slots=np.arange(3)), "slots"),
    "a cache without slots": (dict(cache=zeros(9, 2, DIM)), "^slots is None"),
    "a slot that is not there": (dict(cache=zeros(9, 2, DIM), slots=np.array([0, 9, 1])), "9"),
    "a cache of other heads": (dict(cache=zeros(9, 3, DIM), slots=np.arange(3)), "2 heads of 64"),
    "a cache of 2-D": (dict(cache=zeros(9, 2 * DIM), slots=np.arange(3)), "cache of q has the shape"),
    "an unknown cache layout": (dict(cache=halyard.Cache(zeros(9, 2, DIM), "dnh"), slots=np.arange(3)), "cache_layout"),
    "a read-only cache": (dict(cache=read_only(), slots=np.arange(3)), "read-only"),
    "the input as the cache": (dict(q=SHARED[:3], cache=SHARED, slots=np.arange(3)), "shares|overlap"),
    "a cache that repeats itself": (dict(cache=np.broadcast_to(zeros(9, 2, 1), (9, 2, DIM)), slots=np.arange(3)),
                                    "cache of q"),
    "too short a weight": (dict(norm=halyard.Norm(zeros(DIM - 1))), "weight"),
    "a strided weight": (dict(norm=halyard.Norm(zeros(2 * DIM)[::2])), "weight of q"),
    "a bias without a weight": (dict(norm=halyard.Norm(kind="layer", bias=zeros(DIM))), "bias of q"),
    "a bias of another dtype": (dict(norm=halyard.Norm(zeros(DIM), kind="layer", bias=zeros(DIM, dtype=np.float16))),
                                "bias of q"),
    "a weight for a norm": (dict(norm=zeros(DIM)), r"norm is a ndarray, not a halyard.Norm"),
    "a norm of another kind": (dict(norm=halyard.Norm(kind="group")), "kind of a norm"),
    "an in-place output of another dtype": (dict(out=X, dtype="bf16"), "dtype"),
    "scales by position of float64": (dict(position_scales=np.ones(3)), "position_scales of q"),
    "a number as scales by position": (dict(position_scales=2.0), "position_scales of q is a float"),
    **{f"scales by position {shape}": (dict(position_scales=np.ones(shape, np.float32)),
                                       r"position_scales of q .*float32 \[tokens\], or of the shape of q")
       for shape in ((), (4,), (3, 1), (2, 3), (1, 3, 2))},
    **{f"hadamard {n}": (dict(hadamard=n), f"hadamard of q is {n}, but has to be 0 or a power of two that divides head")
       for n in (1, -2, 3, 2 * DIM, 2**40)},
    **{f"a scale: {i}": (dict(scale=bad, dtype="e4m3", out=None), "scale") for i, bad in enumerate((
        0.0, -1.0, np.ones(5, np.float32), np.ones(DIM, np.float32), np.ones(2), np.ones((2, DIM), np.float32)))},
    "scales_out of another shape": (dict(scale=halyard.DynamicScale(zeros(2, 2)), dtype="int8", out=None),
                                    "scales_out of q"),
    **{f"tiles: {bad}": (dict(cache=halyard.Cache(TILES, dataclasses.replace(TILED, **bad)), slots=np.arange(3)),
                         "cache_layout")
       for bad in (dict(stride_block=TILED.stride_block + 1), dict(stride_head=-1), dict(n_slots=0),
                   dict(n_slots=TILED.n_slots + TILED.block_size), dict(stride_block=2**60))},
}
NO_ARRAYS = {  # which raise TypeError
    "nothing", "positions as a list", "a weight for a norm", "a number as scales by position"}


OF_TENSORS = {field.name for field in dataclasses.fields(halyard.Tensor)}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(angles, name):
    arguments, sentence = BAD[name]
    out = np.full(X.shape, 7, np.float32)
    given = {"q": X, **arguments}
    if "cache" in given:
        given.setdefault("positions", 0)
    else:
        given.setdefault("out", np.full(given["q"].shape, 7, np.float32) if "no positions" in name else out)
    arrays = [each for value in given.values() for each in (value, getattr(value, "array", None))
              if isinstance(each, np.ndarray)]
    before = [array.copy() for array in arrays]
    with pytest.raises(TypeError if name in NO_ARRAYS else halyard.Error, match=sentence):
        q = given.pop("q")
        stages = {field: given.pop(field) for field in OF_TENSORS & given.keys()}
        halyard.rotate(q if q is None else halyard.Tensor(q, **stages), angles=angles, **given)
    assert all(np.array_equal(array, old) for array, old in zip(arrays, before))
    assert (out == 7).all()


def test_wrong_kinds_of_arguments(angles):
    for arguments in (dict(angles=None), dict(angles=angles, threads="2"), dict(angles=angles, inverse="yes"),
                      dict(angles=angles, pairing=3), dict(angles=angles, layout=3),
                      dict(angles=angles, bad_position=None), dict(angles=angles, duplicate_slots=None)):
        with pytest.raises((TypeError, halyard.Error)):
            halyard.rotate(X.copy(), **arguments)
    for stages in (dict(norm=1.0), dict(scale="1", dtype="e4m3"),
                   dict(cache=zeros(9, 2, DIM), out=X.copy()), dict(rotary_offset=0.5), dict(groups=3), dict(scale=1e-60)):
        with pytest.raises((TypeError, halyard.Error)):
            halyard.rotate(halyard.Tensor(X.copy(), **stages), angles=angles, positions=0, slots=0)
    with pytest.raises(TypeError, match="layout is a int"):
        halyard.Cache(zeros(9, 2, DIM), 3)


def test_errors_have_a_status(angles):
    with pytest.raises(ValueError) as caught:
        halyard.rotate(X, angles=angles, positions=100)
    assert isinstance(caught.value, halyard.Error) and caught.value.status == "HALYARD_ERROR_POSITION"


def test_an_exporter_that_raises(angles):
    class Broken:
        def __dlpack__(self, **_):
            raise RuntimeError("broken exporter")

    for attempt in range(3):
        with pytest.raises(halyard.Error, match="broken exporter"):
            halyard.rotate(halyard.Tensor(X, out=Broken()), angles=angles)

    class NoCapsule:
        def __dlpack__(self, **_):
            return 3

    with pytest.raises(halyard.Error, match="no DLPack capsule"):
        halyard.rotate(halyard.Tensor(NoCapsule(), out=X.copy()), angles=angles)

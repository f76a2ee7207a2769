"""Bad input: an exception with a sentence, and nothing is written."""

import numpy as np
import pytest

import halyard

DIM = 64


@pytest.fixture(scope="module")
def angles():
    return halyard.AngleSource(halyard.Frequencies.from_base(1e4, DIM), first=0, last=99)


def zeros(*shape, dtype=np.float32):
    return np.zeros(shape, dtype)


def read_only():
    array = zeros(3, 2, DIM)
    array.flags.writeable = False
    return array


SHARED = zeros(4, 2, DIM)
X = np.ones((3, 2, DIM), np.float32)
# Arguments beside angles; what is raised; a part of its sentence. X goes to a poisoned array unless they say otherwise.
BAD = {
    "float64": (dict(q=zeros(3, 2, DIM, dtype=np.float64)), halyard.Error, "q holds float64"),
    "integers": (dict(q=zeros(3, 2, DIM, dtype=np.int32)), halyard.Error, "q holds int32"),
    "complex": (dict(q=zeros(3, 2, DIM, dtype=np.complex64)), halyard.Error, "q holds complex64"),
    "8 bits as an input": (dict(q=zeros(3, 2, DIM, dtype=np.int8)), halyard.Error, "q holds int8"),
    "objects": (dict(q=np.full((3, 2, DIM), None)), halyard.Error, "q cannot be read"),
    "big-endian": (dict(q=zeros(3, 2, DIM, dtype=">f4")), halyard.Error, "native byte order"),
    "a list": (dict(q=[[[1.0] * DIM]]), TypeError, "q is a list"),
    "nothing": (dict(q=None), TypeError, "q is a NoneType"),
    "0-d": (dict(q=zeros()), halyard.Error, r"q has the shape \[\]"),
    "2-D": (dict(q=zeros(3, DIM)), halyard.Error, r"\[tokens, heads, head_dim\]"),
    "5-D": (dict(q=zeros(1, 1, 3, 2, DIM)), halyard.Error, "q has the shape"),
    "7-D": (dict(q=zeros(1, 1, 1, 1, 3, 2, DIM)), halyard.Error, "7 dimensions"),
    "a narrow head": (dict(q=zeros(3, 2, DIM - 2), out=zeros(3, 2, DIM - 2)), halyard.Error, "rotary_offset"),
    "an offset too far": (dict(rotary_offset=1), halyard.Error, "rotary_offset"),
    "a negative offset": (dict(rotary_offset=-1), halyard.Error, "rotary_offset"),
    "a read-only output": (dict(out=read_only()), halyard.Error, "read-only"),
    "an output of another shape": (dict(out=zeros(3, 3, DIM)), halyard.Error, "shape"),
    "an output of more dimensions": (dict(out=zeros(1, 3, 2, DIM)), halyard.Error, "out of q has the shape"),
    "an output of float64": (dict(out=zeros(3, 2, DIM, dtype=np.float64)), halyard.Error, "float64"),
    "an output of uint8 alone": (dict(out=zeros(3, 2, DIM, dtype=np.uint8)), halyard.Error, "uint8"),
    "another dtype than the output's": (dict(dtype="f16"), halyard.Error, "dtype of q is f16"),
    "an unknown dtype": (dict(dtype="f64"), halyard.Error, "f64"),
    "NumPy's dtype of another kind": (dict(dtype=np.float64, out=None), halyard.Error, "^dtype is float64"),
    "an overlapping output": (dict(q=SHARED[:3], out=SHARED[1:]), halyard.Error, "y"),
    "an output whose elements meet": (
        dict(out=np.lib.stride_tricks.as_strided(zeros(3, DIM), (3, 2, DIM), (256, 0, 4))), halyard.Error, "stride"),
    "k that overlaps q": (dict(q=SHARED[:3], k=SHARED[1:], out=(SHARED[:3], SHARED[1:])), halyard.Error, "y"),
    "one output for two": (dict(k=X), halyard.Error, "out is no tuple"),
    "four outputs": (dict(out=(X, X, X, X)), halyard.Error, "4 members"),
    "k of other tokens": (dict(k=zeros(4, 2, DIM), out=(zeros(3, 2, DIM), zeros(4, 2, DIM))), halyard.Error,
                          r"x\[1\].shape\[1\] is 4"),
    "float positions": (dict(positions=zeros(3)), halyard.Error, "positions holds float32"),
    "int16 positions": (dict(positions=zeros(3, dtype=np.int16)), halyard.Error, "positions holds int16"),
    "0-d positions": (dict(positions=np.array(3)), halyard.Error, "positions has the shape"),
    "too many positions": (dict(positions=zeros(4, dtype=np.int64)), halyard.Error, "positions"),
    "no positions of one token": (dict(q=zeros(1, 2, DIM)), halyard.Error,
                                  "positions is left out, but q has one token"),
    "no positions of a batch": (dict(q=zeros(1, 3, 2, DIM)), halyard.Error, "positions is left out, but q has a batch"),
    "no positions for a cache": (dict(cache=zeros(9, 2, DIM), slots=0, positions=None), halyard.Error,
                                 "positions is left out, but tokens go into a cache"),
    "heads before tokens": (dict(q=zeros(2, 5, DIM), out=zeros(2, 5, DIM), positions=np.arange(5)), halyard.Error,
                            'heads come before tokens, say layout="bhsd"'),
    "k's heads before tokens": (dict(q=zeros(8, 5, DIM), k=zeros(2, 5, DIM), out=None, positions=0), halyard.Error,
                                'heads come before tokens, say layout="bhsd"'),
    "a position that is not covered": (dict(positions=np.array([0, 100, 1])), halyard.Error, "100"),
    "a start that is not covered": (dict(positions=98), halyard.Error, "100"),
    "a start beyond int64": (dict(positions=2**70), halyard.Error, "positions"),
    "positions as a list": (dict(positions=[0, 1, 2]), TypeError, "positions is a list"),
    "an unknown layout": (dict(layout="sbhd"), halyard.Error, "layout"),
    "an unknown pairing": (dict(pairing="neox"), halyard.Error, "half, interleaved"),
    "an unknown policy": (dict(bad_position="ignore"), halyard.Error, "bad_position"),
    "an unknown target": (dict(target="x86_mmx"), halyard.Error, "x86_mmx"),
    "no threads": (dict(threads=0), halyard.Error, "0"),
    "too many threads": (dict(threads=1025), halyard.Error, "1025"),
    "slots without a cache": (dict(slots=np.arange(3)), halyard.Error, "slots"),
    "a cache without slots": (dict(cache=zeros(9, 2, DIM)), halyard.Error, "^slots is None"),
    "a slot that is not there": (dict(cache=zeros(9, 2, DIM), slots=np.array([0, 9, 1])), halyard.Error, "9"),
    "a cache of other heads": (dict(cache=zeros(9, 3, DIM), slots=np.arange(3)), halyard.Error, "2 heads of 64"),
    "a cache of longer heads": (dict(cache=zeros(9, 2, DIM + 1), slots=np.arange(3)), halyard.Error, "2 heads of 64"),
    "a cache of 2-D": (dict(cache=zeros(9, 2 * DIM), slots=np.arange(3)), halyard.Error, "cache of q has the shape"),
    "an unknown cache layout": (dict(cache=zeros(9, 2, DIM), cache_layout="dnh", slots=np.arange(3)), halyard.Error,
                                "cache_layout"),
    "a read-only cache": (dict(cache=read_only(), slots=np.arange(3)), halyard.Error, "read-only"),
    "the input as the cache": (dict(q=SHARED[:3], cache=SHARED, slots=np.arange(3)), halyard.Error, "shares|overlap"),
    "a cache that repeats itself": (dict(cache=np.broadcast_to(zeros(9, 2, 1), (9, 2, DIM)), slots=np.arange(3)),
                                    halyard.Error, "cache of q"),
    "too short a weight": (dict(norm=halyard.Norm(zeros(DIM - 1))), halyard.Error, "weight"),
    "a weight of float64": (dict(norm=halyard.Norm(zeros(DIM, dtype=np.float64))), halyard.Error, "weight of q"),
    "a strided weight": (dict(norm=halyard.Norm(zeros(2 * DIM)[::2])), halyard.Error, "weight of q"),
    "a negative eps": (dict(norm=halyard.Norm(eps=-1.0)), halyard.Error, "eps"),
    "too few weights of heads": (dict(norm=halyard.Norm(zeros(X.shape[-2], DIM - 1))), halyard.Error, "weight"),
    "a bias of an RMSNorm": (dict(norm=halyard.Norm(zeros(DIM), bias=zeros(DIM))), halyard.Error, "has_bias"),
    "a bias without a weight": (dict(norm=halyard.Norm(kind="layer", bias=zeros(DIM))), halyard.Error, "bias of q"),
    "too short a bias": (dict(norm=halyard.Norm(zeros(DIM), kind="layer", bias=zeros(DIM - 1))), halyard.Error,
                         "bias of q"),
    "a bias of another dtype": (dict(norm=halyard.Norm(zeros(DIM), kind="layer", bias=zeros(DIM, dtype=np.float16))),
                                halyard.Error, "bias of q"),
    "a weight for a norm": (dict(norm=zeros(DIM)), TypeError, r"norm is a ndarray, not a halyard.Norm"),
    "rounding after no weight": (dict(norm=halyard.Norm(rounding="both")), halyard.Error, "no weight"),
    "a norm of another kind": (dict(norm=halyard.Norm(kind="group")), halyard.Error, "kind of a norm"),
    "a norm of nothing known": (dict(norm=halyard.Norm(width="batch")), halyard.Error, "width"),
    "an in-place output of another dtype": (dict(out=X, dtype="bf16"), halyard.Error, "dtype"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(angles, name):
    arguments, raised, sentence = BAD[name]
    out = np.full(X.shape, 7, np.float32)
    given = {"q": X, **arguments}
    if "cache" in given:
        given.setdefault("positions", 0)
    else:
        given.setdefault("out", np.full(given["q"].shape, 7, np.float32) if "no positions" in name else out)
    arrays = [value for value in [*given.values(), *(given["out"] if isinstance(given.get("out"), tuple) else ())]
              if isinstance(value, np.ndarray)]
    before = [array.copy() for array in arrays]
    with pytest.raises(raised, match=sentence):
        halyard.rotate(given.pop("q"), angles=angles, **given)
    assert all(np.array_equal(array, old) for array, old in zip(arrays, before))
    assert (out == 7).all()


def test_wrong_kinds_of_arguments(angles):
    for arguments in (dict(angles=None), dict(angles=angles, threads="2"), dict(angles=angles, rotary_offset=0.5),
                      dict(angles=angles, inverse="yes"), dict(angles=angles, pairing=3), dict(angles=angles, norm=1.0),
                      dict(angles=angles, layout=3), dict(angles=angles, bad_position=None),
                      dict(angles=angles, cache=zeros(9, 2, DIM), slots=0, duplicate_slots=None),
                      dict(angles=angles, scale="1"), dict(angles=angles, cache_layout=3, cache=zeros(9, 2, DIM))):
        with pytest.raises((TypeError, AttributeError, halyard.Error, RuntimeError)):
            halyard.rotate(X.copy(), **arguments)


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
            halyard.rotate(X, angles=angles, out=Broken())

    class NoCapsule:
        def __dlpack__(self, **_):
            return 3

    with pytest.raises(halyard.Error, match="no DLPack capsule"):
        halyard.rotate(NoCapsule(), angles=angles, out=X.copy())

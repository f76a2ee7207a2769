"""Bad input raises an exception with a message, and nothing is written. The C++ tests cover what the library itself
refuses; here are a few of these errors, whose messages must name Python's arguments."""

import dataclasses

import numpy as np
import pytest

import caches
import halyard

DIM = 64
SHARED, X = np.zeros((4, 2, DIM), np.float32), np.ones((3, 2, DIM), np.float32)
FIXED, SLOTS = np.broadcast_to(X, X.shape), np.arange(3)  # the first is read-only
TILES, TILED = np.zeros(caches.shape_of("tiled", 2, DIM), np.float32), caches.tiled(2, DIM)


def zeros(*shape, dtype=np.float32):
    return np.zeros(shape, dtype)


# (arguments of rotate and stages of q, a part of the error message). Defaults: q is X; without a cache, out is an array
# filled with 7, which must stay so.
BAD = [
    (dict(q=zeros(3, 2, DIM, dtype=np.float64)), "q holds float64"),
    (dict(q=np.full((3, 2, DIM), None)), "q cannot be read"),
    (dict(q=zeros(3, 2, DIM, dtype=">f4")), "native byte order"),
    (dict(q=zeros()), r"q has the shape \[\]"),
    (dict(q=zeros(3, DIM)), r"\[tokens, heads, head_dim\]"),
    (dict(q=zeros(1, 1, 1, 1, 3, 2, DIM)), "7 dimensions"),
    (dict(q=zeros(3, 2, DIM - 2)), "q's rotary_offset"),
    (dict(out=FIXED), "out of q is read-only"),
    (dict(out=zeros(3, 3, DIM)), r"out of q.shape\[2\] is 3"),
    (dict(out=zeros(1, 3, 2, DIM)), "out of q has the shape"),
    (dict(out=zeros(3, 2, DIM, dtype=np.uint8)), "uint8"),
    (dict(out=X, dtype="bf16"), "dtype of q is bf16, but out of q holds float32"),
    (dict(dtype="f64"), "f64"),
    (dict(dtype=np.float64, out=None), "^dtype is float64"),
    (dict(q=SHARED[:3], out=SHARED[1:]), "out of q.* shares elements with q"),
    (dict(k=zeros(4, 2, DIM)), r"k.shape\[1\] is 4"),
    (dict(positions=zeros(3)), "positions holds float32"),
    (dict(positions=np.array(3)), "positions has the shape"),
    (dict(q=zeros(1, 2, DIM)), "positions is left out, but q has one token"),
    (dict(q=zeros(1, 3, 2, DIM)), "positions is left out, but q has a batch"),
    (dict(cache=zeros(9, 2, DIM), slots=0, positions=None), "positions is left out, but tokens go into a cache"),
    (dict(q=zeros(2, 5, DIM), positions=np.arange(5)), 'heads come before tokens, say layout="bhsd"'),
    (dict(q=zeros(8, 5, DIM), k=zeros(2, 5, DIM), positions=0), 'heads come before tokens, say layout="bhsd"'),
    (dict(positions=2**70), "positions is a start"),
    (dict(layout="sbhd"), "layout"),
    (dict(pairing="neox"), "half, interleaved"),
    (dict(bad_position="wrap"), "bad_position"),
    (dict(cache=zeros(9, 2, DIM), slots=0, duplicate_slots="first"), "duplicate_slots"),
    (dict(target="x86_mmx"), "x86_mmx"),
    (dict(threads=-1), "-1"),
    (dict(slots=SLOTS), "slots"),
    (dict(cache=zeros(9, 2, DIM), slots=2**70), "slots is a start"),
    (dict(cache=zeros(9, 2, DIM)), "^slots is None"),
    (dict(cache=zeros(9, 3, DIM), slots=SLOTS), "cache of q has the shape .* 2 heads of 64"),
    (dict(cache=zeros(9, 2 * DIM), slots=SLOTS), "cache of q has the shape"),
    (dict(cache=halyard.Cache(zeros(9, 2, DIM), "dnh"), slots=SLOTS), "cache_layout"),
    (dict(cache=FIXED, slots=SLOTS), "cache of q is read-only"),
    (dict(cache=np.lib.stride_tricks.as_strided(zeros(9, 2), (9, 2, DIM), (8, 4, 0)), slots=SLOTS), "repeats one"),
    (dict(norm=halyard.Norm(zeros(2 * DIM)[::2])), "weight of q"),
    (dict(norm=halyard.Norm(np.ones(DIM, int))), "weight of q holds int64"),
    (dict(norm=halyard.Norm(kind="layer", bias=zeros(DIM))), "bias of q"),
    (dict(norm=halyard.Norm(zeros(DIM), kind="layer", bias=zeros(DIM, dtype=np.float16))), "bias of q"),
    *((dict(norm=halyard.Norm(**{name: "group"})), f"{name} of a norm")
      for name in ("kind", "width", "order", "rounding")),
    (dict(position_scales=np.ones(3)), "position_scales of q"),
    *((dict(position_scales=zeros(*shape)), r"position_scales of q .*float32 \[tokens\], or of the shape of q")
      for shape in ((), (4,), (3, 1), (2, 3), (1, 3, 2))),
    *((dict(hadamard=n), f"hadamard of q is {n}, but has to be 0 or a power of two that divides head")
      for n in (1, -2, 3, 2 * DIM, 2**40)),
    *((dict(scale=bad, dtype="e4m3", out=None), "scale of q is")
      for bad in (zeros(5), zeros(DIM), np.ones(2), zeros(2, DIM))),
    (dict(scale=0.0, dtype="e4m3", out=None), "q's scale"),
    (dict(scale=1e-60), "scale of q"),
    (dict(scale=halyard.DynamicScale(zeros(2, 2)), dtype="int8", out=None), "scales_out of q"),
    *((dict(cache=halyard.Cache(TILES, dataclasses.replace(TILED, **bad)), slots=SLOTS), "cache_layout")
      for bad in (dict(stride_block=TILED.stride_block + 1), dict(stride_head=-1), dict(n_slots=0),
                  dict(n_slots=TILED.n_slots + TILED.block_size), dict(stride_block=2**60))),
    (dict(cache=SHARED, out=X), "out and cache are given"),
]
NO_ARRAYS = [  # likewise, but these raise TypeError
    (dict(q=None), "q is a NoneType"), (dict(angles=None), "angles"),
    (dict(positions=[0, 1]), "positions is a list"), (dict(positions=True), "positions is a bool"),
    (dict(norm=zeros(DIM)), "norm is a ndarray, not a halyard.Norm"), (dict(norm=1.0), "norm is a float"),
    (dict(position_scales=2.0), "position_scales of q is a float"), (dict(scale="1"), "scale of q is a str"),
    (dict(groups=3), "groups"),
    *((given, None) for given in (dict(threads="2"), dict(inverse="yes"), dict(pairing=3), dict(layout=3),
                                dict(bad_position=None), dict(duplicate_slots=None), dict(rotary_offset=0.5))),
]
OF_TENSORS = {field.name for field in dataclasses.fields(halyard.Tensor)}


@pytest.mark.parametrize("raised, given, message", [*((halyard.Error, *row) for row in BAD),
                                                    *((TypeError, *row) for row in NO_ARRAYS)])
def test_bad_input(angles, raised, given, message):
    given = {"q": X, "angles": angles, **given}
    default = {"positions": 0} if "cache" in given else {"out": np.full(np.shape(given["q"]), 7, np.float32)}
    given = {**default, **given}
    arrays = [each for value in given.values() for each in (value, getattr(value, "array", None))
              if isinstance(each, np.ndarray)]
    before = [array.copy() for array in arrays]
    with pytest.raises(raised, match=message):
        q = given.pop("q")
        stages = {field: given.pop(field) for field in OF_TENSORS & given.keys()}
        halyard.rotate(q if q is None else halyard.Tensor(q, **stages), **given)
    assert all(np.array_equal(array, old) for array, old in zip(arrays, before))


def test_bad_rerotations(angles):
    cache, tiles, two = X.copy(), TILES + 1, np.array([2])
    for keys, more, raised, words in (
            (FIXED, {}, halyard.Error, "read-only"), ([1.0], {}, TypeError, "keys is a list"),
            (X, dict(angles=None), TypeError, "angles"),
            (X, dict(from_positions=None), halyard.Error, "from_positions"),
            (halyard.Tensor(X, out=X[:2].copy()), {}, halyard.Error, "out of keys"),
            (cache, dict(slots=np.array([1, 1])), halyard.Error, "slot"),
            (halyard.Tensor(cache, out=cache), dict(slots=two), halyard.Error, "keys in slots"),
            (halyard.Cache(cache, "dnh"), dict(slots=two), halyard.Error, "cache_layout"),
            *((halyard.Cache(tiles, dataclasses.replace(TILED, **bad)), dict(slots=two), halyard.Error, "cache_layout")
              for bad in (dict(n_heads=2), dict(head_dim=DIM), dict(n_heads=2, head_dim=DIM + 1)))):
        with pytest.raises(raised, match=words):
            halyard.rerotate(keys, **{"angles": angles, "from_positions": 0, "positions": 1, **more})
        assert (X == 1).all() and (cache == 1).all() and (tiles == 1).all()


def test_errors_have_a_status(angles):
    with pytest.raises(ValueError, match="2147483648") as caught:
        halyard.rotate(X, angles=angles, positions=2**31)
    assert isinstance(caught.value, halyard.Error) and caught.value.status == "HALYARD_ERROR_POSITION"
    with pytest.raises(TypeError, match="layout is a int"):
        halyard.Cache(X, 3)


def test_bad_exporters(angles):
    class Exporter:
        def __init__(self, answer):
            self.answer = answer

        def __dlpack__(self, **_):
            return self.answer()

    for answer, message in (lambda: 1 // 0, "division"), (lambda: 3, "no DLPack capsule"):
        for q, out in (X, Exporter(answer)), (Exporter(answer), X.copy()):
            with pytest.raises(halyard.Error, match=message):
                halyard.rotate(halyard.Tensor(q, out=out), angles=angles)

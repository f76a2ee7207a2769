"""What test_cases.py does not draw: other forms of rotate's arguments, Python threads, and refusals."""

import concurrent.futures
import threading
import time

import ml_dtypes
import numpy as np
import pytest

import halyard
from halyard import AngleSource, Frequencies, Tensor, rotate

DIM = 64


@pytest.fixture
def x(rng):
    return rng.standard_normal((2, 7, 3, DIM)).astype(np.float32)


def test_forms_of_arguments(x, angles):
    packed = np.concatenate([x, x[:, :, :1]], 2)
    y, before, (q, k) = rotate(packed, angles=angles, positions=0), packed.copy(), np.split(packed, [3], axis=2)
    assert np.array_equal(rotate(q, angles=angles, positions=0, target="reference"), y[:, :, :3])
    returned = rotate(q, Tensor(k, out=k), angles=angles, positions=0, in_place=True)
    assert returned[0] is q and returned[1] is k and np.array_equal(packed, y)
    for name, dtype in (("f16", np.float16), ("bf16", ml_dtypes.bfloat16), ("e4m3", ml_dtypes.float8_e4m3fn),
                        ("e5m2", ml_dtypes.float8_e5m2)):
        for given in name, dtype, np.dtype(dtype):
            made = rotate(Tensor(before, dtype=given), angles=angles, positions=0)
            assert made.dtype == dtype and np.array_equal(made, y.astype(dtype))


def test_forms_of_keys(x, angles):
    """rerotate takes an array, which it returns, a Cache, or a cache's array."""
    keys, move = x.copy(), dict(angles=angles, from_positions=3, positions=8)
    assert halyard.rerotate(keys, **move) is keys
    np.testing.assert_allclose(keys, rotate(x, angles=angles, positions=np.full(7, 5)), atol=2e-6)
    for cache in x[0].copy(), halyard.Cache(x[:1].copy()):
        stored = halyard.rerotate(cache, slots=np.arange(7), **move)
        assert np.array_equal(stored.reshape(x[0].shape), keys[0])


def test_rows_of_two_halves(x):
    """Rows of rotary_dim columns, as in Hugging Face, and bad rows."""
    theta, given = np.arange(7)[:, None] * 1e4 ** (-np.arange(0, DIM, 2) / DIM), AngleSource.given
    rows = [each.astype(np.float32) for each in (np.cos(theta), np.sin(theta))]
    whole, half = given(*(np.tile(each, 2) for each in rows), rotary_dim=DIM), given(*rows)
    assert np.array_equal(*(rotate(x, angles=angles, positions=0) for angles in (whole, half)))
    for cos, sin, more, words in ((rows[0], rows[1][:3], {}, "sin"), (rows[0], rows[1][:, None], {}, "sin"),
                                  (rows[0], rows[1].astype(float), {}, "sin"),
                                  (*rows, dict(axis_map=("sections", (1, 1))), "axis")):
        with pytest.raises(halyard.Error, match=words):
            given(cos, sin, **more)


def test_shapes_of_positions(x):
    frequencies, three = Frequencies.from_base(1e4, DIM), np.zeros((3, 7), np.int64)
    axes = AngleSource(frequencies, axis_map=("sections", (12, 10, 10)))
    assert np.array_equal(rotate(x, angles=axes, positions=three[0]), x)  # the same on all axes
    with pytest.raises(halyard.Error, match=r"has to be \[tokens\] where all axes are equal, \[3, tokens\]"):
        rotate(x, angles=axes, positions=three[:2])
    with pytest.raises(halyard.Error, match=r"\{3, 7\}, but it must be \{1, 7\}, batch and tokens, on the one axis"):
        rotate(x[0], angles=AngleSource(frequencies), positions=three)


def test_many_python_threads(rng, angles):
    """Python threads share one source and its plans, and each gets its own result."""
    xs = [rng.standard_normal((40, 4, DIM + 2 * (i % 5))).astype((np.float32, np.float16)[i % 2]) for i in range(40)]
    expected = [rotate(x, angles=angles, positions=i) for i, x in enumerate(xs)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda i: rotate(xs[i], angles=angles, positions=i, threads=1 + i % 2),
                                range(len(xs))))
    assert all(map(np.array_equal, results, expected))


def test_the_interpreter_goes_on_meanwhile(angles):
    """A long call releases the GIL: the main thread wakes up meanwhile."""
    x = np.ones((8192, 32, DIM), np.float32)
    rotate(x[:2], angles=angles, target="reference")
    how = dict(angles=angles, target="reference", in_place=True)
    thread = threading.Thread(target=rotate, args=(x,), kwargs=how)
    ticks = [time.perf_counter()]
    thread.start()
    while thread.is_alive():
        time.sleep(0.001)
        ticks.append(time.perf_counter())
    ticks.append(time.perf_counter())
    assert max(np.diff(ticks)) < (ticks[-1] - ticks[0]) / 2

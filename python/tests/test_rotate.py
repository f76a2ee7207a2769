"""rotate's arguments, compared with the formula and with equivalent calls. The C++ tests check the error bounds."""

import concurrent.futures
import threading
import time

import ml_dtypes
import numpy as np
import pytest

import halyard
from halyard import AngleSource, Frequencies, Tensor, rotate

DIM = 64
INV_FREQ = 1e4 ** (-np.arange(0, DIM, 2) / DIM)


def check_formula(y, x, positions):
    """y is x rotated in half pairing. positions: one for each token, or one for each pair of each token."""
    theta = np.reshape(positions, (*x.shape[:-2], 1, -1)) * INV_FREQ
    rotated = (x[..., :DIM // 2] + 1j * x[..., DIM // 2:]) * np.exp(1j * theta)
    np.testing.assert_allclose(y, np.concatenate([rotated.real, rotated.imag], -1), atol=2e-6)


@pytest.fixture
def x(rng):
    return rng.standard_normal((2, 7, 3, DIM)).astype(np.float32)


@pytest.mark.parametrize("kind", ["phase", "table"])
def test_formula(rng, x, kind):
    angles = AngleSource(Frequencies.from_base(1e4, DIM), kind, first=-5, n_positions=1000)
    positions = rng.integers(-5, 995, (2, 7))
    y = rotate(x, angles=angles, positions=positions)
    assert y.dtype == x.dtype and type(y) is np.ndarray
    check_formula(y, x, positions)


def test_arguments(x):
    angles = AngleSource(Frequencies.from_base(1e4, DIM), first=-20, n_positions=50)
    y, one = rotate(x, angles=angles, positions=5), x[:, :1]
    pairs = np.arange(DIM).reshape(2, -1).T.ravel()  # x[..., pairs] has interleaved pairs if x has half pairs
    wide, wide_y = (np.concatenate([x[..., :4], each, x[..., :2]], -1) for each in (x, y))
    for q, more, expected in (
            (x[..., pairs], dict(pairing="interleaved"), y[..., pairs]),
            (x, dict(out_pairing="interleaved"), y[..., pairs]),
            (x[..., pairs], dict(pairing="interleaved", out_pairing="half"), y),
            (x, dict(inverse=True, positions=np.arange(-5, -12, -1)), y), (Tensor(wide, rotary_offset=4), {}, wide_y),
            (x.swapaxes(1, 2), dict(layout="bhsd"), y.swapaxes(1, 2)),
            (x[0].swapaxes(0, 1), dict(layout="bhsd"), y[0].swapaxes(0, 1)), *((x, dict(threads=n), y) for n in (1, 2)),
            (one, dict(positions=30, bad_position="clamp"), rotate(one, angles=angles, positions=29)),
            (one, dict(positions=30, bad_position="identity"), one), (x, dict(target="reference"), y)):
        assert np.array_equal(rotate(q, angles=angles, **{"positions": 5, **more}), expected), more


def test_forms_of_positions(x, angles):
    numbers = np.arange(7) + 9
    expected = rotate(x, angles=angles, positions=np.tile(numbers, (2, 1)))
    for positions in (9, np.int64(9), numbers, numbers.astype(np.int32), np.repeat(numbers, 2)[::2], numbers[None]):
        assert np.array_equal(rotate(x, angles=angles, positions=positions), expected)
    from_zero = rotate(x, angles=angles, positions=0)
    assert np.array_equal(rotate(x[0], angles=angles), from_zero[0])  # one sequence from its start
    starts = np.array([[77], [9]])
    for part in slice(0, 1), slice(0, 7):  # one token of each sequence, or all
        y = rotate(x[:, part], angles=angles, positions=starts)
        assert np.array_equal(y[1], expected[1, part])
        check_formula(y[0], x[0, part], np.arange(77, 84)[part])


def test_axes(rng, x):
    counts, k = (12, 10, 10), np.arange(DIM // 2)
    positions = rng.integers(0, 1000, (3, 2, 7))
    frequencies = Frequencies.from_base(1e4, DIM)
    for kind, axis in (("sections", np.repeat(np.arange(3), counts)), ("interleaved", np.where(k < 30, k % 3, 0))):
        angles = AngleSource(frequencies, axis_map=(kind, counts))
        y = rotate(x, angles=angles, positions=positions)
        check_formula(y, x, np.moveaxis(positions, 0, -1)[..., axis])
        assert np.array_equal(rotate(x[0], angles=angles, positions=positions[:, 0]), y[0])
        text = np.arange(7) ** 2  # equal on all axes
        assert np.array_equal(rotate(x, angles=angles, positions=text),
                              rotate(x, angles=AngleSource(frequencies), positions=text))
        with pytest.raises(halyard.Error, match=r"has to be \[tokens\] where all axes are equal, \[3, tokens\]"):
            rotate(x, angles=angles, positions=np.zeros((2, 7), np.int64))
    with pytest.raises(halyard.Error, match=r"\{3, 7\}, but it must be \{1, 7\}, batch and tokens, on the one axis"):
        rotate(x[0], angles=AngleSource(frequencies), positions=positions[:, 0])


def test_given_rows(x):
    """Rows by position, rows by token, and rows with an axis map, as in vLLM's table for M-RoPE."""
    x, positions, given = x[0, :4], np.array([3, 0, 2, 2]), AngleSource.given
    theta = np.arange(4)[:, None] * INV_FREQ
    rows = [each.astype(np.float32) for each in (np.cos(theta), np.sin(theta))]
    views = np.split(np.concatenate(rows, 1), 2, axis=1)
    for angles, where in ((given(*rows), positions), (given(*views), positions),
                          (given(*(np.tile(each, 2) for each in rows), rotary_dim=DIM), positions),
                          (given(*(each[positions] for each in rows), by_token=True), None)):
        check_formula(rotate(x, angles=angles, positions=where), x, positions)
    sections, at = dict(axis_map=("sections", (12, 10, 10))), np.stack([positions, positions[::-1], [1, 2, 3, 0]])
    by_axis = (each[at].reshape(12, -1) for each in rows)
    for angles, where in (given(*rows, **sections), at), (given(*by_axis, **sections), np.arange(12).reshape(3, 4)):
        check_formula(rotate(x, angles=angles, positions=where), x, at.T[:, np.repeat(np.arange(3), (12, 10, 10))])
    for cos, sin, more, words in ((rows[0], rows[1][:3], {}, "sin"), (rows[0], rows[1][:, None], {}, "sin"),
                                  (rows[0], rows[1].astype(float), {}, "sin"),
                                  (*rows, dict(axis_map=("sections", (1, 1))), "axis")):
        with pytest.raises(halyard.Error, match=words):
            given(cos, sin, **more)


def test_where_results_go(rng, angles):
    """Outputs in place and in arrays of any strides, of one and several tensors; nothing beside them is written."""
    packed = rng.standard_normal((6, 9, DIM)).astype(np.float32)
    before = packed.copy()
    q, k = packed[:, :4], packed[:, 4:6]
    expected = rotate(before, angles=angles)
    for x, y in zip(rotate(q, k, angles=angles), (expected[:, :4], expected[:, 4:6])):
        assert np.array_equal(x, y)
    returned = rotate(q, Tensor(k, out=k), angles=angles, in_place=True)
    assert returned[0] is q and returned[1] is k
    assert np.array_equal(packed, np.concatenate([expected[:, :6], before[:, 6:]], 1))
    x = before[::-1, ::2, ::-1]
    assert np.array_equal(rotate(x, angles=angles), rotate(x.copy(), angles=angles))
    fortran = np.asfortranarray(before)
    assert np.array_equal(rotate(fortran, angles=angles), expected)
    rotate(fortran, angles=angles, in_place=True)
    column_by_column = np.zeros((6, 9, DIM, 2), np.float32)[..., 0]
    rotate(Tensor(before, out=column_by_column), angles=angles)
    assert np.array_equal(column_by_column, expected) and np.array_equal(fortran, expected)
    for shape in ((0, 2, DIM), (3, 0, DIM), (0, 3, 2, DIM)):
        assert rotate(np.empty(shape, np.float32), angles=angles).shape == shape


def test_dtypes(rng, angles):
    x = rng.standard_normal((4, 2, DIM)).astype(np.float32)
    y = rotate(x, angles=angles)
    for name, dtype in (("f16", np.float16), ("bf16", ml_dtypes.bfloat16), ("e4m3", ml_dtypes.float8_e4m3fn),
                        ("e5m2", ml_dtypes.float8_e5m2)):
        for same in (Tensor(x, dtype=name), Tensor(x, dtype=dtype), Tensor(x, dtype=np.dtype(dtype)),
                     Tensor(x, out=np.empty(x.shape, dtype))):
            made = rotate(same, angles=angles)
            assert made.dtype == dtype and np.array_equal(made, y.astype(dtype))
        if name.endswith("16"):
            short = rotate(x.astype(dtype), angles=angles)
            assert np.array_equal(short, rotate(x.astype(dtype).astype(np.float32), angles=angles).astype(dtype))
    words = rotate(Tensor(x, out=np.empty(x.shape, np.uint8), dtype="e5m2"), angles=angles)
    assert np.array_equal(words.view(ml_dtypes.float8_e5m2), y.astype(ml_dtypes.float8_e5m2))


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

"""rotate against the formula: dtypes, layouts, strides, pairings, positions, in place, threads."""

import concurrent.futures
import threading
import time

import ml_dtypes
import numpy as np
import pytest

import exact
import halyard

BASE, DIM = 10000.0, 64
DTYPES = [np.dtype(np.float32), np.dtype(np.float16), exact.BF16]


FREQUENCIES = exact.inv_freq(BASE, DIM)


@pytest.mark.parametrize("kind, inverse", [("phase", False), ("table", True)])
@pytest.mark.parametrize("pairings", [("half", "half"), ("interleaved", "half")])
@pytest.mark.parametrize("dtype", DTYPES)
def test_formula(rng, dtype, pairings, kind, inverse):
    angles = halyard.AngleSource(halyard.Frequencies.from_base(BASE, DIM), kind, first=-5, n_positions=131_077)
    x = rng.standard_normal((2, 7, 3, DIM + 6)).astype(dtype)
    positions = rng.integers(-5, 131_072, (2, 7))
    how = dict(zip(("pairing", "out_pairing"), pairings), inverse=inverse)
    y = halyard.rotate(halyard.Tensor(x, rotary_offset=4), angles=angles, positions=positions, **how)
    assert y.dtype == dtype and type(y) is np.ndarray
    exact.check(y, x, positions, FREQUENCIES, offset=4, **how)


def test_forms_of_positions(rng, angles):
    x = rng.standard_normal((3, 5, 2, DIM)).astype(np.float32)
    numbers = np.arange(5) + 9
    expected = halyard.rotate(x, angles=angles, positions=np.tile(numbers, (3, 1)))
    for positions in (9, np.int64(9), numbers, numbers.astype(np.int32), np.repeat(numbers, 2)[::2], numbers[None]):
        assert np.array_equal(halyard.rotate(x, angles=angles, positions=positions), expected)
    from_zero = halyard.rotate(x, angles=angles, positions=0)
    assert np.array_equal(halyard.rotate(x[0], angles=angles), from_zero[0])  # one sequence from its start
    one_token = x[:, :1]
    starts = np.array([[5], [0], [77]])
    exact.check(halyard.rotate(one_token, angles=angles, positions=starts), one_token, starts, FREQUENCIES)
    exact.check(halyard.rotate(x, angles=angles, positions=starts), x, starts + np.arange(5), FREQUENCIES)


def test_q_and_k_in_place_and_layouts(rng, angles):
    q, k = (rng.standard_normal((2, 5, heads, DIM)).astype(np.float32) for heads in (4, 1))
    expected = halyard.rotate(q, k, angles=angles, positions=3)
    in_place = q.copy(), k.copy()
    returned = halyard.rotate(*in_place, angles=angles, positions=3, in_place=True)
    assert all(a is b for a, b in zip(returned, in_place))
    assert all(np.array_equal(a, b) for a, b in zip(expected, in_place))
    heads_first = [np.ascontiguousarray(x.swapaxes(1, 2)) for x in (q, k)]
    turned = halyard.rotate(*heads_first, angles=angles, positions=3, layout="bhsd")
    assert all(np.array_equal(a, b.swapaxes(1, 2)) for a, b in zip(expected, turned))
    one = halyard.rotate(heads_first[0][1], angles=angles, positions=3, layout="bhsd")
    assert np.array_equal(one, turned[0][1])


def test_any_strides(rng, angles):
    packed = rng.standard_normal((6, 9, DIM)).astype(np.float32)
    before = packed.copy()
    q, k = packed[:, :4], packed[:, 4:6]
    expected = [halyard.rotate(x.copy(), angles=angles) for x in (q, k)]
    assert all(map(np.array_equal, halyard.rotate(q, k, angles=angles), expected))
    halyard.rotate(q, halyard.Tensor(k, out=k), angles=angles, in_place=True)
    assert np.array_equal(q, expected[0]) and np.array_equal(k, expected[1])
    assert np.array_equal(packed[:, 6:], before[:, 6:])
    x = before[::-1, ::2, ::-1]
    assert np.array_equal(halyard.rotate(x, angles=angles), halyard.rotate(x.copy(), angles=angles))
    fortran = np.asfortranarray(before)
    assert np.array_equal(halyard.rotate(fortran, angles=angles), halyard.rotate(before, angles=angles))
    halyard.rotate(fortran, angles=angles, in_place=True)
    assert np.array_equal(fortran, halyard.rotate(before, angles=angles))
    column_by_column = np.zeros((6, 9, DIM, 2), np.float32)[..., 0]
    assert np.array_equal(halyard.rotate(halyard.Tensor(before, out=column_by_column), angles=angles), fortran)


def test_config_decides_the_pairings(rng, configs):
    deepseek = halyard.Frequencies.from_config(configs / "deepseek-v3.json")
    angles = halyard.AngleSource(deepseek, first=0, n_positions=100)
    x = rng.standard_normal((5, 2, deepseek.rotary_dim)).astype(np.float32)
    y = halyard.rotate(x, angles=angles)
    stated = halyard.rotate(x, angles=angles, pairing="interleaved", out_pairing="half")
    assert np.array_equal(y, stated)
    assert not np.array_equal(y, halyard.rotate(x, angles=angles, pairing="interleaved"))


def test_axes(rng):
    counts = (12, 10, 10)
    x = rng.standard_normal((2, 5, 3, DIM)).astype(np.float32)
    positions = rng.integers(0, 1000, (3, 2, 5))
    frequencies = halyard.Frequencies.from_base(BASE, DIM)
    k = np.arange(DIM // 2)
    owners = {"sections": np.repeat(np.arange(3), counts),
              "interleaved": np.where((k % 3 > 0) & (k < 3 * np.take(counts, k % 3)), k % 3, 0)}
    for kind, owner in owners.items():
        angles = halyard.AngleSource(frequencies, axis_map=(kind, counts))
        y = halyard.rotate(x, angles=angles, positions=positions)
        exact.check(y, x, np.moveaxis(positions, 0, -1)[..., owner], FREQUENCIES)
        flat = halyard.rotate(x[0], angles=angles, positions=positions[:, 0])
        assert np.array_equal(flat, y[0])
        text = np.array([3, 700, 0, 9, 5])  # equal on all axes
        assert np.array_equal(halyard.rotate(x, angles=angles, positions=text),
                              halyard.rotate(x, angles=angles, positions=np.broadcast_to(text, (3, 2, 5))))
        with pytest.raises(halyard.Error, match=r"has to be \[tokens\] where all axes are equal, \[3, tokens\]"):
            halyard.rotate(x, angles=angles, positions=np.zeros((2, 5), np.int64))
    with pytest.raises(halyard.Error, match=r"\{3, 5\}, but it must be \{1, 5\}, batch and tokens, on the one axis"):
        halyard.rotate(x[0], angles=halyard.AngleSource(frequencies), positions=positions[:, 0])


def test_given_rows(rng, angles):
    positions = np.array([3, 0, 2, 2])
    theta = np.arange(4)[:, None] * FREQUENCIES
    cos, sin = np.cos(theta).astype(np.float32), np.sin(theta).astype(np.float32)
    x = rng.standard_normal((4, 2, DIM)).astype(np.float32)
    expected = halyard.rotate(x, angles=halyard.AngleSource.given(cos, sin), positions=positions)
    exact.check(expected, x, positions, FREQUENCIES, eps=3 * exact.EPS)
    twice = [np.tile(rows, 2) for rows in (cos, sin)]
    assert np.array_equal(expected, halyard.rotate(
        x, angles=halyard.AngleSource.given(*twice, rotary_dim=DIM), positions=positions))
    fused = np.concatenate([cos, sin], 1)
    views = fused[:, :DIM // 2], fused[:, DIM // 2:]
    assert np.array_equal(expected, halyard.rotate(x, angles=halyard.AngleSource.given(*views), positions=positions))
    by_token = halyard.AngleSource.given(cos[positions], sin[positions], by_token=True)
    assert np.array_equal(expected, halyard.rotate(x, angles=by_token))
    with pytest.raises(halyard.Error):
        halyard.AngleSource.given(cos, sin[:2])
    with pytest.raises(halyard.Error):
        halyard.AngleSource.given(cos, sin.astype(np.float64))


def test_many_python_threads(rng, angles):
    """Threads of Python's share one source, and its plans, and each gets its own result."""
    xs = [rng.standard_normal((40, 4, DIM + 2 * (i % 5))).astype(DTYPES[i % 3]) for i in range(40)]
    expected = [halyard.rotate(x, angles=angles, positions=i) for i, x in enumerate(xs)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda i: halyard.rotate(xs[i], angles=angles, positions=i, threads=1 + i % 2),
                                range(len(xs))))
    assert all(map(np.array_equal, results, expected))


def test_the_interpreter_goes_on_meanwhile(angles):
    """A call that takes long does not hold the interpreter's lock."""
    x = np.ones((8192, 32, DIM), np.float32)
    halyard.rotate(x[:2], angles=angles, target="reference")
    times = []

    def call():
        times.append(time.perf_counter())
        halyard.rotate(x, angles=angles, target="reference", in_place=True)
        times.append(time.perf_counter())

    thread = threading.Thread(target=call)
    thread.start()
    ticks = []
    while thread.is_alive():
        ticks.append(time.perf_counter())
        time.sleep(0.001)
    start, end = times
    during = [start, *(tick for tick in ticks if start < tick < end), end]
    assert max(np.diff(during)) < (end - start) / 2


@pytest.mark.parametrize("policy, position", [("clamp", 9), ("identity", 0)])
def test_bad_positions(rng, policy, position):
    angles = halyard.AngleSource(halyard.Frequencies.from_base(BASE, DIM), first=0, n_positions=10)
    x = rng.standard_normal((1, 2, DIM)).astype(np.float32)
    y = halyard.rotate(x, angles=angles, positions=10, bad_position=policy)
    assert np.array_equal(y, halyard.rotate(x, angles=angles, positions=position))


def test_outputs_of_another_dtype(rng, angles):
    x = rng.standard_normal((4, 2, DIM)).astype(np.float32)
    y = halyard.rotate(x, angles=angles)
    for name, dtype in (("f16", np.float16), ("bf16", ml_dtypes.bfloat16), ("e4m3", ml_dtypes.float8_e4m3fn),
                        ("e5m2", ml_dtypes.float8_e5m2)):
        made = halyard.rotate(halyard.Tensor(x, dtype=name), angles=angles)
        for same in (halyard.Tensor(x, dtype=dtype), halyard.Tensor(x, dtype=np.dtype(dtype)),
                     halyard.Tensor(x, out=np.empty(x.shape, dtype))):
            assert np.array_equal(made, halyard.rotate(same, angles=angles))
        assert made.dtype == dtype and np.array_equal(made, y.astype(dtype))
    words = np.empty(x.shape, np.uint8)
    halyard.rotate(halyard.Tensor(x, out=words, dtype="e4m3"), angles=angles)
    assert np.array_equal(words.view(ml_dtypes.float8_e4m3fn), y.astype(ml_dtypes.float8_e4m3fn))
    whole = halyard.rotate(halyard.Tensor(x * 50, dtype="int8"), angles=angles)
    assert np.array_equal(whole, np.clip(np.rint(halyard.rotate(x * 50, angles=angles)), -128, 127).astype(np.int8))


def test_nothing_to_do(angles):
    for shape in ((0, 2, DIM), (3, 0, DIM), (0, 3, 2, DIM)):
        assert halyard.rotate(np.empty(shape, np.float32), angles=angles).shape == shape

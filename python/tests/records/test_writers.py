"""Records of groups beside those that ggml's own functions write, byte for byte. HALYARD_TEST_GROUPS says how many groups
there are of each preset, 1,000,000 say."""

import ctypes
import os
import pathlib

import numpy as np
import pytest

import halyard

N_GROUPS = int(os.environ.get("HALYARD_TEST_GROUPS", 20_000))
F32, MOST = np.float32, np.finfo(np.float32).max


def rounds(n_most):
    """Numbers of groups that are held at once, N_GROUPS in all."""
    return [min(N_GROUPS, n_most)] * max(N_GROUPS // n_most, 1)


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield


def near_ties(rng, groups, steps, offset):
    """The groups with elements an ulp or two from where they would round to another number, or on it, by which
    reciprocals are told apart that are themselves an ulp from each other."""
    low = offset * groups.min(-1, keepdims=True)
    reach = groups.max(-1, keepdims=True) - low if offset else np.abs(groups).max(-1, keepdims=True)
    step = (reach / F32(steps)).astype(F32)
    ties = low + (np.floor((groups - low) / step) + F32(0.5)) * step
    ties = (ties.view(np.int32) + rng.integers(-2, 3, groups.shape, np.int32)).view(F32)
    ties[:, :2] = np.stack([groups.min(-1), groups.max(-1)], -1)  # which decide about the scale
    return ties


def draw(rng, n, size):
    """Groups [n, size] of any magnitude, and among them the hard ones."""
    groups = rng.standard_normal((n, size)).astype(F32) * np.exp2(rng.uniform(-12, 12, (n, 1))).astype(F32)
    for i, (steps, offset) in enumerate(((127, 0), (8, 0), (255, 1), (15, 1), (448, 0))):
        groups[i::12] = near_ties(rng, groups[i::12], steps, offset)
    hard = []

    def add(values, fill=0.0):
        row = np.full(size, fill, F32)
        row[:len(values)] = values
        hard.append(rng.permutation(row) if len(values) < 8 else row)

    for fill in 0.0, -0.0:
        add([], fill)
    for value in (1.0, -3.5, 1e-45, -1e-40, 1e-38, 3e-38, 1.1754944e-38, MOST, -MOST, np.inf, -np.inf, np.nan):
        add([value])
        add([value, -value])
        add([], value)
        add([value, 1e-3, -0.25])
    for scale in 65504.0, 65519.0, 65520.0, 65536.0, 2.0**-24, 2.0**-25, 2.0**-26, 6e-5, 1e6, 1e30, 2.9e-39 / 127:
        for most in 127, -127, 8, -8, 448:
            add([most * scale, scale, -scale / 3])
    for exponent in (-140, -134, -120, -21, -3, 0, 5, 100):  # ties, and a reciprocal that is a power of two
        ties = np.arange(size, dtype=F32) % 127 + F32(0.5)
        for most, step in ((127, 1), (8, 8), (448, 4)):
            row = np.where(np.arange(size) % 3 == 0, -ties, ties)
            row = np.clip(row / step, -most, most).astype(F32)
            row[0] = most
            hard.append(np.ldexp(row, exponent).astype(F32))
    for exponent in -130, -120, -20, 0, 7, 110:  # about a power of two as a scale
        for value in (448.0, 256.0, 511.0):
            for near in np.nextafter(F32(value), F32(0)), F32(value), np.nextafter(F32(value), F32(1000)):
                add([np.ldexp(near, exponent), np.ldexp(F32(1), exponent)])
    few = rng.standard_normal((200, size)).astype(F32)
    few[np.arange(200), rng.integers(size, size=200)] = rng.choice([np.inf, -np.inf, np.nan], 200)
    few[:50, ::3] = -few[:50, 1:2]
    hard = np.concatenate([np.stack(hard), few])
    at = rng.permutation(n)[:len(hard)]
    groups[at] = hard[:len(at)]
    return groups


def write(preset, v, **options):
    """The records of heads [n, width]."""
    return halyard.convert(v[:, None], groups=preset, **options)[:, 0]


def check_equal(got, want, v, size):
    """With the first group of those that differ."""
    wrong = np.flatnonzero((got != want).any(-1))
    assert len(wrong) == 0, (f"{len(wrong)} of {len(got)} heads differ; head {wrong[0]} is {v[wrong[0]][:size].tolist()}: "
                             f"{got[wrong[0]].tolist()} for {want[wrong[0]].tolist()}")


@pytest.fixture(scope="module")
def ggml():
    root = pathlib.Path(__file__).parents[3] / ".deps"
    places = [os.environ.get("HALYARD_GGML_LIBRARIES"), root / "peers" / "ggml",
              root / "engines" / "llama.cpp" / "build" / "bin"]
    for place in places:
        if place and (pathlib.Path(place) / "libggml-cpu.so").exists():
            base, cpu = (ctypes.CDLL(str(pathlib.Path(place) / f"libggml-{name}.so"), mode=ctypes.RTLD_GLOBAL)
                         for name in ("base", "cpu"))
            cpu.ggml_cpu_init()
            return base, cpu
    pytest.skip("there is no libggml-cpu.so in .deps/peers/ggml: ./run bench --peers fetches and builds it")


def ggml_rows(function, v, n_bytes):
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
    out = np.empty((len(v), n_bytes), np.uint8)
    function(v.ctypes.data, out.ctypes.data, v.size)
    return out


@pytest.mark.parametrize("preset, library, function", [
    ("ggml_q8_0", 1, "quantize_row_q8_0"), ("ggml_q8_0_reference", 0, "quantize_row_q8_0_ref"),
    ("ggml_q8_0_reference", 1, "quantize_row_q8_0_generic"), ("ggml_q4_0", 0, "quantize_row_q4_0_ref"),
    ("ggml_q4_0", 1, "quantize_row_q4_0")])
def test_against_ggml(rng, ggml, preset, library, function):
    """Where every element, the scale as float16 and the reciprocal are finite."""
    n_compared = 0
    for n in rounds(250_000):
        v = draw(rng, n, 32)
        amax = np.abs(v).max(-1)
        d = amax / F32(8 if preset == "ggml_q4_0" else 127)
        r = F32(127) / amax if preset == "ggml_q8_0" else F32(1) / d
        v = v[np.isfinite(v).all(-1) & np.isfinite(d.astype(np.float16)) & (np.isfinite(r) | (amax == 0))]
        want = ggml_rows(getattr(ggml[library], function), v, 18 if preset == "ggml_q4_0" else 34)
        check_equal(write(preset, v, threads=2), want, v, 32)
        n_compared += len(v)
    assert n_compared > 0.98 * N_GROUPS


def test_hadamard_against_ggml(rng, ggml):
    """ggml's fast transform, to the bit, alone and with its quantiser behind it."""
    base, cpu = ggml
    base.ggml_init.restype = base.ggml_new_tensor_2d.restype = base.ggml_mul_mat.restype = ctypes.c_void_p
    base.ggml_new_graph.restype = base.ggml_get_data.restype = ctypes.c_void_p

    class Parameters(ctypes.Structure):
        _fields_ = [("size", ctypes.c_size_t), ("memory", ctypes.c_void_p), ("no_alloc", ctypes.c_bool)]

    base.ggml_init.argtypes = [Parameters]
    pointer = ctypes.c_void_p
    base.ggml_new_tensor_2d.argtypes = [pointer, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    base.ggml_mul_mat.argtypes = [pointer] * 3
    base.ggml_mul_mat_set_hint.argtypes = [pointer, ctypes.c_int]
    base.ggml_build_forward_expand.argtypes = [pointer] * 2
    cpu.ggml_graph_compute_with_ctx.argtypes = [pointer, pointer, ctypes.c_int]
    for function in base.ggml_new_graph, base.ggml_get_data, base.ggml_free:
        function.argtypes = [pointer]
    f32, is_hadamard = 0, 1
    for n in 32, 64, 128, 256:
        v = rng.standard_normal((max(N_GROUPS // 40, 1000), n)).astype(F32) * 3
        context = base.ggml_init(Parameters(2 * v.nbytes + 16 * n * n + (1 << 20), None, False))
        matrix, x = (base.ggml_new_tensor_2d(context, f32, n, rows) for rows in (n, len(v)))
        ctypes.memmove(base.ggml_get_data(x), v.ctypes.data, v.nbytes)
        product = base.ggml_mul_mat(context, matrix, x)
        base.ggml_mul_mat_set_hint(product, is_hadamard)
        graph = base.ggml_new_graph(context)
        base.ggml_build_forward_expand(graph, product)
        assert cpu.ggml_graph_compute_with_ctx(context, graph, 1) == 0
        want = np.empty_like(v)
        ctypes.memmove(want.ctypes.data, base.ggml_get_data(product), v.nbytes)
        base.ggml_free(context)
        got = halyard.convert(v[:, None], hadamard=n)[:, 0]
        assert np.array_equal(got.view(np.uint32), want.view(np.uint32))
        records = ggml_rows(cpu.quantize_row_q8_0, want.reshape(-1, 32), 34).reshape(len(v), -1)
        assert np.array_equal(write("ggml_q8_0", v, hadamard=n), records)

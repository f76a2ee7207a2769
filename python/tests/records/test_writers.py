"""Records of groups beside those that engines write: ggml's own functions, and others' written apart from ours, byte for
byte. HALYARD_TEST_GROUPS says how many groups there are of each preset, 1,000,000 say."""

import ctypes
import os
import pathlib

import ml_dtypes
import numpy as np
import pytest

import halyard

N_GROUPS = int(os.environ.get("HALYARD_TEST_GROUPS", 20_000))
F32, MOST, E4M3 = np.float32, np.finfo(np.float32).max, ml_dtypes.float8_e4m3fn
GROUP = {"mla_v32": 128, "mla_v4": 64, "openvino_u8": 128, "openvino_u4": 64, "vllm_int8": 128, "vllm_fp8": 128}
WIDTH = {"mla_v32": 512, "mla_v4": 448, "mla_v41": 512}  # in groups; of others a group is a head


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


def largest(v):
    """Of the finite ones, the largest magnitude."""
    return np.abs(np.where(np.isfinite(v), v, F32(0))).max(-1, keepdims=True)


def finite_reciprocal(numerator, denominator):
    r = F32(numerator) / denominator
    return np.where(np.isfinite(r), r, F32(0))


def times(v, r):
    """v r in float32: NaN counts as 0, and all are 0 where r is."""
    return np.where(np.isnan(v) | (r == 0), F32(0), v * r)


def fma(a, b, c):
    """Rounded once: the sum in float64 is made odd where it is not exact, and then rounded to float32."""
    product, c = a.astype(np.float64) * b.astype(np.float64), np.broadcast_to(c, a.shape).astype(np.float64)
    total = product + c
    part = total - product
    error = (product - (total - part)) + (c - part)
    bits = np.ascontiguousarray(total).view(np.int64)
    step = np.where((error > 0) == (total > 0), 1, -1)
    odd = np.where((error != 0) & np.isfinite(total) & (bits & 1 == 0), bits + step, bits)
    return odd.view(np.float64).astype(F32)


def as_bytes(numbers, dtype):
    """Numbers [n, 1] of a dtype as bytes [n, size]."""
    return np.ascontiguousarray(numbers.astype(dtype)).view(np.uint8).reshape(len(numbers), -1)


def as_f16(s):
    """Rounded, but finite; and whether it was not."""
    stored = np.clip(s.astype(np.float16), -65504, 65504).astype(np.float16)
    return stored, ~np.isfinite(s.astype(np.float16))


def as_e4m3(v):
    return np.clip(v, -448, 448).astype(E4M3).view(np.uint8)


def half_away(v):
    whole = np.trunc(v)
    return whole + np.where(np.abs(v - whole) >= 0.5, np.copysign(F32(1), v), 0)


# Each takes groups [n, size] and returns (records of such a group, scales that lie apart or None), and what v is read
# back as. "ggml" is llama.cpp as llama-cpp-python 0.3.36 has it, "vllm" vllm 0.32.0.


def ggml_q8_0(v, kind):
    """ggml/src/ggml-cpu/arch/x86/quants.c:302, arch/arm/quants.c:41 and ggml/src/ggml-quants.c:276."""
    amax = largest(v)
    d = amax / F32(127)
    stored, clamped = as_f16(d)
    r = finite_reciprocal(127, amax) if kind == "x86" else finite_reciprocal(1, d)
    r = np.where(clamped, finite_reciprocal(1, stored.astype(F32)), r)
    product = times(v, r)
    q = np.clip(half_away(product) if kind == "reference" else np.rint(product), -128, 127).astype(np.int8)
    return np.hstack([as_bytes(stored, np.float16), q.view(np.uint8)]), None, q * stored.astype(F32)


def ggml_q4_0(v, _):
    """ggml/src/ggml-quants.c:113."""
    finite = np.where(np.isfinite(v), v, F32(0))
    first = np.abs(finite).argmax(-1)[:, None]
    m = np.take_along_axis(finite, first, -1) + F32(0)
    d = m / F32(-8)
    stored, clamped = as_f16(d)
    r = np.where(clamped, finite_reciprocal(1, stored.astype(F32)), finite_reciprocal(1, d))
    q = np.clip(np.trunc(np.clip(times(v, r) + F32(8.5), -1, 99)), 0, 15).astype(np.uint8)
    half = v.shape[1] // 2
    packed = q[:, :half] | q[:, half:] << 4
    return np.hstack([as_bytes(stored, np.float16), packed]), None, (q.astype(F32) - 8) * stored.astype(F32)


def vllm(v, kind):
    """vllm/v1/attention/ops/triton_reshape_and_cache_flash.py:207, in correctly rounded operations. "mla": csrc/
    cache_kernels.cu, concat_and_cache_ds_mla_kernel, with the floor of powers() and a reciprocal."""
    floor = F32(1e-4) / F32(448) if kind == "mla" else F32(1e-6)
    s = np.maximum(largest(v) / F32(127 if kind == "int8" else 448), floor)
    product = times(v, finite_reciprocal(1, s))
    if kind != "int8":
        q = as_e4m3(product)
        return q, as_bytes(s, F32), q.view(E4M3).astype(F32) * s
    whole = half_away(product)
    # vLLM adds 0.5 and cuts off, which is another number for the float below 0.5, whose sum rounds to 1, and no other.
    its_whole = np.trunc(product + np.copysign(F32(0.5), product))
    assert ((whole == its_whole) | (np.abs(product) == np.nextafter(F32(0.5), F32(0)))).all()
    q = np.clip(whole, -128, 127).astype(np.int8)
    return q.view(np.uint8), as_bytes(s, F32), q * s


def openvino(v, kind):
    """quant_u8 and quant_u4 of src/plugins/intel_cpu/src/nodes/kernels/scaled_attn/attn_quant_kernel.hpp, by vectors."""
    greatest = F32(255 if kind == "u8" else 15)
    finite = np.isfinite(v)
    none = ~finite.any(-1, keepdims=True)
    low = np.where(none, F32(0), np.where(finite, v, np.inf).min(-1, keepdims=True).astype(F32))
    high = np.where(none, F32(0), np.where(finite, v, -np.inf).max(-1, keepdims=True).astype(F32))
    low = low + F32(0)  # -0 counts as 0, and z is -0; an engine has the sign of whichever zero its minimum keeps
    s = (high - low) / greatest
    s = np.minimum(np.where(s == 0, F32(1e-4), s), MOST).astype(F32)
    z = np.clip(-low / s, -MOST, MOST).astype(F32)
    r = np.broadcast_to(finite_reciprocal(1, s), v.shape)
    v = np.where(np.isnan(v) | (r == 0), F32(0), v)
    total = np.where(np.isinf(v), v, fma(np.where(np.isinf(v), F32(0), v), r, z))
    q = np.clip(np.rint(total), 0, greatest).astype(np.uint8)
    packed = q if kind == "u8" else q[:, ::2] << 4 | q[:, 1::2]
    return np.hstack([as_bytes(s, F32), as_bytes(z, F32), packed]), None, (q.astype(F32) - z) * s


def powers(v, kind):
    """vllm/models/deepseek_v41/common/ops/cache_utils.py:139 and :225; MX: OCP Microscaling Formats 1.0, section 6.3."""
    amax = largest(v)
    if kind == "ocp":
        exponent = np.frexp(amax)[1] - 9
        exponent = np.where(amax == 0, -127, exponent)
    else:
        fraction, exponent = np.frexp(np.maximum(amax, F32(1e-4)) / F32(448))
        exponent = exponent - (fraction == 0.5)
    exponent = np.clip(exponent, -127, 127)
    q = as_e4m3(times(v, np.ldexp(F32(1), -exponent)))
    byte = (exponent + 127).astype(np.uint8)
    values = q.view(E4M3).astype(F32) * np.ldexp(F32(1), exponent)
    return (np.hstack([byte, q]), None, values) if kind == "ocp" else (q, byte, values)


WRITERS = {"ggml_q8_0": (ggml_q8_0, "x86"), "ggml_q8_0_neon": (ggml_q8_0, "neon"),
           "ggml_q8_0_reference": (ggml_q8_0, "reference"), "ggml_q4_0": (ggml_q4_0, ""), "vllm_int8": (vllm, "int8"),
           "vllm_fp8": (vllm, "fp8"), "openvino_u8": (openvino, "u8"), "openvino_u4": (openvino, "u4"),
           "mla_v32": (vllm, "mla"), "mla_v4": (powers, "up"), "mla_v41": (powers, "up"), "mx": (powers, "ocp")}


def expect(preset, v):
    """What heads [n, width] are written as and read back as, of which those beside groups are to be bfloat16."""
    writer, kind = WRITERS[preset]
    size, grouped = GROUP.get(preset, 32), WIDTH.get(preset, v.shape[1])
    records, scales, values = writer(v[:, :grouped].reshape(-1, size), kind)
    records, values = records.reshape(len(v), -1), values.reshape(len(v), -1)
    raw = v[:, grouped:].astype(ml_dtypes.bfloat16)
    if preset == "mla_v32":
        records, scales = np.hstack([records, scales.reshape(len(v), -1)]), None
    if scales is not None:
        scales = scales.reshape(len(v), -1)
    if raw.size:
        records = np.hstack([records, raw.view(np.uint8).reshape(len(v), -1)])
    return records, scales, np.hstack([values, raw.astype(F32)])


def heads_of(rng, preset, n):
    """Heads of n groups in all, with what lies beside them."""
    size, grouped = GROUP.get(preset, 32), WIDTH.get(preset, GROUP.get(preset, 32))
    heads = draw(rng, n // (grouped // size) * (grouped // size), size).reshape(-1, grouped)
    beside = {"mla_v32": 64, "mla_v4": 64}.get(preset, 0)
    return np.hstack([heads, rng.standard_normal((len(heads), beside)).astype(F32)])


def write(preset, v, **options):
    """The records of heads [n, width], and their scales as bytes or None."""
    made = halyard.convert(v[:, None], groups=preset, **options)
    if not isinstance(made, tuple):
        return made[:, 0], None
    return made[0][:, 0], made[1].reshape(len(v), -1).view(np.uint8).reshape(len(v), -1)


def check_equal(got, want, v, size):
    """With the first group of those that differ."""
    wrong = np.flatnonzero((got != want).any(-1))
    assert len(wrong) == 0, (f"{len(wrong)} of {len(got)} heads differ; head {wrong[0]} is {v[wrong[0]][:size].tolist()}: "
                             f"{got[wrong[0]].tolist()} for {want[wrong[0]].tolist()}")


@pytest.mark.parametrize("preset", WRITERS)
def test_against_formulas(rng, preset):
    """All groups, those with what is not finite too, of which the header says what becomes of them; and back."""
    size = GROUP.get(preset, 32)
    for n in rounds(100_000):
        v = heads_of(rng, preset, n)
        records, scales, values = expect(preset, v)
        got, got_scales = write(preset, v, threads=2)
        check_equal(got, records, v, size)
        assert (scales is None) == (got_scales is None)
        apart = None
        if scales is not None:
            check_equal(got_scales, scales, v, size)
            apart = got_scales.reshape(len(v), 1, -1)
            apart = apart.view(F32)[..., 0] if preset.startswith("vllm") else apart
        back = halyard.convert(got[:, None], from_groups=preset, from_group_scales=apart)[:, 0]
        same = (back.view(np.uint32) == values.view(np.uint32)) | (np.isnan(back) & np.isnan(values)) | (
            (back == 0) & (values == 0))
        assert same.all()


# ---- ggml's own -------------------------------------------------------------------------------------------------------


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
        check_equal(write(preset, v, threads=2)[0], want, v, 32)
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
        assert np.array_equal(write("ggml_q8_0", v, hadamard=n)[0], records)

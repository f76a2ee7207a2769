"""The records openvino_u8 and openvino_u4 have the bytes that OpenVINO itself writes. The paged attention of its CPU
plugin stores k and v in the caller's pages, which the test reads. HALYARD_TEST_GROUPS is the number of groups."""

import numpy as np
import pytest

import halyard
from test_writers import F32, MOST, N_GROUPS, check_equal, draw, rounds

openvino = pytest.importorskip("openvino")
if not openvino.__version__.startswith("2026.4"):
    pytest.skip(f"the inputs are those of OpenVINO 2026.4, not of {openvino.__version__}", allow_module_level=True)

BLOCK, HEADS = 32, 2  # tokens of a page, which the plugin fixes; heads of a token


def paged_attention(head_dim, type_name):
    """A model with one operation, PagedAttentionExtension. It has 28 inputs; those for scoring, rotating, skipping and
    evicting pages are empty."""
    from openvino import opset13 as op
    from openvino.op import _PagedAttentionExtension

    def constant(value, dtype):
        return op.constant(np.array(value, dtype))

    def parameter(name, shape, dtype):
        made = op.parameter(shape, dtype)
        made.output(0).set_names({name})
        return made

    no_int, no_float, zero = constant([], np.int32), constant([], F32), constant(0, np.int32)
    inputs = [parameter(name, [-1, HEADS * head_dim], getattr(openvino.Type, type_name)) for name in "qkv"]
    inputs += [parameter(name, [-1] * 4, openvino.Type.dynamic) for name in ("keys", "values")]
    inputs += [parameter(name, [-1], openvino.Type.i32) for name in
               ("past_lens", "subsequence_begins", "block_indices", "block_indices_begins")]
    longest = parameter("max_context_len", [], openvino.Type.i32)
    scale, sliding_window, alibi_slopes = constant(head_dim**-0.5, F32), zero, no_float
    scored, rotated = no_int, [no_int, no_int, no_float]
    sparse, sinks = [no_float, zero, zero], no_float
    evicted, token_types, tree = [zero, no_int, no_int, no_int], no_int, [constant([], np.uint8), no_int]
    node = _PagedAttentionExtension([x.output(0) for x in (
        *inputs, scale, sliding_window, alibi_slopes, longest, scored, *rotated, *sparse, sinks, *evicted, token_types,
        *tree)])
    for name in "k", "v":  # the plugin computes the size of a page from these
        node.get_rt_info()[f"num_{name}_heads"], node.get_rt_info()[f"{name}_head_size"] = HEADS, head_dim
    return openvino.Model([op.result(node.output(0))], [*inputs, longest])


def its_records(v, kind, type_name="f32"):
    """The records that OpenVINO writes for heads [n, head_dim], as keys and as values, each [n, bytes]. n is a multiple
    of BLOCK * HEADS. Each page is a sequence of its own, so that attention is quick."""
    n_pages, head_dim = len(v) // (BLOCK * HEADS), v.shape[1]
    compiled = openvino.Core().compile_model(paged_attention(head_dim, type_name), "CPU", {
        "KEY_CACHE_PRECISION": kind, "VALUE_CACHE_PRECISION": kind, "KEY_CACHE_QUANT_MODE": "BY_TOKEN",
        "KEY_CACHE_GROUP_SIZE": 0, "VALUE_CACHE_GROUP_SIZE": 0, "INFERENCE_PRECISION_HINT": type_name,
        "INFERENCE_NUM_THREADS": 2})
    request, pages = compiled.create_infer_request(), []
    for name in "keys", "values":
        shape = [n_pages, *(size.get_length() for size in list(compiled.input(name).partial_shape)[1:])]
        pages.append(openvino.Tensor(compiled.input(name).element_type, openvino.Shape(shape)))
        request.set_tensor(name, pages[-1])
    tokens = np.ascontiguousarray(v).reshape(-1, HEADS * head_dim)
    for name in "qkv":
        request.set_tensor(name, openvino.Tensor(np.zeros_like(tokens) if name == "q" else tokens))
    begins = np.arange(n_pages + 1, dtype=np.int32)
    for name, value in (("past_lens", begins[:-1] * 0), ("subsequence_begins", begins * BLOCK),
                        ("block_indices", begins[:-1]), ("block_indices_begins", begins),
                        ("max_context_len", np.array(BLOCK, np.int32))):
        request.set_tensor(name, openvino.Tensor(value))
    request.infer()
    return [np.ascontiguousarray(page.data).view(np.uint8).reshape(n_pages, HEADS, BLOCK, -1).transpose(0, 2, 1, 3)
            .reshape(len(v), -1) for page in pages]


def comparable(groups, max_q):
    """Which of the groups [n, size] Halyard and OpenVINO write alike. Their records differ in three cases: if a scale,
    a zero point or a reciprocal overflows, OpenVINO stores infinities and NaN; if a number is 2^31 or more before
    clamping, as in a head of equal large numbers, it stores 0; and with zeros of both signs, its zero point may have
    the other sign."""
    low, high = groups.min(-1), groups.max(-1)
    spread = high - low
    scale = spread / F32(max_q)
    scale = np.where(scale == 0, F32(1e-4), scale)
    return (np.isfinite(groups).all(-1) & (spread <= MOST) & np.isfinite(F32(1) / scale)
            & ~((spread == 0) & (np.abs(low) > 1e12)) & ~((groups == 0) & np.signbit(groups)).any(-1))


@pytest.mark.parametrize("kind", ["u8", "u4"])
@pytest.mark.parametrize("head_dim", [128, 64, 80])
def test_against_openvino(rng, kind, head_dim):
    """head_dim is a multiple of 16, because OpenVINO divides any elements beyond a multiple, and rounds halves
    of these away from zero."""
    n_compared = 0
    for n in rounds(250_000):
        with np.errstate(all="ignore"):
            v = draw(rng, n, head_dim)
            v = v[comparable(v, 255 if kind == "u8" else 15)]
        v = v[:len(v) // (BLOCK * HEADS) * (BLOCK * HEADS)]
        got = halyard.convert(v[:, None], groups=f"openvino_{kind}", threads=2)[:, 0]
        for want in its_records(v, kind):
            check_equal(got, want, v, head_dim)
        n_compared += len(v)
    assert n_compared > 0.97 * N_GROUPS

"""halyard::RotaryEmbedding beside ONNX's tests and reference, ONNX Runtime's built-in operators, and exact numbers."""

import threading
import warnings

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from nodes import DTYPES, check, feeds_of, make_model, make_session, rotate_exactly, run_node
from onnx import numpy_helper
from onnx.backend.test.case.node import collect_testcases
from onnx.reference import ReferenceEvaluator

INVALID = onnxruntime.capi.onnxruntime_pybind11_state.InvalidArgument


def onnx_cases():
    """All of onnx's cases of the operator; those called "expanded" have it as a function of other operators."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of other operators' cases
        return [case for case in collect_testcases("RotaryEmbedding")
                if case.model.graph.node[0].op_type == "RotaryEmbedding"]


def make_tables(rng, n, n_pairs, dtype):
    angles = rng.uniform(-np.pi, np.pi, (n, n_pairs))
    return np.cos(angles).astype(dtype), np.sin(angles).astype(dtype)


def inputs_for(rng, dtype, batch=2, tokens=5, heads=3, head_dim=16, rotary_dim=0, is_4d=False, positions="each",
               n_rows=64):
    """X, cos_cache, sin_cache, position_ids, and what is exact of them: X as [batch, tokens, heads, head_dim], rows."""
    x = rng.standard_normal((batch, tokens, heads, head_dim)).astype(dtype)
    n_pairs = (rotary_dim or head_dim) // 2
    ids = None
    if positions == "none":
        cos, sin = (t.reshape(batch, tokens, n_pairs) for t in make_tables(rng, batch * tokens, n_pairs, dtype))
        rows = cos, sin
    else:
        cos, sin = make_tables(rng, n_rows, n_pairs, dtype)
        ids = rng.integers(0, n_rows, (batch, tokens))
        where = ids
        if positions == "start":
            ids = rng.integers(0, n_rows - tokens + 1, 1)
            where = np.broadcast_to(ids[0] + np.arange(tokens), (batch, tokens))
        rows = cos[where], sin[where]
    shaped = np.ascontiguousarray(x.transpose(0, 2, 1, 3)) if is_4d else x.reshape(batch, tokens, heads * head_dim)
    return {"x": shaped, "cos": cos, "sin": sin, "ids": ids}, x, [r[:, :, None, :] for r in rows]


def as_bthd(y, x, is_4d):
    return y.transpose(0, 2, 1, 3) if is_4d else y.reshape(x.shape)


@pytest.mark.parametrize("case", onnx_cases(), ids=lambda case: case.name)
def test_onnx_cases(case):
    """The reference's numpy rounds two products and a sum of f32, each by 2^-24 of at most the pair's length, and so
    does the operator with one rounding less: 2 * 2^-23 of the length between them. A pair of [0, 1) has sqrt(2)."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    model.graph.node[0].domain = "halyard"
    model.opset_import.append(onnx.helper.make_opsetid("halyard", 1))
    session = make_session(model)
    assert len(case.data_sets) == 1
    for inputs, outputs in case.data_sets:
        y = session.run(None, dict(zip([i.name for i in model.graph.input], inputs)))[0]
        length = np.hypot(1, 1) * np.hypot(np.abs(inputs[1]).max(), np.abs(inputs[2]).max())
        assert y.shape == outputs[0].shape and y.dtype == outputs[0].dtype
        assert np.abs(y.astype(np.float64) - outputs[0]).max() <= 2 * 2.0**-23 * length


def test_onnx_has_eight_cases():
    assert len(onnx_cases()) == 8


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize("seed", range(25))
def test_random_shapes_are_exact(seed, dtype):
    rng = np.random.default_rng(seed)
    head_dim = int(rng.choice([2, 6, 16, 64, 80, 128, 96]))
    rotary_dim = int(rng.integers(1, head_dim // 2 + 1)) * 2 if rng.random() < 0.4 else 0
    is_4d, interleaved = bool(rng.integers(2)), int(rng.integers(2))
    inputs, x, rows = inputs_for(rng, dtype, *(int(n) for n in rng.integers(1, 9, 3)), head_dim, rotary_dim, is_4d,
                                 rng.choice(["each", "start", "none"]))
    attributes = {} if is_4d else {"num_heads": x.shape[2]}
    y = run_node("RotaryEmbedding", inputs, interleaved=interleaved, rotary_embedding_dim=rotary_dim, **attributes)
    exact, length = rotate_exactly(x, *rows, interleaved)
    y = as_bthd(y, x, is_4d)
    check(y, exact, length, dtype)
    beside = rotary_dim or head_dim
    assert (y[..., beside:] == x[..., beside:].astype(y.dtype)).all()


@pytest.mark.parametrize("seed", range(12))
def test_onnx_reference(seed):
    rng = np.random.default_rng(100 + seed)
    is_4d, interleaved = bool(seed & 1), seed >> 1 & 1
    inputs, x, rows = inputs_for(rng, np.float32, 2, 7, 4, 32, 16 if seed & 4 else 0, is_4d, "none" if seed & 8 else
                                 "each")
    attributes = {"interleaved": interleaved, "rotary_embedding_dim": 16 if seed & 4 else 0, "num_heads": 4}
    theirs = ReferenceEvaluator(make_model("RotaryEmbedding", inputs, domain="", **attributes)).run(
        None, feeds_of(inputs))[0]
    ours = run_node("RotaryEmbedding", inputs, **attributes)
    _, length = rotate_exactly(x, *rows, interleaved)
    assert (np.abs(as_bthd(ours, x, is_4d).astype(np.float64) - as_bthd(theirs, x, is_4d)) <= 2.0**-22 * length).all()


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("is_4d", [False, True])
@pytest.mark.parametrize("rotary_dim", [0, 32])
@pytest.mark.parametrize("domain, positions", [("", "each"), ("com.microsoft", "each"), ("com.microsoft", "start")])
@pytest.mark.parametrize("dtype", DTYPES[:2], ids=lambda d: np.dtype(d).name)
def test_built_in_beside(rng, domain, dtype, positions, rotary_dim, is_4d, interleaved):
    """Both in one session. ONNX Runtime rounds as the reference does; of f16 either may be off by half an ulp more, and
    so it may be where it calculates in f16: three roundings of 2^-11."""
    inputs, x, rows = inputs_for(rng, dtype, 2, 9, 4, 64, rotary_dim, is_4d, positions)
    model = make_model("RotaryEmbedding", inputs, num_heads=4, interleaved=interleaved, rotary_embedding_dim=rotary_dim)
    names = list(inputs) if domain == "" else ["x", "ids", "cos", "sin"]
    attributes = {"num_heads": 4, "interleaved": interleaved, "rotary_embedding_dim": rotary_dim}
    model.graph.node.append(onnx.helper.make_node("RotaryEmbedding", names, ["theirs"], domain=domain, **attributes))
    theirs = onnx.helper.make_tensor_value_info("theirs", model.graph.output[0].type.tensor_type.elem_type, None)
    model.graph.output.append(theirs)
    ours, theirs = make_session(model).run(None, feeds_of(inputs))
    exact, length = rotate_exactly(x, *rows, interleaved)
    between = 2.0**-22 * length + (0 if dtype == np.float32 else 4 * 2.0**-11 * length + 2.0**-24)
    off = np.abs(as_bthd(ours, x, is_4d).astype(np.float64) - as_bthd(theirs, x, is_4d).astype(np.float64))
    assert (off <= between).all()
    check(as_bthd(ours, x, is_4d), exact, length, dtype)


@pytest.mark.parametrize("domain", ["", "com.microsoft", "halyard"])
@pytest.mark.parametrize("position", [64, -1, 2**31, 2**40, -(2**63)])
def test_positions_out_of_range_are_refused_alike(rng, domain, position):
    inputs, _, _ = inputs_for(rng, np.float32)
    inputs["ids"][1, 3] = position
    if domain == "com.microsoft":
        inputs = {name: inputs[name] for name in ("x", "ids", "cos", "sin")}
    with pytest.raises(INVALID) as error:
        run_node("RotaryEmbedding", inputs, domain=domain, num_heads=3)
    assert domain != "halyard" or str(position) in str(error.value)


def test_built_in_has_no_bf16(rng):
    inputs, _, _ = inputs_for(rng, ml_dtypes.bfloat16)
    with pytest.raises(onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented):
        run_node("RotaryEmbedding", inputs, domain="", num_heads=3)


def test_heads_follow_from_the_table_without_num_heads(rng):
    inputs, x, rows = inputs_for(rng, np.float32)
    check(as_bthd(run_node("RotaryEmbedding", inputs), x, False), *rotate_exactly(x, *rows), np.float32)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize("shape", [(2, 5, 3), (1, 1, 8), (2, 4, 4)])
def test_norm_and_tokens_first(rng, dtype, shape):
    """As many tokens as heads give the output the input's shape, and then ONNX Runtime may offer the input's memory."""
    inputs, x, rows = inputs_for(rng, dtype, *shape, 32)
    weight = rng.uniform(0.5, 1.5, 32).astype(dtype)
    inputs = {**inputs, "x": x, "weight": weight}
    v = x.astype(np.float64)
    normed = v / np.sqrt((v**2).mean(-1, keepdims=True) + np.float64(np.float32(1e-3))) * weight.astype(np.float64)
    exact, length = rotate_exactly(normed, *rows)
    y = run_node("RotaryEmbedding", inputs, tokens_first=1, epsilon=1e-3)
    assert y.shape == (shape[0], shape[2], shape[1], 32)
    check(y.transpose(0, 2, 1, 3), exact, length, dtype, n_eps=2 + 4 + (32 / 16 + 5) / 2)


def test_tokens_first_in_a_static_chain(rng):
    """X is a value that ends here and Y one that begins here, of the very same shape."""
    inputs, x, rows = inputs_for(rng, np.float32, 2, 4, 4, 32)
    inputs["x"] = x
    model = make_model("RotaryEmbedding", inputs, tokens_first=1)
    for dim, size in zip(model.graph.input[0].type.tensor_type.shape.dim, x.shape):
        dim.dim_value = size
    model.graph.node[0].input[0], model.graph.node[0].output[0] = "doubled", "turned"
    model.graph.node.insert(0, onnx.helper.make_node("Add", ["x", "x"], ["doubled"]))
    model.graph.node.append(onnx.helper.make_node("Neg", ["turned"], ["out0"]))
    y = make_session(model).run(None, feeds_of(inputs))[0]
    check(y.transpose(0, 2, 1, 3), *rotate_exactly(-2 * x, *rows), np.float32)


@pytest.mark.parametrize("positions", ["each", "none"])
def test_tables_may_change_from_call_to_call(rng, positions):
    session = None
    for n_rows in (64, 64, 64, 9, 64):
        inputs, x, rows = inputs_for(rng, np.float32, positions=positions, n_rows=n_rows)
        session = session or make_session(make_model("RotaryEmbedding", inputs, num_heads=3))
        kept = feeds_of(inputs)  # so that the next tables lie elsewhere
        check(session.run(None, kept)[0].reshape(x.shape), *rotate_exactly(x, *rows), np.float32)


def test_exact_angles(rng):
    """inv_freq takes the tables' place, at any position."""
    base, n_pairs = 10000.0, 32
    inv_freq = base ** (-np.arange(n_pairs) / n_pairs)
    x = rng.standard_normal((1, 4, 2 * 64)).astype(np.float32)
    ids = np.array([[0, 1, 131_071, 2**31 - 1]])
    y = run_node("RotaryEmbedding", {"x": x, "cos": None, "sin": None, "ids": ids}, num_heads=2,
                 inv_freq=numpy_helper.from_array(inv_freq), attention_factor=1.25)
    angles = ids[..., None].astype(np.longdouble) * inv_freq.astype(np.longdouble)
    rows = [(1.25 * f(angles)).astype(np.float64)[:, :, None, :] for f in (np.cos, np.sin)]
    check(y.reshape(1, 4, 2, 64), *rotate_exactly(x.reshape(1, 4, 2, 64), *rows), np.float32)


def test_exact_angles_are_refused_beyond_n_positions(rng):
    x = rng.standard_normal((1, 4, 2 * 64)).astype(np.float32)
    inv_freq = numpy_helper.from_array(np.ones(32))
    inputs = {"x": x, "cos": None, "sin": None, "ids": np.array([4])}
    run_node("RotaryEmbedding", inputs, num_heads=2, inv_freq=inv_freq, n_positions=8)
    with pytest.raises(INVALID, match="position"):
        run_node("RotaryEmbedding", inputs, num_heads=2, inv_freq=inv_freq, n_positions=7)


@pytest.mark.parametrize("empty", ["batch", "tokens"])
@pytest.mark.parametrize("positions", ["each", "none"])
def test_empty(rng, empty, positions):
    inputs, _, _ = inputs_for(rng, np.float32, positions=positions, **{empty: 0})
    assert run_node("RotaryEmbedding", inputs, num_heads=3).shape == inputs["x"].shape


def test_any_number_of_threads_gives_the_same_bits(rng):
    inputs, x, rows = inputs_for(rng, np.float32, 2, 300, 16, 128, n_rows=512)
    results = [run_node("RotaryEmbedding", inputs, num_heads=16, n_threads=n) for n in (1, 2, 4)]
    check(as_bthd(results[0], x, False), *rotate_exactly(x, *rows), np.float32)
    assert all((r == results[0]).all() for r in results)


def test_threads_may_share_a_session(rng):
    """Each with shapes and tables of its own, more of them than the node keeps runs for."""
    tasks = [inputs_for(rng, np.float32, 1 + i % 2, 1 + 7 * i, 4, 64, positions=["each", "start", "none"][i % 3],
                        n_rows=300)[0] for i in range(36)]
    sessions = {}
    for task in tasks:
        key = (task["ids"] is None, task["cos"].ndim, None if task["ids"] is None else task["ids"].ndim)
        sessions.setdefault(key, make_session(make_model("RotaryEmbedding", task, num_heads=4), 2))
    of_task = [sessions[(t["ids"] is None, t["cos"].ndim, None if t["ids"] is None else t["ids"].ndim)] for t in tasks]
    expected = [s.run(None, feeds_of(t))[0] for s, t in zip(of_task, tasks)]
    wrong = []

    def work(first):
        for i in [(first * 5 + n) % len(tasks) for n in range(120)]:
            y = of_task[i].run(None, feeds_of(tasks[i]))[0]
            if not (y == expected[i]).all():
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


F32 = np.float32


def tables(shape):
    return {"cos": np.zeros(shape, F32), "sin": np.zeros(shape, F32)}


# What is wrong -> (inputs that differ, attributes that differ, what the sentence says).
BAD = {
    "x of two dimensions": ({"x": np.zeros((10, 48), F32)}, {}, "3 or 4 dimensions"),
    "x of five dimensions": ({"x": np.zeros((1, 1, 1, 1, 16), F32)}, {}, "3 or 4 dimensions"),
    "heads that do not divide": ({}, {"num_heads": 5}, "num_heads = 5"),
    "negative heads": ({}, {"num_heads": -3}, "num_heads is -3"),
    "neither heads nor whole heads": ({}, {"num_heads": 0, "rotary_embedding_dim": 16}, "num_heads = 0"),
    "odd rotary_dim": ({}, {"rotary_embedding_dim": 15}, "rotary_embedding_dim is 15"),
    "negative rotary_dim": ({}, {"rotary_embedding_dim": -2}, "rotary_embedding_dim is -2"),
    "rotary_dim beyond the head": (tables((64, 9)), {"rotary_embedding_dim": 18}, "rotary"),
    "odd head": ({"x": np.zeros((2, 5, 45), F32), **tables((64, 7))}, {},
                 "rotary_dim"),
    "no cos": ({"cos": None}, {}, "cos_cache is missing"),
    "no sin": ({"sin": None}, {}, "sin_cache is missing"),
    "sin unlike cos": ({"sin": np.zeros((63, 8), F32)}, {}, "but sin_cache"),
    "narrow tables": (tables((64, 7)), {}, "rotary_dim / 2 = 8"),
    "wide tables": (tables((64, 16)), {}, "rotary_dim / 2 = 8"),
    "tables of one dimension": (tables(8), {}, "cos_cache is [8]"),
    "tables of three dimensions beside positions": (tables((2, 5, 8)), {}, "cos_cache is [2, 5, 8]"),
    "tables of two dimensions without positions": ({"ids": None}, {}, "where position_ids is left out"),
    "rows of too few tokens": ({"ids": None, **tables((2, 4, 8))}, {}, "[2, 5, 8]"),
    "tables without rows": (tables((0, 8)), {}, "n_rows"),
    "too few positions": ({"ids": np.zeros((2, 4), np.int64)}, {}, "position_ids is [2, 4]"),
    "positions of one batch row": ({"ids": np.zeros((1, 5), np.int64)}, {}, "position_ids is [1, 5]"),
    "two starts": ({"ids": np.zeros(2, np.int64)}, {}, "position_ids is [2]"),
    "a scalar position": ({"ids": np.array(0)}, {}, "position_ids is []"),
    "a start near the end": ({"ids": np.array([60])}, {}, "64"),
    "norm_weight of another size": ({"weight": np.zeros(15, F32)}, {}, "norm_weight is [15]"),
    "norm_weight of two dimensions": ({"weight": np.zeros((1, 16), F32)}, {}, "norm_weight is [1, 16]"),
    "negative epsilon": ({"weight": np.zeros(16, F32)}, {"epsilon": -1.0}, "eps"),
    "inv_freq of f32": ({}, {"inv_freq": numpy_helper.from_array(np.ones(8, F32))}, "inv_freq is not"),
    "inv_freq that is infinite": ({}, {"inv_freq": numpy_helper.from_array(np.full(8, np.inf))}, "inv_freq"),
    "attention_factor of zero": ({}, {"inv_freq": numpy_helper.from_array(np.ones(8)), "attention_factor": 0.0},
                                 "attention_factor"),
    "positions of int32": ({"ids": np.zeros((2, 5), np.int32)}, {}, "Type"),
    "x of double": ({"x": np.zeros((2, 5, 48))}, {}, "Type|type"),
    "tables of another type": ({"cos": np.zeros((64, 8), np.float16)}, {}, "Type|type"),
    "frequencies of another width": ({"cos": None, "sin": None}, {"inv_freq": numpy_helper.from_array(np.ones(7))},
                                     "rotary_dim"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input_is_a_sentence(rng, what):
    """And the same session goes on to run what is right."""
    different, attributes, sentence = BAD[what]
    inputs, _, _ = inputs_for(rng, np.float32)
    inputs = {**inputs, "weight": None, **different}
    with pytest.raises(Exception, match=sentence.replace("[", "\\[")) as error:
        run_node("RotaryEmbedding", inputs, **{"num_heads": 3, **attributes})
    assert type(error.value).__module__.startswith("onnxruntime")


def test_a_session_goes_on_after_an_error(rng):
    inputs, x, rows = inputs_for(rng, np.float32)
    session = make_session(make_model("RotaryEmbedding", inputs, num_heads=3))
    good = session.run(None, feeds_of(inputs))[0]
    bad = dict(inputs, ids=inputs["ids"] + 64)
    for _ in range(3):
        with pytest.raises(INVALID):
            session.run(None, feeds_of(bad))
        assert (session.run(None, feeds_of(inputs))[0] == good).all()
    check(as_bthd(good, x, False), *rotate_exactly(x, *rows), np.float32)


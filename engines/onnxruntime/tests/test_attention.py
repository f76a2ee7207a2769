"""Graphs whose GroupQueryAttention rotates, and MRotaryEmbedding: the same after rewriting, or left with a reason."""

import json

import numpy as np
import onnx
import pytest
import rewrite
from nodes import TYPES, make_session, run_node
from onnx import TensorProto, helper, numpy_helper
from test_rewrite import model_of, operators, rewrite_model, tables

HEADS, KV_HEADS, HEAD_DIM, N_POSITIONS = 4, 2, 16, 64
NAMES = ["query", "key", "value", "past_key", "past_value", "seqlens_k", "total_sequence_length", "cos", "sin",
         "position_ids", "attention_bias", "head_sink", "k_scale", "v_scale", "q_norm_weight", "k_norm_weight"]
SHARED = {"num_heads": HEADS, "kv_num_heads": KV_HEADS, "do_rotary": 1}


def feeds_of(rng, n_tokens, ends, total, capacity=0, packed=False, dtype=np.float32, **more):
    """Inputs of batch rows that end at positions `ends`, with caches of this capacity."""
    def values(*shape):
        return rng.standard_normal(shape).astype(dtype)

    n_batch, caches = len(ends), (len(ends), KV_HEADS, capacity, HEAD_DIM)
    feeds = {"query": values(n_batch, n_tokens, (HEADS + 2 * KV_HEADS * packed) * HEAD_DIM)}
    if not packed:
        feeds |= {name: values(n_batch, n_tokens, KV_HEADS * HEAD_DIM) for name in ("key", "value")}
    return feeds | {"past_key": values(*caches), "past_value": values(*caches), "seqlens_k": np.int32(ends),
                    "total_sequence_length": np.array(total, np.int32), **more}


def attention(feeds, initializers=None, dtype=np.float32, **attributes):
    """A model of one node with these inputs, whose shapes are known as the builder has them."""
    initializers = tables(N_POSITIONS, HEAD_DIM // 2, dtype) if initializers is None else initializers
    known = {*feeds, *(t.name for t in initializers)}
    inputs = [name if name in known else "" for name in NAMES]
    inputs = inputs[:1 + max(i for i, name in enumerate(inputs) if name)]
    attributes = {name: value for name, value in {**SHARED, **attributes}.items() if value is not None}
    node = helper.make_node("GroupQueryAttention", inputs, ["y", "present_key", "present_value"],
                            domain="com.microsoft", **attributes)
    infos = [helper.make_tensor_value_info(name, TYPES[array.dtype], [
        f"{name}_{i}" if name[:3] in ("pas", "pos") or i < 2 and array.ndim == 3 else n
        for i, n in enumerate(array.shape)]) for name, array in feeds.items()]
    kind = TYPES[np.dtype(dtype)]
    return model_of([node], infos, [helper.make_tensor_value_info(o, kind, None) for o in node.output], initializers)


IDS = np.array([[40, 3, 5, 60, 1], [7, 7, 0, 63, 9]])
CASES = {
    "a prompt": (5, [4, 4], 5, {}),
    "rows of different lengths": (5, [4, 1], 5, {}),
    "a token of each": (1, [8, 5], 9, {"capacity": 8}),
    "with room in the caches": (1, [8, 5], 9, {"capacity": 20}),
    "some tokens after others": (3, [8], 9, {"capacity": 6}),
    "a first token": (1, [0, 0], 1, {}),
    "position_ids of a prompt": (5, [4, 2], 5, {"position_ids": IDS}),
    "position_ids of tokens": (1, [8, 5], 9, {"capacity": 8, "position_ids": IDS[:, :1]}),
    "position_ids of some tokens": (3, [8], 9, {"capacity": 6, "position_ids": IDS[:1, :3]}),
    "sinks": (5, [4, 2], 5, {"head_sink": np.linspace(-1, 2, HEADS, dtype=np.float32)}),
}


def compare(tmp_path, model, feeds, n_eps=2.0**-18, **options):
    done, rewritten = rewrite_model(tmp_path, model, **options)
    assert done.replaced.total() == 1 and not done.left
    stock, ours = (make_session(m).run(None, feeds) for m in (model, rewritten))
    n_tokens = feeds.get("query", feeds.get("query_in")).shape[1]
    for outputs in stock, ours:  # what lies behind the end of a prompt that is shorter than others is anything
        for row, end in enumerate(feeds["seqlens_k"] if feeds["total_sequence_length"] == n_tokens else ()):
            outputs[0][row, end + 1:] = outputs[1][row, :, end + 1:] = outputs[2][row, :, end + 1:] = 0
    for a, b in zip(stock, ours):
        a, b = a.astype(np.float64), b.astype(np.float64)
        assert a.shape == b.shape and np.abs(a - b).max() <= n_eps * np.abs(a).max()
    assert (stock[2] == ours[2]).all(), "values are not rotated"
    return rewritten


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_the_same(tmp_path, rng, case, packed):
    """Rotations differ by a rounding or two, 2 · 2^-23 of a pair's length; a softmax of scores below 16 makes less than
    2^-18 of that."""
    n_tokens, ends, total, more = CASES[case]
    feeds = feeds_of(rng, n_tokens, ends, total, packed=packed, **more)
    rewritten = compare(tmp_path, attention(feeds), feeds)
    assert operators(rewritten)["halyard", "RotaryEmbedding"] == (1 if packed else 2)
    assert "do_rotary" not in rewrite.attributes_of(rewritten.graph.node[-1])


@pytest.mark.parametrize("attributes", [{"rotary_interleaved": 1}, {"local_window_size": 3}, {"softcap": 5.0},
                                        {"scale": 0.7}, {"smooth_softmax": 1},
                                        {"local_window_size": 4, "sliding_window_cache": 1}])
def test_attributes(tmp_path, rng, attributes):
    feeds = feeds_of(rng, 3, [8], 9, capacity=6, packed=True)
    compare(tmp_path, attention(feeds, **attributes), feeds)


@pytest.mark.parametrize("packed", [False, True])
def test_f16_and_partial(tmp_path, rng, packed):
    """In f16 a rotation's rounding is 2^-11 of an element, in both."""
    feeds = feeds_of(rng, 5, [4, 2], 5, packed=packed, dtype=np.float16)
    compare(tmp_path, attention(feeds, dtype=np.float16), feeds, 2.0**-8)
    feeds = {n: a.astype(np.float32) if a.dtype == np.float16 else a for n, a in feeds.items()}
    feeds = {n: np.concatenate([a, a], -1) if a.ndim > 2 else a for n, a in feeds.items()}  # heads of 32
    compare(tmp_path, attention(feeds), feeds)


def test_frequencies(tmp_path, rng):
    path = tmp_path / "f.json"
    path.write_text(json.dumps({"inv_freq": list(10000.0 ** (-np.arange(8) / 8))}))
    feeds = feeds_of(rng, 5, [4, 2], 5, packed=True)
    rewritten = compare(tmp_path, attention(feeds), feeds, exact=path)
    assert not rewritten.graph.initializer
    path.write_text(json.dumps({"inv_freq": [1.0] * 8}))
    with pytest.raises(rewrite.Refusal, match="not of these frequencies"):
        rewrite_model(tmp_path, attention(feeds), exact=path)


def test_many_nodes_share_positions(tmp_path, rng):
    feeds = feeds_of(rng, 5, [4, 2], 5, packed=True)
    model = attention(feeds)
    again = model.graph.node.add()
    again.CopyFrom(model.graph.node[0])
    again.output[:] = ["y2", "halyard/RotaryEmbedding_1", "v2"]
    _, rewritten = rewrite_model(tmp_path, model)
    assert operators(rewritten)["halyard", "Positions"] == 1
    make_session(rewritten).run(None, feeds)
    again.input[5] = "other"
    model.graph.input.append(helper.make_tensor_value_info("other", TensorProto.INT32, [2]))
    _, rewritten = rewrite_model(tmp_path, model)
    assert operators(rewritten)["halyard", "Positions"] == 2


def scales(name):
    return numpy_helper.from_array(np.ones(1, np.float32), name)


HALF = tables(N_POSITIONS, 4)
WRONG = {
    "an unknown attribute": ({"colour": 1}, {}, "attribute colour is unknown"),
    "quantised keys": ({"k_quant_type": "PER_TENSOR"}, {}, "k_quant_type"),
    "quantised values": ({"v_quant_type": "PER_CHANNEL"}, {}, "v_quant_type"),
    "a bit width": ({"kv_cache_bit_width": 4}, {}, "kv_cache_bit_width is 4"),
    "interleaved in another way": ({"rotary_interleaved": 2}, {}, "rotary_interleaved is 2"),
    "no heads": ({"num_heads": 0}, {}, "num_heads and kv_num_heads are 0 and 2"),
    "a number of heads left out": ({"kv_num_heads": None}, {}, "num_heads and kv_num_heads are 4 and 0"),
    "heads that do not fit": ({"num_heads": 7}, {}, "not 11 heads"),
    "a scale of keys": ({}, {"more": [scales("k_scale")]}, "k_scale is there"),
    "a scale of values": ({}, {"more": [scales("v_scale")]}, "v_scale is there"),
    "a norm of q inside": ({}, {"more": [scales("q_norm_weight")]}, "q_norm_weight is there"),
    "a norm of k inside": ({}, {"more": [scales("k_norm_weight")]}, "k_norm_weight is there"),
    "no cos": ({}, {"tables": tables(8)[1:]}, "cos_cache is missing"),
    "no tables": ({}, {"tables": []}, "cos_cache is missing"),
    "no lengths": ({}, {"without": "seqlens_k"}, "seqlens_k is missing"),
    "no total": ({}, {"without": "total_sequence_length"}, "total_sequence_length is missing"),
    "tables too wide": ({}, {"tables": tables(64, 16)}, "heads that cos_cache"),
    "tables of two widths": ({}, {"tables": [tables(64)[0], HALF[1]]}, "not alike"),
    "tables of another dtype": ({}, {"tables": tables(64, 8, np.float16)}, "not alike"),
    "tables of doubles": ({}, {"tables": tables(64, 8, np.float64)}, "not alike"),
    "tables of one dimension": ({}, {"tables": [scales("cos"), scales("sin")]}, "how wide cos_cache is"),
    "a value without key": ({}, {"value": True}, "one of key and value"),
    "a cache of another type": ({}, {"cache": np.int32}, "past_key is not of query's type"),
    "an input more": ({}, {"extra": True}, "it has 17 inputs"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_left(tmp_path, rng, case):
    attributes, change, reason = WRONG[case]
    feeds = feeds_of(rng, 5, [4, 2], 5, packed=True)
    feeds.pop(change.get("without"), None)
    if "value" in change:
        feeds["value"] = feeds["query"]
    if "cache" in change:
        feeds["past_key"] = feeds["past_key"].astype(change["cache"])
    initializers = change.get("tables", tables(N_POSITIONS)) + change.get("more", [])
    model = attention(feeds, initializers, **attributes)
    if "extra" in change:
        model.graph.node[0].input.extend(["query"] * (17 - len(model.graph.node[0].input)))
    done, rewritten = rewrite_model(tmp_path, model)
    assert not done.replaced and [why for why in done.left if reason in why], done.left
    assert rewritten == model == onnx.load(tmp_path / "in.onnx")


def test_what_does_not_rotate_is_not_counted(tmp_path, rng):
    for do_rotary, options in (0, {}), (1, {"attention": False}):
        model = attention(feeds_of(rng, 5, [4, 2], 5, packed=True), do_rotary=do_rotary)
        done, rewritten = rewrite_model(tmp_path, model, **options)
        assert not done.replaced and not done.left and rewritten == model


def test_lengths_at_run_time(tmp_path, rng):
    """What ONNX Runtime refuses is refused, with a sentence."""
    feeds = feeds_of(rng, 3, [8], 9, capacity=6, packed=True, position_ids=IDS[:1, :3])
    plain = {name: array for name, array in feeds.items() if name != "position_ids"}
    for some, change, reason in [
            (plain, {"seqlens_k": np.int32([1])}, "is 1, but there are 3 tokens"),
            (plain, {"seqlens_k": np.int32([1, 2])}, "a number for each batch row"),
            (plain, {"total_sequence_length": np.int32([9, 9])}, "a number for each batch row"),
            (plain, {"seqlens_k": np.int32([90])}, "position"),
            (feeds, {"position_ids": IDS[:1, :2]}, r"position_ids is \[1, 2\]"),
            (feeds, {"position_ids": -IDS[:1, :3]}, "-40"), (feeds, {"position_ids": IDS[:1, :3] + 40}, "80")]:
        model = attention(some)
        for value in model.graph.input:
            if value.name in ("seqlens_k", "total_sequence_length"):
                value.type.tensor_type.ClearField("shape")
        _, rewritten = rewrite_model(tmp_path, model)
        with pytest.raises(Exception, match=reason):
            make_session(rewritten).run(None, {**some, **change})


def normed(heads, prefix):
    """[batch, tokens, heads * head_dim] -> norm of each head -> back, as the builder has it."""
    shapes = {f"{prefix}_split": [0, -1, HEAD_DIM], f"{prefix}_back": [0, -1, heads * HEAD_DIM]}
    made = [numpy_helper.from_array(np.array(shape), name) for name, shape in shapes.items()]
    made.append(numpy_helper.from_array(np.linspace(0.5, 1.5, HEAD_DIM, dtype=np.float32), f"{prefix}_weight"))
    nodes = [helper.make_node("Reshape", [f"{prefix}_in", made[0].name], [f"{prefix}_heads"]),
             helper.make_node("SimplifiedLayerNormalization", [f"{prefix}_heads", made[2].name], [f"{prefix}_normed"],
                              axis=-1, epsilon=1e-3),
             helper.make_node("Reshape", [f"{prefix}_normed", made[1].name], [prefix])]
    return nodes, made


@pytest.mark.parametrize("what", ["joined", "read elsewhere", "another shape"])
def test_norms(tmp_path, rng, what):
    feeds = feeds_of(rng, 5, [4, 2], 5)
    model = attention(feeds)
    for name, heads in ("key", KV_HEADS), ("query", HEADS):
        nodes, constants = normed(heads, name)
        for node in reversed(nodes):
            model.graph.node.insert(0, node)
        if what == "another shape":
            constants[0] = numpy_helper.from_array(np.array([-1, HEAD_DIM]), f"{name}_split")
            constants[1] = numpy_helper.from_array(np.array([2, -1, heads * HEAD_DIM]), f"{name}_back")
        model.graph.initializer.extend(constants)
        next(i for i in model.graph.input if i.name == name).name = f"{name}_in"
        feeds[f"{name}_in"] = feeds.pop(name)
    if what == "read elsewhere":
        model.graph.output.extend(onnx.helper.make_tensor_value_info(n, 1, None) for n in ("query_normed", "key"))
    rewritten = compare(tmp_path, model, feeds)
    assert operators(rewritten)["", "SimplifiedLayerNormalization"] == (0 if what == "joined" else 2)


@pytest.mark.parametrize("name, shape", [("query_split", [5, -1, HEAD_DIM]), ("query_split", [0, -1, 8]),
                                         ("query_back", [5, -1, HEADS * HEAD_DIM]), ("query_back", [0, -1, 32])])
def test_norms_that_stay(tmp_path, rng, name, shape):
    """Other batch rows, or other heads, than those of the node."""
    model = attention(feeds_of(rng, 5, [4, 2], 5))
    nodes, constants = normed(HEADS, "query")
    constants = [numpy_helper.from_array(np.array(shape), name) if t.name == name else t for t in constants]
    for node in reversed(nodes):
        model.graph.node.insert(0, node)
    model.graph.initializer.extend(constants)
    next(i for i in model.graph.input if i.name == "query").name = "query_in"
    done, _ = rewrite_model(tmp_path, model)
    assert not done.joined


@pytest.mark.parametrize("layout, sections", [(0, [2, 3, 3]), (1, [3, 3, 2]), (0, [8, 0, 0]), (1, [4, 2, 2])])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_axes(tmp_path, rng, layout, sections, dtype):
    """MRotaryEmbedding against ONNX Runtime's."""
    x = rng.standard_normal((2, 5, 3 * HEAD_DIM)).astype(dtype)
    ids = rng.integers(0, N_POSITIONS, (3, 2, 5))
    kind = TYPES[np.dtype(dtype)]
    node = helper.make_node("MRotaryEmbedding", ["x", "ids", "cos", "sin"], ["y"], domain="com.microsoft", num_heads=3,
                            rotary_embedding_dim=HEAD_DIM, mrope_section=sections, mrope_layout=layout)
    infos = [helper.make_tensor_value_info("x", kind, x.shape),
             helper.make_tensor_value_info("ids", TensorProto.INT64, ids.shape)]
    model = model_of([node], infos, [helper.make_tensor_value_info("y", kind, None)],
                     tables(N_POSITIONS, HEAD_DIM // 2, dtype))
    done, rewritten = rewrite_model(tmp_path, model)
    assert done.replaced.total() == 1 and operators(rewritten)["halyard", "RotaryEmbedding"] == 1
    stock, ours = (make_session(m).run(None, {"x": x, "ids": ids})[0].astype(np.float32) for m in (model, rewritten))
    np.testing.assert_allclose(ours, stock, rtol=0, atol=2.0**-21 if dtype == np.float32 else 2.0**-8)
    for attributes in {"scale": 2.0}, {"is_packed_batching": 1}, {"colour": 1}:
        other = onnx.ModelProto.FromString(model.SerializeToString())
        other.graph.node[0].attribute.extend(helper.make_attribute(*item) for item in attributes.items())
        done, rewritten = rewrite_model(tmp_path, other)
        assert not done.replaced and done.left.total() == 1 and rewritten == other


@pytest.mark.parametrize("attributes, shape, reason", [
    ({"mrope_section": [2, 3]}, (3, 1, 5), "three counts"), ({"mrope_section": [2, 7, -1]}, (3, 1, 5), "three counts"),
    ({"mrope_section": [4, 2, 2], "mrope_layout": 2}, (3, 1, 5), "which is 2"),
    ({"mrope_section": [4, 2, 1]}, (3, 1, 5), "axis"), ({"mrope_section": [4, 2, 2]}, (1, 5), r"\[1, 5\]"),
    ({"rotated_heads": 4}, (1, 5), "rotated_heads is 4"), ({"rotated_heads": -1}, (1, 5), "rotated_heads is -1")])
def test_wrong_attributes(rng, attributes, shape, reason):
    x = rng.standard_normal((1, 5, 3 * HEAD_DIM)).astype(np.float32)
    cos, sin = (numpy_helper.to_array(t) for t in tables(N_POSITIONS, HEAD_DIM // 2))
    inputs = {"x": x, "cos": cos, "sin": sin, "ids": np.zeros(shape, np.int64)}
    with pytest.raises(Exception, match=reason):
        run_node("RotaryEmbedding", inputs, num_heads=3, **attributes)

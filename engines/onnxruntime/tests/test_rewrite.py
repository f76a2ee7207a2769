"""rewrite.py: what it replaces, joins, leaves and refuses, and decoders that say the same before and after."""

import collections
import json
import pathlib
import subprocess
import sys

import numpy as np
import onnx
import pytest
import rewrite
from decoder import Decoder
from nodes import make_session, opsets
from onnx import TensorProto, helper, numpy_helper

PROMPT = list(range(3, 40))


def info(name, shape, kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def model_of(nodes, inputs, outputs, initializers=(), functions=()):
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(initializers))
    imports = [o for o in opsets(23) if o.domain != "halyard"] + [helper.make_opsetid(f.domain, 1) for f in functions]
    return helper.make_model(graph, opset_imports=imports, functions=list(functions), ir_version=10)


def tables(n=64, n_pairs=8, dtype=np.float32):
    angles = np.arange(n)[:, None] * 10000.0 ** (-np.arange(n_pairs) / n_pairs)
    return [numpy_helper.from_array(f(angles).astype(dtype), name) for f, name in ((np.cos, "cos"), (np.sin, "sin"))]


def rewrite_model(tmp_path, model, **options):
    source, target = tmp_path / "in.onnx", tmp_path / "out.onnx"
    onnx.save(model, source)
    done = rewrite.rewrite_file(source, target, force=True, **options)
    return done, onnx.load(target)


def operators(model):
    return collections.Counter((n.domain, n.op_type) for n in model.graph.node)


def outputs_of(model, feeds):
    return make_session(model).run(None, feeds)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("style", ["onnx", "microsoft"])
def test_decoder(tmp_path, style, exact):
    """The same greedy tokens. Logits differ by roundings: a relative 2^-22 of each rotation goes through two layers."""
    decoder = Decoder(style)
    frequencies = tmp_path / "frequencies.json"
    frequencies.write_text(json.dumps({"inv_freq": list(decoder.inv_freq), "attention_factor": 1.0}))
    done, rewritten = rewrite_model(tmp_path, decoder.model, exact=frequencies if exact else None)
    assert done.replaced.total() == 4 and not done.left
    counts = operators(rewritten)
    assert counts["halyard", "RotaryEmbedding"] == 4
    assert not {("", "RotaryEmbedding"), ("com.microsoft", "RotaryEmbedding")} & set(counts)
    before = operators(decoder.model)
    joined = 4 if style == "onnx" else 0
    assert before["", "Transpose"] - counts["", "Transpose"] == joined
    assert before["", "RMSNormalization"] - counts["", "RMSNormalization"] == joined
    assert ("cos" in {t.name for t in rewritten.graph.initializer}) == (not exact)
    stock = decoder.generate(make_session(decoder.model, library=False), PROMPT, 48)
    ours = decoder.generate(make_session(rewritten), PROMPT, 48)
    assert ours[0] == stock[0]
    assert len(set(stock[0])) > 5
    assert np.abs(ours[1] - stock[1]).max() < 1e-3 * np.abs(stock[1]).max()


def generate(session, n):
    """n greedy tokens after two prompts, each from all tokens before, and the logits of the last."""
    tokens = np.array([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]])
    for _ in range(n):
        position_ids = np.broadcast_to(np.arange(tokens.shape[1]), tokens.shape).copy()
        logits, = session.run(None, {"tokens": tokens, "position_ids": position_ids})
        tokens = np.concatenate([tokens, logits[:, -1].argmax(-1)[:, None]], axis=1)
    return tokens, logits


def test_exported_decoder(tmp_path):
    """What torch.onnx made of export_decoder.py: the same greedy tokens. Logits differ by roundings: a relative 2^-22 of
    each rotation goes through two layers."""
    model = onnx.load(pathlib.Path(__file__).with_name("exported.onnx"))
    done, rewritten = rewrite_model(tmp_path, model)
    assert done.replaced == {"ai.onnx": 4} and not done.left
    before, after = operators(model), operators(rewritten)
    assert after["halyard", "RotaryEmbedding"] == before["", "RotaryEmbedding"] == 4
    assert before["", "RMSNormalization"] - after["", "RMSNormalization"] == 4
    assert before["", "Transpose"] - after["", "Transpose"] == 4
    tokens, logits = generate(make_session(model, library=False), 50)
    our_tokens, our_logits = generate(make_session(rewritten), 50)
    assert (tokens == our_tokens).all() and len(np.unique(tokens[:, 5:])) > 5
    assert np.abs(logits - our_logits).max() <= 2.0**-16 * np.abs(logits).max()


def test_again_nothing_is_left_to_do(tmp_path):
    _, rewritten = rewrite_model(tmp_path, Decoder("onnx").model)
    done, again = rewrite_model(tmp_path, rewritten)
    assert done.replaced.total() == done.left.total() == 0
    assert again == rewritten


def rotation(x="x", y="y", **attributes):
    return helper.make_node("RotaryEmbedding", [x, "cos", "sin", "ids"], [y], **attributes)


X4, IDS = info("x", [1, 2, 3, 16]), info("ids", [1, 3], TensorProto.INT64)
FEEDS = {"x": np.arange(96, dtype=np.float32).reshape(1, 2, 3, 16), "ids": np.array([[0, 5, 63]])}


def test_microsofts_inputs_and_attributes(tmp_path):
    node = helper.make_node("RotaryEmbedding", ["x", "ids", "cos", "sin"], ["y"], domain="com.microsoft", scale=1.0,
                            is_packed_batching=1, num_heads=2, interleaved=1)
    model = model_of([node], [info("x", [1, 3, 32]), IDS], [info("y", None)], tables())
    done, rewritten = rewrite_model(tmp_path, model)
    assert list(rewritten.graph.node[0].input) == ["x", "cos", "sin", "ids"]
    assert rewrite.attributes_of(rewritten.graph.node[0]) == {"num_heads": 2, "interleaved": 1}
    feeds = {"x": FEEDS["x"].reshape(1, 3, 32), "ids": FEEDS["ids"]}
    np.testing.assert_allclose(outputs_of(rewritten, feeds)[0], outputs_of(model, feeds)[0], atol=1e-4)


@pytest.mark.parametrize("attributes, reason", [({"scale": 2.0}, "scale is 2.0"), ({"colour": 1}, "colour"),
                                                ({"rotary_embedding_dim": 8}, "16 wide")])
def test_what_is_left(tmp_path, attributes, reason):
    node = helper.make_node("RotaryEmbedding", ["x", "ids", "cos", "sin"], ["y"], domain="com.microsoft", num_heads=2,
                            **attributes)
    model = model_of([node], [info("x", [1, 3, 32]), IDS], [info("y", None)], tables())
    done, rewritten = rewrite_model(tmp_path, model)
    assert done.replaced.total() == 0 and [why for why in done.left if reason in why]
    assert rewritten == model


def test_a_function_of_the_models_own_is_left(tmp_path):
    own = helper.make_function("com.microsoft", "RotaryEmbedding", ["x"], ["y"],
                               [helper.make_node("Neg", ["x"], ["y"])], [helper.make_opsetid("", 23)])
    node = helper.make_node("RotaryEmbedding", ["x"], ["y"], domain="com.microsoft")
    model = model_of([node], [X4], [info("y", None)])
    model.functions.append(own)
    done, rewritten = rewrite_model(tmp_path, model)
    assert done.left == {"the model has a function of this name": 1}
    assert rewritten == model


def test_subgraphs_and_functions(tmp_path):
    then = helper.make_graph([rotation(y="a")], "then", [], [info("a", None)])
    other = helper.make_node("Rotated", ["x", "cos", "sin", "ids"], ["b"], domain="own")
    other = helper.make_graph([other], "else", [], [info("b", None)])
    function = helper.make_function("own", "Rotated", ["x", "cos", "sin", "ids"], ["y"], [rotation()],
                                    [helper.make_opsetid("", 23)])
    node = helper.make_node("If", ["which"], ["y"], then_branch=then, else_branch=other)
    model = model_of([node], [X4, IDS, info("which", [], TensorProto.BOOL)], [info("y", None)], tables(),
                     functions=[function])
    done, rewritten = rewrite_model(tmp_path, model)
    assert done.replaced == {"ai.onnx": 2}
    assert {o.domain for o in rewritten.functions[0].opset_import} == {"", "halyard"}
    for which in True, False:
        feeds = {**FEEDS, "which": np.array(which)}
        np.testing.assert_allclose(outputs_of(rewritten, feeds)[0], outputs_of(model, feeds)[0], atol=1e-4)


def normed(weight="w", perm=(0, 2, 1, 3), **attributes):
    return [helper.make_node("RMSNormalization", ["x", weight], ["n"], **attributes),
            helper.make_node("Transpose", ["n"], ["t"], perm=list(perm)), rotation("t")]


WEIGHT = numpy_helper.from_array(np.linspace(0.5, 1.5, 16, dtype=np.float32), "w")
TOKENS_FIRST = info("x", [1, 3, 2, 16])
TURNED = {"x": FEEDS["x"].reshape(1, 3, 2, 16), "ids": FEEDS["ids"]}


@pytest.mark.parametrize("what, nodes, joined", [
    ("both", normed(), (1, 1)),
    ("a norm that others read", normed() + [helper.make_node("Neg", ["n"], ["z"])], (1, 0)),
    ("a transposition that others read", normed() + [helper.make_node("Neg", ["t"], ["z"])], (0, 0)),
    ("a norm over three axes", normed(axis=1, weight="w3"), (1, 0)),
    ("a norm with one weight", normed(weight="w1"), (1, 0)),
])
def test_joining(tmp_path, what, nodes, joined):
    more = [WEIGHT, numpy_helper.from_array(np.full(1, 2, np.float32), "w1"),
            numpy_helper.from_array(np.full((3, 2, 16), 2, np.float32), "w3")]
    outputs = [info("y", None)] + ([info("z", None)] if len(nodes) > 3 else [])
    model = model_of(nodes, [TOKENS_FIRST, IDS], outputs, tables() + more)
    done, rewritten = rewrite_model(tmp_path, model)
    assert (done.joined["transpositions joined"], done.joined["norms joined"]) == joined
    for ours, stock in zip(outputs_of(rewritten, TURNED), outputs_of(model, TURNED)):
        np.testing.assert_allclose(ours, stock, rtol=1e-5, atol=1e-5)
    done, rewritten = rewrite_model(tmp_path, model, joins=False)
    assert not done.joined and len(rewritten.graph.node) == len(model.graph.node)


def test_a_norm_right_before(tmp_path):
    nodes = [helper.make_node("RMSNormalization", ["x", "w"], ["n"]), rotation("n")]
    model = model_of(nodes, [X4, IDS], [info("y", None)], [*tables(), WEIGHT])
    done, rewritten = rewrite_model(tmp_path, model)
    assert done.joined == {"norms joined": 1} and len(rewritten.graph.node) == 1
    np.testing.assert_allclose(outputs_of(rewritten, FEEDS)[0], outputs_of(model, FEEDS)[0], rtol=1e-5, atol=1e-5)


def test_a_norm_of_rows_is_not_joined(tmp_path):
    weight = numpy_helper.from_array(np.linspace(0.5, 1.5, 32, dtype=np.float32), "w")
    nodes = [helper.make_node("RMSNormalization", ["x", "w"], ["n"]), rotation("n", num_heads=2)]
    model = model_of(nodes, [info("x", [1, 3, 32]), IDS], [info("y", None)], [*tables(), weight])
    done, rewritten = rewrite_model(tmp_path, model)
    assert not done.joined and len(rewritten.graph.node) == 2


def test_external_data(tmp_path):
    model = model_of([rotation()], [X4, IDS], [info("y", None)], tables())
    source, target = tmp_path / "in.onnx", tmp_path / "elsewhere" / "out.onnx"
    target.parent.mkdir()
    onnx.save(onnx.ModelProto.FromString(model.SerializeToString()), source, save_as_external_data=True,
              location="weights.bin", size_threshold=0)
    for force in False, True:
        rewrite.rewrite_file(source, target, force=force)
        assert (target.parent / "out.onnx.data").stat().st_size == (tmp_path / "weights.bin").stat().st_size
        ours = make_session(str(target)).run(None, FEEDS)[0]
        np.testing.assert_allclose(ours, outputs_of(model, FEEDS)[0], atol=1e-4)
    with pytest.raises(rewrite.Refusal, match="exists"):
        rewrite.rewrite_file(source, target)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_exact_refuses_other_tables(tmp_path, dtype):
    """One entry of a table that is off by more than float32 angles are, or frequencies of another base."""
    frequencies = tmp_path / "f.json"
    for base, change, fits in (10000.0, 0, True), (10000.0, 8, False), (10001.0, 0, False), (500000.0, 0, False):
        frequencies.write_text(json.dumps({"inv_freq": list(base ** (-np.arange(8) / 8))}))
        cos, sin = (numpy_helper.to_array(t).astype(dtype) for t in tables(2048))
        cos[40, 3] += change * 2.0**-11 if dtype == np.float16 else change * 2.0**-20
        kind = {np.float32: TensorProto.FLOAT, np.float16: TensorProto.FLOAT16}[dtype]
        model = model_of([rotation()], [info("x", [1, 2, 3, 16], kind), IDS], [info("y", None, kind)],
                         [numpy_helper.from_array(cos, "cos"), numpy_helper.from_array(sin, "sin")])
        if fits:
            _, rewritten = rewrite_model(tmp_path, model, exact=frequencies)
            feeds = {**FEEDS, "x": FEEDS["x"].astype(dtype)}
            np.testing.assert_allclose(outputs_of(rewritten, feeds)[0].astype(np.float32),
                                       outputs_of(model, feeds)[0].astype(np.float32),
                                       atol=1e-3 if dtype == np.float32 else 0.2)
        elif base != 10001.0 or dtype == np.float32:  # in f16 a base that near is the same
            with pytest.raises(rewrite.Refusal, match="not of these frequencies"):
                rewrite_model(tmp_path, model, exact=frequencies)


def test_exact_refuses_what_is_no_constant(tmp_path):
    frequencies = tmp_path / "f.json"
    frequencies.write_text(json.dumps({"inv_freq": [1.0] * 8}))
    model = model_of([rotation()], [X4, IDS, info("cos", [64, 8]), info("sin", [64, 8])], [info("y", None)])
    with pytest.raises(rewrite.Refusal, match="cos is not a constant"):
        rewrite_model(tmp_path, model, exact=frequencies)


def run(*arguments):
    done = subprocess.run([sys.executable, rewrite.__file__, *map(str, arguments)], text=True, capture_output=True)
    return done.returncode, done.stdout, done.stderr


def test_command(tmp_path):
    source, target = tmp_path / "in.onnx", tmp_path / "out.onnx"
    onnx.save(Decoder("onnx").model, source)
    counts = "replaced 4, left 0\n  4 of ai.onnx\n  4 transpositions joined\n  4 norms joined\n"
    assert run(source, target) == (0, counts, "")
    before = target.read_bytes()
    for arguments, sentence in [((source, target), "exists; --force"), ((source, source), "is the model that is read"),
                                ((tmp_path / "none.onnx", target), "No such file"),
                                ((source, target, "--force", "--exact", tmp_path / "none.json"), "does not say"),
                                ((source, tmp_path / "no" / "out.onnx"), "No such file")]:
        status, output, error = run(*arguments)
        assert status == 1 and not output and sentence in error and error.startswith("rewrite.py: ")
    assert target.read_bytes() == before
    garbage = tmp_path / "garbage.onnx"
    for content in b"no model", b"":
        garbage.write_bytes(content)
        assert run(garbage, tmp_path / "x.onnx") == (1, "", f"rewrite.py: {garbage} is no ONNX model\n")
        assert not (tmp_path / "x.onnx").exists()
    assert run(source, target, "--force", "--no-join")[1] == "replaced 4, left 0\n  4 of ai.onnx\n"

"""Models of onnxruntime-genai's builder: the same tokens by onnxruntime-genai after rewriting, and counts of nodes."""

import json

import numpy as np
import onnx
import pytest

genai = pytest.importorskip("genai", reason="onnxruntime-genai is for ./run test engines genai", exc_type=ImportError)

import nodes  # noqa: E402
import rewrite  # noqa: E402
from onnx import numpy_helper  # noqa: E402
from test_rewrite import operators  # noqa: E402

N_LAYERS, N_TOKENS = genai.SIZE["num_hidden_layers"], 64
HAS_NORMS = {"qwen3", "gemma3"}
# What onnxruntime-genai 0.18.0 cannot run before rewriting either: several rows or growing caches where windows are
# local, and phi3's windows with caches in place.
HAS_WINDOWS = {"gemma3", "gpt_oss"}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder, made = tmp_path_factory.mktemp("models"), {}

    def build(name, precision="fp32"):
        if (name, precision) not in made:
            made[name, precision] = genai.build(folder, name, precision)
        return made[name, precision]

    return build


def prompts():
    rng = np.random.default_rng(20261123)
    rows = rng.integers(3, genai.VOCABULARY, (3, 12))
    one = rows[2:].copy()
    rows[0, 9:] = rows[1, 5:] = genai.SIZE["pad_token_id"]
    return {"one row": [one], "in two parts": [one, one[:, :7]], "rows of different lengths": [rows]}


def rewritten(folder, **options):
    return rewrite.rewrite_file(folder / "model.onnx", folder / "halyard.onnx", force=True, **options)


def compare(folder, shares_buffers, parts, allowed):
    genai.settle(folder, "model.onnx", shares_buffers)
    stock, stock_logits = genai.generate(folder, parts, N_TOKENS)
    genai.settle(folder, "halyard.onnx", shares_buffers, nodes.LIBRARY)
    ours, logits = genai.generate(folder, parts, N_TOKENS)
    assert ours == stock and len(set(stock[0])) > 20
    off = np.abs(logits - stock_logits).max() / np.abs(stock_logits).max()
    print(folder.name, f"logits are off by {off:.2g} of the largest")
    assert off <= allowed


@pytest.mark.parametrize("shares_buffers", [True, False])
@pytest.mark.parametrize("prompt", prompts())
@pytest.mark.parametrize("name", genai.MODELS)
def test_the_same_tokens(built, name, prompt, shares_buffers):
    """A rotation is off by 2^-22 of a pair's length at most. What layers of large random weights make of that was 2^-15
    of the largest logit; eight times as much is allowed."""
    if name in HAS_WINDOWS and (not shares_buffers or prompt == "rows of different lengths") or (
            name == "phi3" and shares_buffers):
        pytest.skip("onnxruntime-genai does not run that")
    folder = built(name)
    done = rewritten(folder)
    assert done.replaced == {"com.microsoft inside GroupQueryAttention": N_LAYERS} and not done.left
    assert done.joined == ({"norms joined": 2 * N_LAYERS} if name in HAS_NORMS else {})
    counts = operators(onnx.load(folder / "halyard.onnx", load_external_data=False))
    assert counts["halyard", "Positions"] == 1
    assert counts["halyard", "RotaryEmbedding"] == N_LAYERS * (2 if name in HAS_NORMS else 1)
    compare(folder, shares_buffers, prompts()[prompt], 2.0**-12)


def test_four_bits(built):
    """Inputs of a product are rounded to 8 bits, so a last place may become 1/127 of a row: tokens alone are held."""
    folder = built("llama", "int4")
    assert rewritten(folder).replaced.total() == N_LAYERS
    compare(folder, True, prompts()["one row"], 1)


@pytest.mark.parametrize("name", ["llama", "qwen3", "phi"])
def test_frequencies(built, name, tmp_path):
    """Exact angles. The builder's, made in float32, are off by 84 · 2^-22 at most up to the last token, as rewrite.py
    holds them to, and mostly by far less: 2^-16 of the largest logit was seen, so the bound is that of the others."""
    folder = built(name)
    cos = numpy_helper.to_array(next(t for t in onnx.load(folder / "model.onnx").graph.initializer
                                     if t.name == "cos_cache"))
    n_pairs = cos.shape[1]
    path = tmp_path / "frequencies.json"
    path.write_text(json.dumps({"inv_freq": list(10000.0 ** (-np.arange(n_pairs) / n_pairs))}))
    done = rewritten(folder, exact=path)
    assert done.joined["tables became frequencies"] == N_LAYERS * (2 if name in HAS_NORMS else 1)
    for shares_buffers in True, False:
        compare(folder, shares_buffers, prompts()["one row"], 2.0**-12)

"""What models do to q beside turning it: told by their frequencies, and made by position_scales as transformers' own
code makes it. That patched models still do it, test_logits says in test_transformers.py."""

import importlib
import inspect
import re

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
if int(transformers.__version__.split(".", maxsplit=1)[0]) < 5:
    pytest.skip("transformers is older than 5", allow_module_level=True)

import halyard  # noqa: E402
import halyard.transformers  # noqa: E402
import small_models  # noqa: E402
from test_model_types import TYPES, default_config, modeling_module  # noqa: E402

EPS = 2.0 ** -23


def some_positions():
    random = np.random.default_rng(1)
    ends = np.concatenate([n * 2048 + np.arange(-2, 3) for n in (1, 4, 8, 64)])
    return np.unique(np.concatenate([np.arange(64), ends, random.integers(0, 1 << 20, 4000)])).astype(np.int64)


def module_of(model_type):
    return importlib.import_module(f"transformers.models.{model_type}.modeling_{model_type}")


def own_scale(model_type, config, positions):
    """As the model's own code has it; Llama 4's stands in its forward, of which these lines are run."""
    module = module_of(model_type)
    tokens = torch.tensor(positions)[None]
    if model_type == "llama4":
        source = inspect.getsource(module.Llama4TextAttention.forward)
        lines = re.search(r"attn_scales = \(\n(.*?)\n\s*\)\n", source, re.DOTALL)
        assert lines
        return eval(lines[1], {"torch": torch, "positions": tokens, "self": config})  # noqa: S307: transformers' own
    if model_type == "beam":
        return module.compute_attention_scaling(tokens).squeeze()
    parameters = config.rope_parameters
    return module.get_llama_4_attn_scale(tokens, parameters["llama_4_scaling_beta"],
                                         parameters["original_max_position_embeddings"]).squeeze()


CASES = {
    "llama4": ("Llama4TextConfig", None, ("log", 0.1, 8192, 1, "unrotated"), True),
    "ministral3": ("Ministral3Config", None, ("log", 0.1, 16384, 0, "all"), False),
    "mistral4": ("Mistral4Config", None, ("log", 0.1, 8192, 0, "all"), False),
    "beam": ("BeamConfig", "sliding_attention", ("power", 0.1, 2048, 1, "unrotated"), True),
}


@pytest.mark.parametrize("model_type", CASES)
def test_scales_are_those_of_transformers(model_type):
    name, layer_type, rule, has_unrotated = CASES[model_type]
    if not hasattr(transformers, name):
        pytest.skip(f"this transformers has no {name}")
    config = getattr(transformers, name)()
    frequencies = halyard.Frequencies.from_config(config, layer_type=layer_type)
    assert frequencies.q_scale == rule
    assert frequencies.q_scale.layers == rule[-1]
    assert frequencies.has_unrotated_layers is has_unrotated
    positions = some_positions()
    scales = frequencies.position_scales(positions)
    assert scales.dtype == np.float32 and scales.shape == positions.shape
    own = np.asarray(own_scale(model_type, config, positions), np.float64).ravel()
    # Its quotient, logarithm, product and sum are each rounded to float32, some once more by the function.
    assert np.abs(scales - own).max() <= 4 * EPS * own.max()
    assert own.max() > 1.2  # else the positions are too near to tell


# Where the code of a type multiplies q by something that depends on position. A type that comes to these has to be read
# by config/query.cpp, or refused.
MULTIPLIES = re.compile(r"(query|\bq)\w*\s*(=\s*\(*\s*(query|q)\w*)?\s*\*=?\s*\(?(get_llama_4_attn_scale|attn_scales\b"
                        r"|attention_scaling\b|tau\b)|log1?p?\(\s*\(?\(?(position|effective_n|kwargs\[\"position_ids)"
                        r"|log_pos = \(position_ids")
REFUSED = {"inkling_text", "inkling2_text", "inkling2_loop_text", "mistral_large4", "mistral_large4_text"}
READ = {"llama4_text", "ministral3", "mistral4", "beam"}


def is_text(config):
    return config is not None and "vision" not in config.model_type and not hasattr(config, "text_config")


def test_every_type_that_scales_q_is_read_or_refused():
    found = set()
    for model_type in TYPES:
        try:
            config = default_config(model_type)
        except Exception:  # noqa: BLE001: whatever a config's class raises
            continue
        if is_text(config) and MULTIPLIES.search(modeling_module(config)[1]):
            found.add(model_type)
    others = {name for name in found - READ - REFUSED if not re.search(r"audio|assistant|vision", name)}
    assert not others, others
    assert READ - {"beam"} <= found
    for model_type in found & REFUSED:
        with pytest.raises(halyard.Error):
            halyard.Frequencies.from_config(default_config(model_type))


def test_models_whose_scale_is_not_known_of_their_code_are_refused(monkeypatch):
    monkeypatch.setattr(halyard.transformers, "_SCALING_Q", ())
    with pytest.raises(halyard.Error, match="Ministral3RotaryEmbedding of ministral3 multiplies q by position"):
        halyard.transformers.patch(small_models.make("ministral3"))


@pytest.mark.parametrize("name", ["ministral3", "llama4"])
def test_the_road_of_a_model(name):
    """rotate with position_scales gives the q that the attention of a model sees."""
    model = small_models.make(name)
    seen = {}

    def watch(module, query, key, value, mask, **others):
        seen.setdefault(module.layer_idx, query)
        return torch.nn.functional.scaled_dot_product_attention(query, key.repeat_interleave(2, 1),
                                                                value.repeat_interleave(2, 1)).transpose(1, 2), None

    transformers.AttentionInterface.register("halyard_watch", watch)
    model.set_attn_implementation("halyard_watch")
    n_tokens = 40
    layers = model.model.layers
    inputs = {}
    for i, layer in enumerate(layers):
        layer.self_attn.q_proj.register_forward_hook(lambda _, __, out, i=i: inputs.setdefault(i, out))
    with torch.no_grad():
        model(torch.arange(n_tokens)[None] + 3)
    frequencies = halyard.Frequencies.from_config(model.config)
    angles, scales = halyard.AngleSource(frequencies), frequencies.position_scales(torch.arange(n_tokens))
    assert scales[-1] > 1.3 and scales[0] == 1
    for i, layer in enumerate(layers):
        unrotated = name == "llama4" and not layer.self_attn.use_rope
        scaled = frequencies.q_scale.layers == "all" or unrotated
        q = inputs[i].view(1, n_tokens, -1, layer.self_attn.head_dim)
        stages = dict(position_scales=scales if scaled else None)
        if unrotated:
            y = halyard.convert(q, **stages)
        else:
            if hasattr(layer.self_attn, "qk_norm"):
                stages["norm"] = halyard.Norm(eps=model.config.rms_norm_eps, order="after")
            y = halyard.rotate(halyard.Tensor(q, **stages), angles=angles, positions=0)
        expected = seen[i].transpose(1, 2)
        assert (y - expected).abs().max() <= 64 * n_tokens * EPS * expected.abs().max()
    assert len(seen) == len(layers)

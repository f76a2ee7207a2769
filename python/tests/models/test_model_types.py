"""For every model type with RoPE in the installed transformers, Halyard reads the config as the model's code does, or
refuses the type by name.

A case is a rotary embedding class of a type, made from the type's default config, and a layer type. The test compares
Halyard's frequencies for that config with the class's inverse frequencies and attention scaling, and halyard.rotate
with the model's own function, for random q and k at random positions. Then it removes each field of the config in turn,
and all fields but sizes: Halyard must read what the class makes of such a config, or name what is missing.

`python test_model_types.py` prints the cases as a table. With --write it also renews tests/data/model_types.json, for
tests that run without transformers.
"""

import copy
import importlib
import inspect
import json
import pathlib
import re
import sys
import warnings

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
if int(transformers.__version__.split(".", maxsplit=1)[0]) < 5:
    pytest.skip("transformers is older than 5", allow_module_level=True)

import halyard  # noqa: E402
from transformers.models.auto.configuration_auto import CONFIG_MAPPING  # noqa: E402
from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES  # noqa: E402

DATA = pathlib.Path(__file__).parents[3] / "tests" / "data" / "model_types.json"

# Types whose default config cannot be used unchanged: (changed fields, or None to leave the type out; the reason).
ADJUSTED = {
    "esm": (dict(position_embedding_type="rotary"), "the default learns positions; ESM-2 states this"),
    "gemma4_assistant": (None, "its class refuses its own defaults"),
    **dict.fromkeys(("glm4_moe", "glm4v_moe_text"),
                    (dict(head_dim=128), "4096 columns make no 96 heads; GLM-4.5 and 4.5V state this")),
    **dict.fromkeys(("glm4v_text", "glm_image_text"),
                    (dict(rope_parameters=dict(rope_type="default", rope_theta=1e4, partial_rotary_factor=0.5)),
                     "the axes' usual sections cover half of a head; GLM-4.1V states this")),
    "granitemoehybrid": (dict(position_embedding_type="rope"), "the default has no RoPE"),
    "hunyuan_vl_text": (dict(rope_parameters=dict(rope_type="default", rope_theta=1e4, mrope_section=[16] * 4)),
                        "the embedding cannot run without sections"),
    "nougat": (None, "its class refuses its own defaults"),
    **dict.fromkeys(("encoder-decoder", "musicgen", "musicgen_melody", "rag", "speech-encoder-decoder",
                     "vision-encoder-decoder", "vision-text-dual-encoder"),
                    (None, "it has no RoPE but its parts', and transformers 5.19 does not make it without any")),
    **dict.fromkeys(("edgetam", "edgetam_vision_model"),
                    (None, "it has no RoPE, and transformers 5.19 fetches the config of its encoder")),
    "cohere_compass_text": (dict(rope_parameters=dict(full_attention=dict(rope_type="default", rope_theta=1e4))),
                            "the default states no base"),
    "qwen3_omni_moe_text": (dict(head_dim=128), "2048 columns make no 28 heads; Qwen3-Omni states this"),
    "qwen3_omni_moe": (dict(thinker_config=dict(text_config=dict(head_dim=128))), "as qwen3_omni_moe_text"),
    "zamba2": (dict(use_mem_rope=True), "the default has no RoPE"),
}
# Types whose code was changed: the first version of transformers that Halyard agrees with.
CHANGED_IN = {"cohere_compass_text": (5, 21)}  # before, it had its axes in the order of ERNIE 4.5 VL
# The config's fields about positions and heads, which are kept in the fixture.
KEPT = re.compile(r"rope|rotary|theta|head|^hidden_size$|^n_embd$|layer_types$|per_layer_config|sliding_window$|"
                  r"max_position|^n_positions$|^n_ctx$|^model_type$|^position_embedding|attn_temp|attn_scale|floor_scale|"
                  r"_config$|^num_hidden_layers$|^d_model$|^kv_channels$|embed_dim$")
SIZES = {"model_type", "hidden_size", "num_attention_heads", "num_hidden_layers", "n_embd", "n_head", "d_model", "n_heads",
         "position_embedding_type", "use_mem_rope"}
PARTS = ("text_config", "thinker_config", "vlm_config")

TYPES = sorted(CONFIG_MAPPING.keys())
VERSION = tuple(int(number) for number in transformers.__version__.split(".")[:2])


def read(text, layer_type=None):
    """Returns (frequencies, "") for the text of a config, or (None, error message)."""
    try:
        return halyard.Frequencies._wrap(halyard._core.Frequencies.from_config(text.encode(), 0, layer_type)), ""
    except halyard.Error as error:
        return None, str(error)


def describe(f):
    pairing = f.pairing if f.pairing == f.out_pairing else f"{f.pairing}, writes {f.out_pairing}"
    axes = "" if f.axis_map is None else f", axes {f.axis_map[0]}:" + ",".join(map(str, f.axis_map[1]))
    return f"{pairing} {f.rotary_dim} of {f.head_dim}, base {f.base:g}, {f.method}{axes}"


def facts_of(f, inv_freq=None):
    """The fields of frequencies that the fixture stores, with the first, middle and last of inv_freq if given."""
    names = ("pairing", "out_pairing", "head_dim", "rotary_dim", "base", "method", "attention_factor")
    facts = {name: getattr(f, name) for name in names} | {"axis_map": f.axis_map and [f.axis_map[0], *f.axis_map[1]]}
    if inv_freq is not None:
        facts["inv_freq"] = [float(f"{float(inv_freq[i]):.9g}") for i in (0, len(inv_freq) // 2, -1)]
    return facts


def compare_held(frequencies, inv_freq, factor):
    """How Halyard's frequencies differ from a class's inverse frequencies and attention factor, or None."""
    own = torch.tensor(frequencies.inv_freq, dtype=torch.float64)
    if own.shape != inv_freq.shape:
        return f"{len(own)} pairs, but {len(inv_freq)}"
    if not torch.allclose(own.abs(), inv_freq, rtol=2e-6, atol=0):
        return "inv_freq differs"
    if abs(frequencies.attention_factor - factor) > 1e-6 * factor:
        return f"attention_factor {frequencies.attention_factor}, but {factor}"
    return None


def case_of(model_type, layer_type, verdict, words, config=None, facts=None, **more):
    """A row of the table. words: the frequencies that were read, the message of the refusal, or what is wrong."""
    return dict(more, model_type=model_type, layer_type=layer_type, verdict=verdict, words=words, config=config,
                facts=facts)


def default_config(model_type):
    """The type's default config with the changes of ADJUSTED; None if ADJUSTED leaves the type out."""
    changes, _ = ADJUSTED.get(model_type, ({}, ""))
    config = None if changes is None else CONFIG_MAPPING[model_type](**changes)
    inner = config and text_config(config)
    if inner and ADJUSTED.get(inner.model_type, (None,))[0] and "text_config" in config.to_dict():
        changes = {"model_type": inner.model_type, **ADJUSTED[inner.model_type][0]}
        config = CONFIG_MAPPING[model_type](text_config=changes)
    return config


def text_config(config):
    """The part of a config that describes the language model; None if the config has no such part."""
    try:
        inner = config.get_text_config()
    except (AttributeError, ValueError):  # ValueError: there are several such parts
        return None
    return None if inner is config else inner


def modeling_module(config):
    """The name and the source text of the module with the model's code, without importing it."""
    path = pathlib.Path(inspect.getfile(type(config)))
    path = path.with_name(path.name.replace("configuration_", "modeling_"))
    if path.exists():
        return type(config).__module__.replace("configuration_", "modeling_"), path.read_text(encoding="utf-8")
    model = MODEL_MAPPING_NAMES.get(config.model_type)  # some types use another type's code, with other defaults
    if not isinstance(model, str):
        return None, ""
    module = sys.modules[getattr(transformers, model).__module__]
    return module.__name__, inspect.getsource(module)


def names_config(value, config):
    """Whether a class of a model's code declares that it takes configs of this class."""
    hints = [p.annotation for p in inspect.signature(value.__init__).parameters.values()]
    hints += [value.__dict__.get("__annotations__", {}).get("config"), getattr(value, "config_class", None)]
    return any(hint is type(config) or hint == type(config).__name__ for hint in hints)


def sources(values):
    return "".join(inspect.getsource(value) for value in values)


class Sinusoids(torch.nn.Module):
    """Wraps older models, which have a table of sin and cos, as an embedding like those of newer models."""

    def __init__(self, config, code):
        super().__init__()
        if hasattr(code, "create_sinusoidal_positions"):
            table = code.create_sinusoidal_positions(64, config.rotary_dim)
        else:
            width = config.hidden_size // config.num_attention_heads
            table = code.RoFormerSinusoidalPositionalEmbedding(64, width).create_weight()
        self.sin, self.cos = table.chunk(2, dim=-1)
        self.inv_freq = torch.atan2(self.sin[1], self.cos[1])
        self.code = code

    def forward(self, _, position_ids):
        return self.cos[position_ids], self.sin[position_ids]

    def rotate(self, q, k, cos, sin):
        if hasattr(self.code, "apply_rotary_pos_emb"):
            return tuple(self.code.apply_rotary_pos_emb(x.transpose(1, 2), sin, cos).transpose(1, 2) for x in (q, k))
        attention = self.code.RoFormerSelfAttention
        return attention.apply_rotary_position_embeddings(torch.cat((sin, cos), dim=-1)[:, None], q, k)


def embeddings(config):
    """By name, what makes a rotary embedding from a config: the classes in the code of models with this config, or a
    function."""
    if text_config(config) is not None:
        return {}
    name, text = modeling_module(config)
    if re.search(r"def create_sinusoidal_positions.*\n(.*\n)*def apply_rotary|class RoFormerSinusoidal", text):
        code = importlib.import_module(name)
        return {"sinusoids": lambda c: Sinusoids(c, code)}
    if not re.search(r"^class \w*(Rotary|Rope|RoPE)", text, re.MULTILINE):
        return {}
    own = [value for value in vars(importlib.import_module(name)).values()
           if inspect.isclass(value) and value.__module__ == name]
    rotary = [value for value in own if re.search(r"Rotary|Rope|RoPE", value.__name__)
              and not re.search(r"Attention$|^SolarOpen(?!Rotary)", value.__name__)]
    users = sources(value for value in own if value not in rotary and names_config(value, config))
    found = ([value for value in rotary if re.search(rf"\b{value.__name__}\(", users)]
             or [value for value in rotary if names_config(value, config)])
    if not found and "rope_parameters" in config.to_dict():
        found = [value for value in rotary if "Vision" not in value.__name__]
    return {value.__name__: value for value in found}


def rotating_function(module, config):
    """The model's function that rotates q and k. Raises LookupError if it is not unique."""
    if isinstance(module, Sinusoids):
        return module.rotate
    code = sys.modules[type(module).__module__]
    # If the package `kernels` is installed, transformers wraps the function in a torch module.
    names = [name for name, value in vars(code).items() if re.search(r"^apply_rot\w*emb(?!.*(vision|_2d))", name)
             and (isinstance(value, torch.nn.Module) or getattr(value, "__module__", "") == code.__name__)]
    if len(names) > 1:
        users = sources(value for value in vars(code).values() if inspect.isclass(value)
                        and value.__module__ == code.__name__ and names_config(value, config))
        names = [name for name in names if re.search(rf"\b{name}\(", users)] or names
    if "apply_rotary_pos_emb_interleave" in names:
        asks = re.search(r"if self\.config\.rope_interleave", inspect.getsource(code))
        interleaved = not asks or getattr(config, "rope_interleave", True)
        names = ["apply_rotary_pos_emb_interleave" if interleaved else "apply_rotary_pos_emb"]
    if len(names) != 1:
        raise LookupError(f"its functions are {', '.join(names) or 'none'}")
    function = getattr(code, names[0])
    return getattr(function, "forward", function)


def call(function, q, k, rows):
    """Rotates q and k, [batch, heads, tokens, width], by a model's function."""
    names = tuple(inspect.signature(function).parameters)
    if names[0] == "x":
        return function(q, *rows), function(k, *rows)
    if names[:2] == ("xq", "xk"):
        if "[:, :, None" in inspect.getsource(function):  # it takes [batch, tokens, heads, width]
            return tuple(x.transpose(1, 2) for x in function(q.transpose(1, 2), k.transpose(1, 2), rows))
        return function(q, k, rows)
    return function(q, k, *rows)[:2]


def rotate_as_model(module, config, layer_type, n_axes, widths):
    """Returns random positions, random (q, k), and (q, k) as the model rotates them."""
    random = torch.Generator().manual_seed(1)
    function = rotating_function(module, config)
    has_axes = "position_ids.expand(" in inspect.getsource(type(module).forward)
    if has_axes != (n_axes > 1):
        raise ValueError(f"its positions have {'several axes' if has_axes else 'one axis'}")
    positions = torch.randint(60, (n_axes, 1, 7) if has_axes else (1, 7), generator=random)
    rows = module(torch.zeros(1), positions, *(() if layer_type is None else (layer_type,)))
    first_error = None
    for columns in dict.fromkeys(widths):  # some functions take only the rotated columns, and refuse whole heads
        q, k = (torch.randn(1, heads, 7, columns, generator=random) for heads in (3, 2))
        try:
            return positions, (q, k), call(function, q, k, rows)
        except RuntimeError as error:
            first_error = first_error or error
    raise first_error


def held(module, layer_type):
    """The inverse frequencies and attention scaling of an embedding."""
    prefix = "" if layer_type is None else f"{layer_type}_"
    inv_freq = getattr(module, f"{prefix}inv_freq")
    return inv_freq.double(), float(getattr(module, f"{prefix}attention_scaling", 1.0))


def compare(frequencies, module, config, layer_type):
    """How Halyard's frequencies or rotation differ from the model's, or None."""
    if not hasattr(module, "inv_freq") and layer_type is None:
        return f"{type(module).__name__} has no inv_freq"
    if wrong := compare_held(frequencies, *held(module, layer_type)):
        return wrong
    fields = config.to_dict()
    head_dim = fields.get("qk_rope_head_dim") or fields.get("head_dim")
    if head_dim and layer_type is None and frequencies.head_dim != head_dim:
        return f"head_dim {frequencies.head_dim}, but {head_dim}"
    if frequencies.pairing is None:
        return "the pairing is unknown"
    n_axes = len(frequencies.axis_map[1]) if frequencies.axis_map else 1
    try:
        positions, before, after = rotate_as_model(module, config, layer_type, n_axes,
                                                   (frequencies.head_dim, frequencies.rotary_dim))
    except Exception as error:  # noqa: BLE001: whatever the model's code raises
        return f"{type(error).__name__}: {error}"
    ours = halyard.rotate(*before, angles=halyard.AngleSource(frequencies), positions=positions.to(torch.int32),
                          layout="bhsd")
    return "q and k rotate differently" if any((x - y).abs().max() > 1e-4 for x, y in zip(ours, after)) else None


def keep(fields):
    """The fields of a config that concern RoPE, shortened for the fixture."""
    kept, by_layer = {}, fields.get("per_layer_config")
    for key, value in fields.items():
        if value is None or not KEPT.search(key):
            continue
        if isinstance(value, dict) and key.endswith("_config") and key != "per_layer_config":
            value = keep(value) if key in PARTS else None
        elif key.endswith("layer_types") and not by_layer:
            value = sorted(set(value))  # each layer type once
        elif (key == "num_hidden_layers" and fields.get("layer_types") and not by_layer) or (
                isinstance(value, list) and len(value) > 8
                and key not in ("layer_types", "layers_block_type", "layer_rope_theta")):
            value = None
        if value is not None:
            kept[key] = value
    return kept


def keep_sizes(fields, sizes):
    return {key: keep_sizes(value, sizes) if key in PARTS else sizes.get(key, value) for key, value in fields.items()
            if value is not None and key in (*SIZES, *PARTS)}


def lacking(fields):
    """Yields (name, config without that field) for each field, also of parts of the config and of rope_parameters."""
    for key, value in fields.items():
        rest = {other: fields[other] for other in fields if other != key}
        yield key, rest
        if isinstance(value, dict) and (key in PARTS or not key.endswith("_config")):
            yield from ((inner, {**rest, key: partial}) for inner, partial in lacking(value))


def partial_configs(fields):
    """Yields (what is missing, config): without each field in turn, and without all fields but sizes."""
    yield from ((key, partial) for key, partial in lacking(fields) if "model_type" in partial)
    for hidden, heads in ((None, None), (2048, 16), (3072, 48)):
        sizes = {**dict.fromkeys(("hidden_size", "d_model", "n_embd"), hidden),
                 **dict.fromkeys(("num_attention_heads", "n_heads", "n_head"), heads)} if hidden else {}
        yield f"all but sizes {sizes}", keep_sizes(fields, sizes)


def wrong_of_partial(config, frequencies, lack, partial, layer_type, make):
    """How Halyard's reading of a config without the fields `lack` differs from the model's class, or None."""
    try:
        own = type(config).from_dict(copy.deepcopy(partial))
        module = make and make(own)
    except Exception:  # noqa: BLE001: the class itself refuses the config
        return None
    read_partial, words = read(json.dumps(partial), layer_type)
    if read_partial is None:
        says = re.search(rf"missing|need|has no layer_types|sums to|be even|not read|\b{lack}\b", words)
        return None if says else f"{words} without {lack}"
    if module is not None:
        wrong = compare_held(read_partial, *held(module, layer_type))
        if read_partial.pairing != frequencies.pairing or read_partial.out_pairing != frequencies.out_pairing:
            wrong = f"{describe(read_partial)}, but {describe(frequencies)}"
    else:
        whole = read(own.to_json_string(use_diff=False), layer_type)[0]
        wrong = whole and describe(whole) != describe(read_partial) and f"{describe(read_partial)}, but {describe(whole)}"
    return wrong and f"{wrong} without {lack}"


def embedding_cases(config, name, make):
    """Yields the cases of one embedding, one for each of its layer types."""
    model_type, text = config.model_type, config.to_json_string(use_diff=False)
    fields, why = json.loads(text), ""
    try:
        module = make(config)
    except Exception as error:  # noqa: BLE001: whatever its constructor raises
        module, why = None, f"{type(error).__name__}: {error}"
    kinds = sorted(module.rope_type) if isinstance(getattr(module, "rope_type", None), dict) else []
    for layer_type in kinds or [None]:
        frequencies, words = read(text, layer_type)
        if frequencies is None:
            verdict = "refused" if f"'{model_type}'" in words else "REFUSED, BUT NOT BY NAME"
            yield case_of(model_type, layer_type, verdict, words, keep(fields), embedding=name)
            continue
        wrong = why if module is None else compare(frequencies, module, config, layer_type)
        for lack, partial in () if wrong else partial_configs(fields):
            wrong = wrong or wrong_of_partial(config, frequencies, lack, partial, layer_type, make)
            found = read(json.dumps(partial), layer_type)[0]
            if lack.startswith("all but sizes {'") and found and not wrong:
                yield case_of(model_type, layer_type, "right", describe(found), keep(partial), facts_of(found),
                              embedding=name, is_partial=True)
        reduced = read(json.dumps(keep(fields)), layer_type)[0]
        if not wrong and (reduced is None or facts_of(reduced) != facts_of(frequencies)):
            wrong = f"the fixture lacks a field: {keep(fields)}"
        sign = -1.0 if frequencies.inv_freq[0] < 0 else 1.0
        facts = facts_of(frequencies, None if wrong else held(module, layer_type)[0] * sign)
        words = describe(frequencies) + (f": {wrong}" if wrong else "")
        yield case_of(model_type, layer_type, "WRONG" if wrong else "right", words, keep(fields), facts, embedding=name)


def plain_cases(config):
    """Yields the cases of a type without its own embedding: those of its language model, or "no RoPE"."""
    text, inner = config.to_json_string(use_diff=False), text_config(config)
    model_type, fields = config.model_type, keep(json.loads(text))
    frequencies, words = read(text)
    if inner is None:
        if words:
            yield case_of(model_type, None, "no RoPE", words, fields)
        else:
            yield case_of(model_type, None, "WRONG", f"read without RoPE of its own: {describe(frequencies)}")
        return
    _, _, needed = words.partition("layer_type is needed: one of ")
    for layer_type in re.findall("'([^']+)'", needed) or [None]:
        frequencies, words = read(text, layer_type)
        expected, inner_words = read(inner.to_json_string(use_diff=False), layer_type)
        both = [describe(f) if f else re.sub(r"\b(\w+_config\.)+", "", w)
                for f, w in ((frequencies, words), (expected, inner_words))]
        if frequencies is None and expected is None:
            verdict, words = "refused" if embeddings(inner) else "no RoPE", f"as {inner.model_type}: {words}"
        elif both[0] == both[1]:
            wrong = frequencies and next(filter(None, (
                wrong_of_partial(config, frequencies, lack, partial, layer_type, None)
                for lack, partial in partial_configs(json.loads(text)))), None)
            verdict, words = ("WRONG", wrong) if wrong else ("right", f"as {inner.model_type}")
        else:
            verdict, words = ("refused", words) if f"'{model_type}'" in words else ("WRONG", " / ".join(both))
        yield case_of(model_type, layer_type, verdict, words, fields, frequencies and facts_of(frequencies))


def cases_of(model_type):
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    try:
        config = None if VERSION < CHANGED_IN.get(model_type, VERSION) else default_config(model_type)
        found = {} if config is None else embeddings(config)
        made = [case for name, make in found.items() for case in embedding_cases(config, name, make)]
        return made or ([] if config is None else list(plain_cases(config)))
    except Exception as error:  # noqa: BLE001: a newer transformers may raise anything
        return [case_of(model_type, None, "NO CASE", f"{type(error).__name__}: {error}")]


@pytest.mark.parametrize("first", sorted({name[0] for name in TYPES}))
def test_types_are_read_as_their_code_works_or_refused_by_name(first):
    """All types whose names begin with one letter: a test for each letter, so that a failure does not hide the rest."""
    wrong = [case for name in TYPES if name[0] == first for case in cases_of(name)
             if case["verdict"] not in ("right", "refused", "no RoPE")]
    assert not wrong, "\n".join(f"{case['model_type']}, {case['layer_type']}: {case['words']}" for case in wrong)


# Code that multiplies q by a factor that depends on position. runtime/config/q_scale.cpp must read every type with such
# code (READ), or Halyard must refuse it (REFUSED).
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


if __name__ == "__main__":
    written = []
    for one in (case for name in TYPES for case in cases_of(name)):
        why, used = " ".join(one["words"].split()), one.pop("embedding", "")
        print(one["verdict"], one["model_type"], used, one["layer_type"], why[:400], sep=" | ", flush=True)
        one["words"] = one["words"].removeprefix("as ").partition(": ")[2] if why.startswith("as ") else one["words"]
        kept = () if one["verdict"] == "refused" else ("words",)
        row = {key: value for key, value in one.items() if value is not None and key not in kept}
        if one["verdict"] in ("right", "refused") and row not in written:
            written.append(row)
    if "--write" in sys.argv:
        lines = [json.dumps(row, sort_keys=True, allow_nan=False) for row in written]
        DATA.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")

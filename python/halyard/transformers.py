"""Halyard in models of transformers: patch(model) has Halyard rotate q and k, unpatch(model) undoes that.

    >>> import halyard.transformers                                             # doctest: +SKIP
    >>> model = AutoModelForCausalLM.from_pretrained(…)                         # doctest: +SKIP
    >>> halyard.transformers.patch(model)                                       # doctest: +SKIP

A patched model no longer computes cos and sin. In its layers Halyard rotates q and k, with exact angles at every
position, and with gradients. patch does not go by a list of models. It compares the frequencies of the model's config
with those that the model holds. Then it rotates q and k by the model's code and by Halyard, and compares the results.
If anything differs, it raises halyard.Error and leaves the model unchanged.

Image encoders are not patched. Models must be on the CPU. In f16 and bf16, stock models round cos, sin and products to
the dtype; a patched model rounds only each result.
"""

import copy
import dataclasses
import functools
import inspect
import sys
import types
from typing import Any, NamedTuple

import torch
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from . import torch as _torch
from ._angles import AngleSource
from ._core import Error
from ._frequencies import Frequencies

_SCALING_Q = ("llama4_text", "ministral3")  # model types whose attention scales q by position, after any rotation
_CHANGING = ("dynamic", "longrope")  # methods whose frequencies depend on the sequence's length
_Module = Any  # a rotary embedding: a torch.nn.Module with attributes that its type does not declare
_EPS = 2.0 ** -23


@dataclasses.dataclass(eq=False)
class _Source:
    """The angles of a layer type. Patched models pass it from the rotary embedding to the layers as their `sin`."""

    angles: AngleSource
    frequencies: Frequencies
    layouts: dict[str, str]

    def __post_init__(self) -> None:
        self.n_axes = self.angles.n_axes  # a plain attribute, which torch.compile can read

    def __getitem__(self, _: Any) -> "_Source":
        return self  # models index cos and sin to continue with some tokens; these angles are for every position

    def rotate(self, q: torch.Tensor, k: torch.Tensor | None, positions: torch.Tensor, layout: str) -> Any:
        return _torch.rotate(q, k, angles=self.angles, positions=positions, pairing=self.frequencies.pairing,
                             out_pairing=self.frequencies.out_pairing, layout=layout)


class _Rotation(NamedTuple):
    """What a patched rotary embedding returns in place of (cos, sin) or, in DeepSeek-V2, of its one tensor."""

    positions: torch.Tensor
    source: _Source

    def to(self, *_: Any, **__: Any) -> "_Rotation":
        return self


class _Embedding:
    """The angle sources of one rotary embedding of a model, by layer type and, for _CHANGING methods, by length."""

    def __init__(self, module: _Module, reference: str, max_position: int | None) -> None:
        self.config = module.config
        self.reference = reference
        self.max_position = max_position
        self.by_length: dict[tuple[str | None, int], _Source] = {}
        self.layouts: dict[str, str] = {}  # by the name of the model's function that rotates: the layout that it takes
        self.takes_one_tensor = False  # whether these functions take q and k in separate calls
        kinds = module.rope_type if isinstance(module.rope_type, dict) else {None: module.rope_type}
        self.method = {layer_type: "dynamic" if "dynamic" in kind else kind for layer_type, kind in kinds.items()}
        # For dynamic NTK: the length of the longest sequence since the last one that fitted the original length.
        self.longest = int(module.max_seq_len_cached) if "dynamic" in self.method.values() else 0
        self.sources = {layer_type: self.make(module, layer_type, 0) for layer_type in kinds}

    def make(self, module: _Module, layer_type: str | None, seq_len: int) -> _Source:
        """Makes the source for a layer type and a length. Raises Error if the module's frequencies differ from it."""
        frequencies = Frequencies.from_config(self.config, seq_len=seq_len, layer_type=layer_type)
        if frequencies.q_scale is not None and self.config.model_type not in _SCALING_Q:
            raise Error(f"{_name(module)} multiplies q by position, which is not known of its code")
        prefix = "" if layer_type is None else f"{layer_type}_"
        held, factor = getattr(module, f"{prefix}original_inv_freq"), getattr(module, f"{prefix}attention_scaling")
        if seq_len != 0:
            kind = module.rope_type if layer_type is None else module.rope_type[layer_type]
            held, factor = ROPE_INIT_FUNCTIONS[kind](self.config, torch.device("cpu"), seq_len=seq_len,
                                                     layer_type=layer_type)
            all_held = [held]
        else:  # inv_freq of a _CHANGING method may be that of a longer sequence, so it is not compared
            names = ("original_inv_freq",) if self.method[layer_type] in _CHANGING else ("original_inv_freq", "inv_freq")
            all_held = [getattr(_unrounded(module), prefix + name) for name in names]
        own = torch.tensor(frequencies.inv_freq, dtype=torch.float64)
        if (any(own.shape != each.shape or not torch.allclose(each.double(), own, rtol=1e-5, atol=0)
                for each in all_held) or abs(factor - frequencies.attention_factor) > 1e-5 * factor):
            raise Error(f"{_name(module)} holds other frequencies than its config tells")
        if self.reference == "exact":
            return _Source(AngleSource(frequencies), frequencies, self.layouts)
        n_positions = max(self.max_position or frequencies.max_position or 0, seq_len)
        if n_positions == 0:
            raise Error(f'reference "{self.reference}" takes a max_position, which the config does not tell')
        listed = Frequencies.from_list(held.tolist(), float(factor))
        return _Source(AngleSource(listed, first=0, n_positions=n_positions, reference=self.reference,
                                   axis_map=frequencies.axis_map), frequencies, self.layouts)

    def original_length(self, module: _Module, layer_type: str | None) -> int:
        """The longest sequence, in tokens, for which a _CHANGING method uses the original frequencies."""
        if self.method[layer_type] == "dynamic":
            return int(module.original_max_seq_len)
        parameters = self.config.rope_parameters
        return int((parameters if layer_type is None else parameters[layer_type])["original_max_position_embeddings"])

    def find(self, module: _Module, positions: torch.Tensor, layer_type: str | None) -> _Source:
        method = self.method[layer_type]
        if method not in _CHANGING:
            return self.sources[layer_type]
        seq_len = int(positions.max()) + 1
        original = self.original_length(module, layer_type)
        if method == "longrope":
            length = original + 1 if seq_len > original else 0
        else:
            # As in transformers: frequencies follow the longest sequence, until a short sequence resets them.
            self.longest = 0 if seq_len < original else max(self.longest, seq_len)
            length = self.longest if self.longest > original else 0
        if length == 0:
            return self.sources[layer_type]
        if (layer_type, length) not in self.by_length:
            if len(self.by_length) > 64:
                self.by_length.clear()
            self.by_length[layer_type, length] = self.make(module, layer_type, length)
        return self.by_length[layer_type, length]


def _forward(module: _Module, x: torch.Tensor, position_ids: torch.Tensor,
             layer_type: str | None = None) -> _Rotation:
    source = module._halyard.find(module, position_ids, layer_type)
    n_axes = source.n_axes
    if n_axes > 1 and position_ids.ndim == 2:
        position_ids = position_ids[None].expand(n_axes, -1, -1)
    if module._halyard.takes_one_tensor:
        position_ids = position_ids[..., None]  # [batch, tokens, 1]: the shape that these models expect of cos
    return _Rotation(position_ids, source)


def _takes_one_tensor(function: Any) -> bool:
    """Whether a function rotates one tensor, so that q and k take separate calls."""
    return next(iter(inspect.signature(function).parameters)) == "x"


def _replace(original: Any) -> Any:
    """Returns the function that replaces a model's `original`. For models that are not patched it calls `original`."""
    n = 1 if _takes_one_tensor(original) else 2  # tensors that it rotates: its first arguments, before cos and sin

    @functools.wraps(original, updated=())
    def rotary(*args: Any, **others: Any) -> Any:
        cos, sin, unsqueeze_dim = (args[n + i] if len(args) > n + i else others.get(name)
                                   for i, name in enumerate(("cos", "sin", "unsqueeze_dim")))
        rotation: Any = (cos, sin) if type(sin) is _Source else cos if type(cos) is _Rotation else None
        if rotation is None:
            return original(*args, **others)
        positions, source = rotation
        layout = "bshd" if unsqueeze_dim == 2 else source.layouts[original.__name__]
        if n == 1:
            return source.rotate(args[0], None, positions[..., 0], layout)
        return source.rotate(args[0], args[1], positions, layout)

    setattr(rotary, "_halyard_original", original)
    return rotary


def _name(module: _Module) -> str:
    return f"{type(module).__name__} of {module.config.model_type}"


def _rotary_embeddings(model: torch.nn.Module) -> list[_Module]:
    return [module for module in model.modules()
            if type(module).__name__.endswith("RotaryEmbedding") and "Vision" not in type(module).__name__]


def _unrounded(module: _Module) -> _Module:
    """A copy whose buffers have their original values again if model.to(bfloat16) has only rounded them."""
    copied = copy.deepcopy(module)
    for name, made in type(module)(module.config).named_buffers():
        held = getattr(module, name)
        if held.dtype != made.dtype and torch.equal(held, made.to(held.dtype)):
            setattr(copied, name, made)
    return copied


def _functions(module: _Module) -> dict[str, Any]:
    """The functions of the module's file that may rotate q and k, by name. Raises Error if the module is unfit."""
    if getattr(getattr(module, "config", None), "model_type", None) is None:
        raise Error(f"{type(module).__name__} has no config with a model type")
    found = {name: getattr(function, "_halyard_original", function)
             for name, function in vars(sys.modules[type(module).__module__]).items()
             if name.startswith("apply_rotary") and callable(function)}
    if not found or not hasattr(module, "rope_type"):
        raise Error(f"{_name(module)} is not as transformers 5 has it: it lacks "
                    + ("rope_type" if found else "apply_rotary_pos_emb"))
    if any(tensor.device.type != "cpu" for tensor in module.buffers()):
        raise Error(f"{_name(module)} does not lie on the CPU")
    return found


def _rotate_as_stock(function: Any, tensors: list[torch.Tensor], rows: tuple[Any, ...], layout: str) -> Any:
    """q and k as a model's function rotates them; None if it does not take such tensors."""
    given = [x if layout == "bhsd" else x.transpose(1, 2) for x in tensors]
    try:
        rotated = [function(x, *rows) for x in given] if _takes_one_tensor(function) else function(*given, *rows)
        return [x if layout == "bhsd" else x.transpose(1, 2) for x in rotated]
    except Exception:  # the function is unknown code, and may fail in any way on tensors that it does not take
        return None


def _compare(module: _Module, layer_type: str | None, functions: dict[str, Any]) -> dict[str, str]:
    """Returns the functions that rotate q and k as Halyard does, by name, with the layout that each takes.

    q and k are random float32, with different positions on each axis, and also with heads wider than the rotated part
    if the function takes those. The angle of a stock model may be wrong by position * inv_freq * 2**-22, and cos, sin
    and products add a few 2**-23; a function passes if no element differs by more."""
    source, random = module._halyard.sources[layer_type], torch.Generator().manual_seed(1)
    n_axes, width = source.n_axes, source.angles.rotary_dim
    limit = min(30_000, source.angles.last + 1)
    if module._halyard.method[layer_type] in _CHANGING:
        limit = min(limit, module._halyard.original_length(module, layer_type) - 1)
    positions = torch.randint(limit, (2, 5) if n_axes == 1 else (n_axes, 2, 5), generator=random)
    frequency = max(abs(value) for value in Frequencies.from_config(module.config, layer_type=layer_type).inv_freq)

    def is_alike(function: Any, layout: str, more: int) -> bool | None:
        tensors = [torch.randn(2, heads, 5, width + more, generator=random) for heads in (3, 1)]
        arguments = (tensors[0], positions) if layer_type is None else (tensors[0], positions, layer_type)
        rows = _unrounded(module)(*arguments)  # calls a copy, because a call may change the module's frequencies
        stock = _rotate_as_stock(function, tensors, rows if isinstance(rows, tuple) else (rows,), layout)
        if stock is None:
            return None
        allowed = [(limit * frequency * 2 + 8) * _EPS * x.norm(dim=-1, keepdim=True) * y.norm() / x.norm()
                   for x, y in zip(tensors, stock)]
        return all(y.shape == z.shape and bool(((y - z).abs() <= most).all())
                   for y, z, most in zip(stock, source.rotate(*tensors, positions, "bhsd"), allowed))

    return {name: layout for name, function in functions.items() for layout in ("bhsd", "bshd")
            if is_alike(function, layout, 0) and is_alike(function, layout, 8) is not False}


def patch(model: torch.nn.Module, *, reference: str = "exact", max_position: int | None = None) -> torch.nn.Module:
    """Has Halyard rotate q and k in a model of transformers 5, and returns the model.

    reference: "exact", or "hf_f32" for the float32 angles of the stock model.
    max_position: for "hf_f32" only: the size of its table [the config's context]. Later positions raise halyard.Error.

    It replaces the rotating functions (apply_rotary_…) in the Python module that defines the model. Other models of
    that module still get the original function. Raises halyard.Error, which names the model, if Halyard would not
    rotate as the model does; the model is then unchanged, and no longer patched.
    """
    modules = _rotary_embeddings(model)
    if not modules:
        raise Error(f"{type(model).__name__} has no rotary embedding that halyard.transformers knows")
    unpatch(model)
    try:
        for module in modules:
            functions = _functions(module)
            own = module._halyard = _Embedding(module, reference, max_position)
            alike = [_compare(module, layer_type, functions) for layer_type in own.sources]
            own.layouts |= {name: layout for name, layout in alike[0].items() if all(name in each for each in alike)}
            if not own.layouts:
                raise Error(f"{_name(module)} does not turn q and k as its config tells")
            own.takes_one_tensor = any(_takes_one_tensor(functions[name]) for name in own.layouts)
    except BaseException:
        for module in modules:
            module.__dict__.pop("_halyard", None)
        raise
    for module in modules:
        source = sys.modules[type(module).__module__]
        for name in module._halyard.layouts:
            if not hasattr(getattr(source, name), "_halyard_original"):
                setattr(source, name, _replace(getattr(source, name)))
        module.forward = types.MethodType(_forward, module)
    return model


def unpatch(model: torch.nn.Module) -> torch.nn.Module:
    """Undoes patch, and returns the model. Does nothing to a model that is not patched."""
    for module in _rotary_embeddings(model):
        if "_halyard" in module.__dict__:
            del module.forward, module._halyard
    return model

"""Halyard in models of transformers: patch(model), and back by unpatch(model).

    >>> import halyard.transformers                                             # doctest: +SKIP
    >>> model = AutoModelForCausalLM.from_pretrained(…)                         # doctest: +SKIP
    >>> halyard.transformers.patch(model)                                       # doctest: +SKIP

A patched model makes no cos and sin. Where its layers turn q and k, Halyard does, with exact angles at any position,
and with gradients. Models are not known by their names, but checked first: the config is read, its frequencies are
compared with those that the model turns by now, and q and k turned by both ways are compared. A model that does not
pass is refused, and stays as it was.

Image encoders are left as they are. Models lie on the CPU. In f16 and bf16 stock models round cos, sin and products to
these types; a patched one rounds each result once.
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

_SCALING_Q = ("llama4_text", "ministral3")  # multiply q by position themselves, wherever it was turned
_CHANGING = ("dynamic", "longrope")  # methods whose frequencies depend on how long a sequence is
_Module = Any  # a rotary embedding: a torch.nn.Module with more members than its type knows
_EPS = 2.0 ** -23


@dataclasses.dataclass(eq=False)
class _Source:
    """The angles of a layer type, which travel through the model in the place of sin."""

    angles: AngleSource
    frequencies: Frequencies
    layouts: dict[str, str]

    def __post_init__(self) -> None:
        self.n_axes = self.angles.n_axes  # which torch.compile reads

    def __getitem__(self, _: Any) -> "_Source":
        return self  # where a model goes on with some of its tokens

    def rotate(self, q: torch.Tensor, k: torch.Tensor | None, positions: torch.Tensor, layout: str) -> Any:
        return _torch.rotate(q, k, angles=self.angles, positions=positions, pairing=self.frequencies.pairing,
                             out_pairing=self.frequencies.out_pairing, layout=layout)


class _Turns(NamedTuple):
    """What a patched rotary embedding gives to the layers, as (cos, sin) or, in DeepSeek-V2, as one tensor."""

    positions: torch.Tensor
    source: _Source

    def to(self, *_: Any, **__: Any) -> "_Turns":
        return self


class _Embedding:
    """The sources of one rotary embedding of a model, by layer type and, where the method is dynamic, by length."""

    def __init__(self, module: _Module, reference: str, max_position: int | None) -> None:
        self.config = module.config
        self.reference = reference
        self.max_position = max_position
        self.by_length: dict[tuple[str | None, int], _Source] = {}
        self.layouts: dict[str, str] = {}  # in which the functions of the model's module turn q and k as Halyard does
        self.turns_alone = False  # whether these take q and k one after the other
        kinds = module.rope_type if isinstance(module.rope_type, dict) else {None: module.rope_type}
        self.method = {layer_type: "dynamic" if "dynamic" in kind else kind for layer_type, kind in kinds.items()}
        # Of dynamic NTK: the longest sequence since the last one that was short.
        self.longest = int(module.max_seq_len_cached) if "dynamic" in self.method.values() else 0
        self.sources = {layer_type: self.make(module, layer_type, 0) for layer_type in kinds}

    def make(self, module: _Module, layer_type: str | None, seq_len: int) -> _Source:
        """The source for a layer type and a length, once it was compared with the frequencies that the module holds."""
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
        else:  # what a method changes as sequences grow is compared where the module turns by it
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
        """In tokens: up to where a dynamic method leaves the frequencies as they were."""
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
            # As transformers has it: frequencies grow with the sequence, and shrink when a short one begins.
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
             layer_type: str | None = None) -> _Turns:
    source = module._halyard.find(module, position_ids, layer_type)
    n_axes = source.n_axes
    if n_axes > 1 and position_ids.ndim == 2:
        position_ids = position_ids[None].expand(n_axes, -1, -1)
    if module._halyard.turns_alone:
        position_ids = position_ids[..., None]  # [batch, tokens, 1], as these models index cos
    return _Turns(position_ids, source)


def _turns_alone(function: Any) -> bool:
    """Whether a function turns one tensor, and so q and k one after the other."""
    return next(iter(inspect.signature(function).parameters)) == "x"


def _replace(original: Any) -> Any:
    """What takes the place of a model's function: of models that are not patched, it does what it did."""
    n = 1 if _turns_alone(original) else 2  # tensors that it turns, which cos and sin follow

    @functools.wraps(original, updated=())
    def rotary(*args: Any, **others: Any) -> Any:
        cos, sin, unsqueeze_dim = (args[n + i] if len(args) > n + i else others.get(name)
                                   for i, name in enumerate(("cos", "sin", "unsqueeze_dim")))
        turns: Any = (cos, sin) if type(sin) is _Source else cos if type(cos) is _Turns else None
        if turns is None:
            return original(*args, **others)
        layout = "bshd" if unsqueeze_dim == 2 else turns[1].layouts[original.__name__]
        if n == 1:
            return turns[1].rotate(args[0], None, turns[0][..., 0], layout)
        return turns[1].rotate(args[0], args[1], turns[0], layout)

    setattr(rotary, "_halyard_original", original)
    return rotary


def _name(module: _Module) -> str:
    return f"{type(module).__name__} of {module.config.model_type}"


def _rotary_embeddings(model: torch.nn.Module) -> list[_Module]:
    return [module for module in model.modules()
            if type(module).__name__.endswith("RotaryEmbedding") and "Vision" not in type(module).__name__]


def _unrounded(module: _Module) -> _Module:
    """A copy, in which buffers that model.to(bfloat16) has rounded are as the config has them; no others are touched."""
    copied = copy.deepcopy(module)
    for name, made in type(module)(module.config).named_buffers():
        held = getattr(module, name)
        if held.dtype != made.dtype and torch.equal(held, made.to(held.dtype)):
            setattr(copied, name, made)
    return copied


def _functions(module: _Module) -> dict[str, Any]:
    """The functions that may turn q and k; throws where the module is not of a kind that can be patched."""
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


def _turn_as_stock(function: Any, tensors: list[torch.Tensor], rows: tuple[Any, ...], layout: str) -> Any:
    """What a model's function makes of q and k; None where it takes no such tensors."""
    given = [x if layout == "bhsd" else x.transpose(1, 2) for x in tensors]
    try:
        turned = [function(x, *rows) for x in given] if _turns_alone(function) else function(*given, *rows)
        return [x if layout == "bhsd" else x.transpose(1, 2) for x in turned]
    except Exception:  # of whatever a function, of which nothing is known, meets first
        return None


def _compare(module: _Module, layer_type: str | None, functions: dict[str, Any]) -> dict[str, str]:
    """Which functions turn q and k as Halyard does, and in which layout. They are random, of float32, and have other
    positions on each axis, and wider heads where the function takes them. What stock angles are off by at position p is
    p * inv_freq * 2**-22 at most, and cos, sin and products add some 2**-23."""
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
        rows = _unrounded(module)(*arguments)  # a copy, which the call may change
        stock = _turn_as_stock(function, tensors, rows if isinstance(rows, tuple) else (rows,), layout)
        if stock is None:
            return None
        allowed = [(limit * frequency * 2 + 8) * _EPS * x.norm(dim=-1, keepdim=True) * y.norm() / x.norm()
                   for x, y in zip(tensors, stock)]
        return all(y.shape == z.shape and bool(((y - z).abs() <= most).all())
                   for y, z, most in zip(stock, source.rotate(*tensors, positions, "bhsd"), allowed))

    return {name: layout for name, function in functions.items() for layout in ("bhsd", "bshd")
            if is_alike(function, layout, 0) and is_alike(function, layout, 8) is not False}


def patch(model: torch.nn.Module, *, reference: str = "exact", max_position: int | None = None) -> torch.nn.Module:
    """Has Halyard turn q and k in a model of transformers, and returns the model.

    reference: "exact", or "hf_f32" for what stock float32 angles give.
    max_position: of hf_f32, how many positions there are [those of the config]; later ones raise.

    Raises halyard.Error, naming the model's kind, where that is not understood; the model is as it was then. The
    function of the model's module that turns q and k is replaced by one that does so for patched models only.
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
            own.turns_alone = any(_turns_alone(functions[name]) for name in own.layouts)
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
    """Makes the model stock again, and returns it. One that was not patched stays as it is."""
    for module in _rotary_embeddings(model):
        if "_halyard" in module.__dict__:
            del module.forward, module._halyard
    return model

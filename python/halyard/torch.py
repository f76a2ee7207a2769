"""Halyard for PyTorch: operators in torch.ops.halyard, for eager calls and torch.compile, two of them with gradients.

    >>> import torch, halyard, halyard.torch
    >>> angles = halyard.AngleSource(halyard.Frequencies.from_base(10000.0, 64))
    >>> q = torch.randn(1, 5, 4, 64, requires_grad=True)
    >>> halyard.torch.rotate(q, angles=angles, positions=torch.arange(5)).sum().backward()

``halyard.rotate`` takes tensors as well. ``rotate`` and ``Road`` (with the stages up to a cache) call these operators:

    rotate(Tensor q, str how, Tensor? positions=None, SymInt start=0) -> Tensor
    rotate_qk(Tensor q, Tensor k, str how, …) -> (Tensor, Tensor)
    rotate_no_grad, rotate_qk_no_grad   the same without gradients, and some microseconds faster
    rotate_, rotate_qk_                 in place; like road they are for torch.no_grad() and inference_mode()
    road                                from a projection to a cache, in place; see Road

Gradients are for backward() and torch.autograd.grad: forward mode and torch.func's grad, vjp and jacrev are refused.

``how`` is what ``describe`` or ``Road`` has made: text that is the same in every process, so that a compiled graph with
it is found on disk. The AngleSource that it names has to be alive. (Sources that are given or linear are memory of one
process, and their graphs are not found in another.)

On a CPU the operators are C++ without Python's lock. What Halyard refuses they raise as RuntimeError. They take PyTorch
2.13 or newer. Tensors on a CUDA device go where halyard.rotate takes these.
"""

import contextlib
import dataclasses
import functools
import json
import pathlib
from typing import Any, NoReturn

import torch
from torch._library.autograd import Info, make_autograd_impl
from torch.autograd import forward_ad

from . import _core
from ._angles import AngleSource, find
from ._core import Error
from ._prepare import split, with_heads
from ._rotate import turn_on_cuda
from ._tensor import Cache, CacheLayout, Groups, Norm, Options, complete, require_source
from ._tensor import Tensor as Stages

Tensor = torch.Tensor
_OPS = torch.ops.halyard

_WHERE = "str how, Tensor? positions=None, SymInt start=0"
_SCHEMAS = {
    "rotate": f"(Tensor q, {_WHERE}) -> Tensor",
    "rotate_no_grad": f"(Tensor q, {_WHERE}) -> Tensor",
    "rotate_": f"(Tensor(a!) q, {_WHERE}) -> ()",
    "rotate_qk": f"(Tensor q, Tensor k, {_WHERE}) -> (Tensor, Tensor)",
    "rotate_qk_no_grad": f"(Tensor q, Tensor k, {_WHERE}) -> (Tensor, Tensor)",
    "rotate_qk_": f"(Tensor(a!) q, Tensor(b!) k, {_WHERE}) -> ()",
    "road": "(Tensor(a!) q, str how, Tensor(b!)? k=None, Tensor(c!)? v=None, Tensor? positions=None, "
            "Tensor? slots=None, Tensor(d!)? k_cache=None, Tensor(e!)? v_cache=None, Tensor? q_weight=None, "
            "Tensor? k_weight=None, Tensor(f!)? out=None) -> ()",
}
_ROLES = ("q", "k", "v", "positions", "slots", "k_cache", "v_cache", "q_weight", "k_weight", "out", "k_out")


def describe(angles: AngleSource, *, rotary_offset: int = 0, inverse: bool = False, pairing: str | None = None,
             out_pairing: str | None = None, layout: str = "bshd", bad_position: str = "error",
             duplicate_slots: str = "error", threads: int = 0) -> str:
    """The ``how`` of operators that rotate; all as in halyard.rotate, and rotary_offset of all tensors. threads: 0: as
    many as PyTorch's."""
    require_source("angles", angles)
    return (f"{angles._key}|{rotary_offset}|{int(inverse)}|{pairing or ''}|{out_pairing or ''}|{layout}|{bad_position}|"
            f"{duplicate_slots}|{threads}")


def _read(how: str) -> tuple[_core.AngleSource, int, Options, Any]:
    """What describe said: the source, the offset, options, and what a Road adds."""
    key, *others = how.split("|", 9)
    if len(others) not in (0, 8, 9):
        raise Error(f'how is "{how[:60]}", which is nothing that describe has made')
    offset, inverse, pairing, out_pairing, layout, bad_position, duplicates, threads = (
        others[:8] or ("0", "", "", "", "bshd", "error", "error", "0"))
    options = Options(inverse == "1", pairing or None, out_pairing or None, layout, bad_position, duplicates, int(threads))
    return find(key), int(offset), options, json.loads(others[8]) if len(others) == 9 else None


_KINDS = {"norm": Norm, "from_groups": Groups, "groups": Groups, "cache": Cache, "layout": CacheLayout}


def _remake(fields: dict[str, Any]) -> dict[str, Any]:
    """The small objects that JSON has as dictionaries, by the names of what they are for."""
    return {name: _KINDS[name](**_remake(value)) if isinstance(value, dict) else value for name, value in fields.items()}


class Road:
    """From a projection to a cache in one operator, as halyard.rotate does it: for layers of a model, which bring their
    own weights and caches.

    q, k, v: Tensors without arrays, with norms and caches that have none either, since each call brings these, and
        without an out. Where q, k and v lie side by side in one tensor they are, as in halyard.prepare, numbers of heads
        of head_dim, or Tensors with these in the place of the array.
    options: those of describe, but rotary_offset, which each Tensor has.

    ``how`` is all of this as text.
    """

    def __init__(self, q: Any = None, k: Any = None, v: Any = None, *, head_dim: int = 0, angles: AngleSource,
                 **options: Any) -> None:
        given = with_heads((q, k, v), head_dim) if head_dim else [
            (name, each) for name, each in zip("qkv", (q, k, v)) if each is not None]
        for name, each in given:
            brought = (each.norm and (each.norm.weight, each.norm.bias), each.cache and (each.cache.array,), (each.out,))
            if any(array is not None for arrays in brought for array in arrays or ()):
                raise Error(f"{name} has a weight, a cache or an out, but each call of a Road brings them")
        told = {name: dataclasses.asdict(each) for name, each in given}
        self.angles = angles
        self.how = f"{describe(angles, rotary_offset=0, **options)}|{json.dumps((head_dim, told))}"

    def __call__(self, q: Tensor, k: Tensor | None = None, v: Tensor | None = None, *, positions: Tensor | None = None,
                 slots: Tensor | None = None, k_cache: Tensor | None = None, v_cache: Tensor | None = None,
                 q_weight: Tensor | None = None, k_weight: Tensor | None = None, out: Tensor | None = None) -> None:
        """Turns q (and k and v, where they have no cache) in place, or q into out. It has no gradients."""
        _refuse_derivatives(q, k, v, k_cache, v_cache, q_weight, k_weight, out)
        if torch.is_grad_enabled():
            for name, x in ("q", q), ("k", k), ("v", v):
                if x is not None and x.requires_grad:
                    raise Error(f"{name} requires a gradient, which a Road does not have: call it in torch.no_grad()")
        try:
            with torch.no_grad() if torch.is_grad_enabled() else contextlib.nullcontext():
                _OPS.road.default(q, self.how, k, v, positions, slots, k_cache, v_cache, q_weight, k_weight, out)
        except RuntimeError as refusal:
            _raise(refusal)


def _raise(refusal: RuntimeError) -> NoReturn:
    """As halyard.Error what an operator of ours has refused."""
    name, found, sentence = str(refusal).partition(": ")
    if found and name.startswith("halyard::"):
        raise Error(sentence) from None
    raise refusal


def _describe_road(tensors: dict[str, Any], head_dim: int, told: dict[str, Any]) -> list[tuple[Any, ...]]:
    """What the extension takes of a Road's tensors."""
    given = {name: Stages(**_remake(fields)) for name, fields in told.items()}
    names = told if head_dim else [name for name in "qkv" if tensors[name] is not None]
    for name, what in (("k", "k"), ("v", "v"), *((name, f"{name}_{of}") for name in "qkv" for of in ("cache", "weight"))):
        if tensors.get(what) is not None and (name not in names or (what == name and head_dim)):
            raise Error(f"{what} is given, but {'q holds all heads' if what == name else name + ' is not'}")
    for name in names:
        stages = given.get(name, Stages(tensors[name]))
        cache, weight = (tensors.get(f"{name}_{what}") for what in ("cache", "weight"))
        if weight is not None:
            if stages.norm is None:
                raise Error(f"{name}_weight is given, but {name} has no norm")
            stages = dataclasses.replace(stages, norm=dataclasses.replace(stages.norm, weight=weight))
        given[name] = dataclasses.replace(
            stages, cache=cache if stages.cache is None or cache is None else Cache(cache, stages.cache.layout))
    q, out = tensors["q"], tensors["out"]
    if not head_dim:
        return [complete(name, dataclasses.replace(given[name], array=tensors[name], out=out if name == "q" else None),
                         True, name != "v")[0] for name in names]
    columns = sum(stages.array for stages in given.values()) * head_dim
    if q.shape[-1] != columns:
        raise Error(f"q has the shape {tuple(q.shape)}, but has to be [tokens, {columns}] or [batch, tokens, {columns}]")
    if out is not None and len(out.shape) == len(q.shape):
        out = _heads(out, 0, given["q"].array, head_dim)
    return split(list(given.items()), lambda first, n: _heads(q, first, n, head_dim), out)


def _heads(x: Any, first: int, n: int, head_dim: int) -> Any:
    """n heads of those that share the last dimension of a tensor, or of a view that the extension has of it."""
    if isinstance(x, _core.View):
        return x.heads(first, n, head_dim)
    return x[..., first * head_dim:(first + n) * head_dim].unflatten(-1, (n, head_dim))


def _describe(name: str, given: list[Any], start: int, how: str) -> tuple[Any, ...]:
    """The arguments of the extension's rotate for a call of an operator."""
    tensors = dict(zip(_ROLES, given))
    angles, offset, options, road = _read(how)
    if not (isinstance(road, list) if name == "road" else road is None):
        raise Error(f'how is "{how[:60]}", which is not what {"a Road" if name == "road" else "describe"} has made')
    positions = tensors["positions"]
    if name == "road":
        return angles, _describe_road(tensors, *road), positions, tensors["slots"], options
    if positions is None and not (angles.by_token and start == 0):
        positions = start
    stages = Stages(rotary_offset=offset) if offset else None
    outputs = {"q": tensors["out"], "k": tensors["k_out"]}
    turned = [(role, tensors[role], tensors[role] if out is None else out, True, stages)
              for role, out in outputs.items() if tensors[role] is not None]
    return angles, turned, positions, None, options


def _check(*tensors: Tensor) -> None:
    """What a graph is refused for when it is made, rather than when it runs."""
    for x in tensors:
        if x.dim() not in (3, 4) or x.dtype not in (torch.float32, torch.float16, torch.bfloat16):
            raise Error(f"a tensor of shape {tuple(x.shape)} and {x.dtype} has to be [tokens, heads, head_dim] or "
                        "[batch, tokens, heads, head_dim] of float32, float16 or bfloat16")


def _run_on_cuda(op: Any, *values: Any) -> Any:
    told = dict.fromkeys((*_ROLES, "start")) | dict(zip((each.name for each in op._schema.arguments), values))
    outputs = [torch.empty_like(told[role]) for role in _ROLES[:len(op._schema.returns)]]
    told |= dict(zip(_ROLES[-2:], outputs))
    name, given = op.__name__.split(".")[0], [told[role] for role in _ROLES]
    turn_on_cuda(*_describe(name, given, told["start"] or 0, told["how"]))
    return outputs[0] if len(outputs) == 1 else tuple(outputs) or None


def _fake(op: Any, *values: Any, **others: Any) -> Any:
    if forward_ad._current_level >= 0:  # as where graphs are made
        raise Error(_NO_TANGENTS)
    if len(devices := {x.device.type for x in (*values, *others.values()) if isinstance(x, Tensor)}) > 1:
        raise Error(f"the tensors lie on {' and '.join(sorted(devices))}, but have to lie on one device")
    if "road" not in op.__name__:
        _check(*(x for x in values[:2] if isinstance(x, Tensor)))
    outputs = tuple(torch.empty_like(x) for x in values[:len(op._schema.returns)])
    return outputs[0] if len(outputs) == 1 else outputs or None


_NO_TANGENTS = ("a tensor has a tangent, but halyard.torch has no forward-mode derivatives (jvp, jacfwd): "
                "take backward() or torch.autograd.grad")


def _refuse_derivatives(*values: Any) -> None:
    """Refuses what forward mode or a transform of torch.func differentiates, also inside other transforms."""
    if torch.compiler.is_compiling():
        if forward_ad._current_level >= 0:  # which guards graphs; whether x has a tangent is seen outside of them
            raise Error(_NO_TANGENTS)
        return
    functorch: Any = torch._C._functorch
    in_transform = torch._C._are_functorch_transforms_active()
    for x in values if in_transform or forward_ad._current_level >= 0 else ():
        while isinstance(x, Tensor):
            if forward_ad._current_level >= 0 and not functorch.is_batchedtensor(x) and forward_ad.unpack_dual(x).tangent is not None:
                raise Error(_NO_TANGENTS)
            if in_transform and x.requires_grad and torch.is_grad_enabled():
                raise Error("a tensor requires a gradient in a transform of torch.func (grad, vjp, jacrev), where "
                            "halyard.torch has none: take backward() or torch.autograd.grad")
            x = functorch.get_unwrapped(x) if functorch.is_functorch_wrapped_tensor(x) else None


_library = torch.library.Library("halyard", "DEF")
for _name, _schema in _SCHEMAS.items():
    _library.define(_name + _schema, tags=[torch.Tag.pt2_compliant_tag])
    _op = getattr(_OPS, _name).default
    _library.impl(_name, functools.partial(_run_on_cuda, _op), "CUDA")
    torch.library.register_fake(_op, functools.partial(_fake, _op), lib=_library)
_core.implement_operators(str(pathlib.Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"), _describe)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    *_, ctx.how, positions, ctx.start = inputs
    ctx.source = _read(ctx.how)[0]  # which must live until then
    ctx.has_positions = positions is not None
    ctx.save_for_backward(*([positions] if ctx.has_positions else []))


def _turn_back(ctx: Any) -> tuple[str, Tensor | None, int]:
    """The arguments of the inverse: R(-theta) f, the transpose of R(theta) f, from the output's pairing to the
    input's."""
    angles, offset, options, _ = _read(ctx.how)
    own = options.pairing or angles.pairing or "half"
    own_out = options.out_pairing or (own if options.pairing else angles.out_pairing or own)
    turned = options._replace(inverse=not options.inverse, pairing=own_out, out_pairing=own)
    how = "|".join((ctx.how.split("|")[0], str(offset), str(int(turned.inverse)), *map(str, turned[1:7])))
    return how, ctx.saved_tensors[0] if ctx.has_positions else None, ctx.start


def _backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
    return _OPS.rotate(gradient, *_turn_back(ctx)), None, None, None


def _backward_qk(ctx: Any, q_gradient: Tensor, k_gradient: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
    return (*_OPS.rotate_qk(q_gradient, k_gradient, *_turn_back(ctx)), None, None, None)


def _differentiate(kernel: Any, keyset: Any, *values: Any) -> Any:
    _refuse_derivatives(*values)
    return kernel(keyset, *values)


for _name, _back in ("rotate", _backward), ("rotate_qk", _backward_qk):  # as register_autograd does, but for refusals
    _kernel = make_autograd_impl(getattr(_OPS, _name).default, Info(_back, _keep))
    _library.impl(_name, functools.partial(_differentiate, _kernel), "Autograd", with_keyset=True)


def rotate(q: Tensor, k: Tensor | None = None, *, angles: AngleSource, positions: Tensor | int | None = None,
           layout: str = "bshd", **options: Any) -> Tensor | tuple[Tensor, Tensor]:
    """halyard.rotate of tensors into new ones, with gradients, and in one piece of a compiled graph.

    options: those of describe. The rest is as in halyard.rotate.
    """
    require_source("angles", angles)
    if layout not in ("bshd", "bhsd"):
        raise Error(f'layout is "{layout}", which is none of: bshd, bhsd')
    if (positions is None and q.dim() in (3, 4) and (q.dim() == 4 or q.shape[1 if layout == "bhsd" else 0] == 1)
            and not angles._handle.by_token):
        raise Error(f"positions is left out, but q has {'a batch' if q.dim() == 4 else 'one token'}: say where the "
                    "tokens are (0, if they start at position 0)")
    how = describe(angles, layout=layout, **options) if options or layout != "bshd" else angles._key
    _refuse_derivatives(q, k)
    start = positions if isinstance(positions, (int, torch.SymInt)) else 0
    given = positions if isinstance(positions, Tensor) else None
    follows = torch.is_grad_enabled() and (q.requires_grad or (k is not None and k.requires_grad))
    turned: Tensor | tuple[Tensor, Tensor]
    try:
        if k is None:
            turned = (_OPS.rotate if follows else _OPS.rotate_no_grad).default(q, how, given, start)
        else:
            turned = (_OPS.rotate_qk if follows else _OPS.rotate_qk_no_grad).default(q, k, how, given, start)
    except RuntimeError as refusal:
        _raise(refusal)
    return turned

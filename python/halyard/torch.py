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
from ._rotate import CacheLayout, Norm, Stages, complete, not_a_source, turn_on_gpu

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


def describe(angles: AngleSource, *, inverse: bool = False, pairing: str | None = None, out_pairing: str | None = None,
             rotary_offset: int | tuple[int, int] = 0, layout: str = "bshd", bad_position: str = "error",
             threads: int = 0) -> str:
    """The ``how`` of operators that rotate; all as in halyard.rotate. threads: 0: as many as PyTorch's."""
    if not isinstance(angles, AngleSource):
        raise not_a_source("angles", angles)
    offsets = rotary_offset if isinstance(rotary_offset, tuple) else (rotary_offset, rotary_offset)
    return (f"{angles._key}|{int(inverse)}|{pairing or ''}|{out_pairing or ''}|{offsets[0]}|{offsets[-1]}|{layout}|"
            f"{bad_position}|{threads}")


def _read(how: str) -> tuple[_core.AngleSource, tuple[int, int, int], tuple[Any, ...]]:
    """What describe said: the source, offsets, and `how` of the extension."""
    key, *others = how.split("|")
    if len(others) not in (0, 8):
        raise Error(f'how is "{how[:60]}", which is nothing that describe has made')
    inverse, pairing, out_pairing, q, k, layout, bad_position, threads = (
        others if len(others) == 8 else ("0", "", "", "0", "0", "bshd", "error", "0"))
    return find(key), (int(q), int(k), 0), (pairing or None, out_pairing or None, inverse == "1", layout, bad_position,
                                            int(threads), None, None, 0)


class Road:
    """From a projection to a cache in one operator, as halyard.rotate does it: for layers of a model, which bring their
    own weights and caches.

    heads: of q, k and v where these lie in one tensor, and head_dim where the heads of a token share its last
        dimension, as in halyard.rotate.
    norm: Norms (for q, for k) without their weights, which each call brings.
    scale: numbers. threads: 0: as many as PyTorch's. The rest is as in halyard.rotate.

    ``how`` is all of this as text.
    """

    def __init__(self, *, angles: AngleSource, heads: tuple[int, ...] | None = None, head_dim: int = 0,
                 inverse: bool = False, pairing: str | None = None, out_pairing: str | None = None,
                 rotary_offset: int | tuple[int, ...] = 0, layout: str = "bshd", bad_position: str = "error",
                 norm: tuple[Norm | None, ...] | None = None, scale: tuple[float | None, ...] | None = None,
                 dtype: tuple[str | None, ...] | None = None, cache_layout: Any = "nhd", duplicate_slots: str = "error",
                 hadamard: int | tuple[int, ...] = 0, threads: int = 0) -> None:
        if not isinstance(angles, AngleSource):
            raise not_a_source("angles", angles)
        if any(each is not None and (each.weight is not None or each.bias is not None) for each in norm or ()):
            raise Error("norm has a weight, but a Road's norms have none: each call brings q_weight and k_weight")
        self.angles = angles
        self.how = json.dumps(dict(
            norm=norm, scale=scale, dtype=dtype, cache_layout=cache_layout, duplicate_slots=duplicate_slots,
            hadamard=hadamard, angles=angles._key, rotary_offset=rotary_offset,
            how=(pairing, out_pairing, inverse, layout, bad_position, threads, None, heads or None, head_dim)),
            default=dataclasses.asdict)

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


def _tuples(value: Any) -> Any:
    """Of JSON, which has lists."""
    return tuple(value) if isinstance(value, list) else value


def _describe_road(tensors: dict[str, Any], how: str) -> tuple[Any, ...]:
    told = {name: _tuples(value) for name, value in json.loads(how).items()}
    q, k, v, out = (tensors[name] for name in ("q", "k", "v", "out"))
    if (k is None) != (v is None) and tensors["v_cache"] is not None:
        raise Error(f"{'v' if k is None else 'k'} is given, but {'k' if k is None else 'v'} is not")
    norms = []
    for name, fields in zip("qkv", (*(told["norm"] or ()), None, None, None)):
        weight = tensors.get(f"{name}_weight")
        if weight is not None and fields is None:
            raise Error(f"{name}_weight is given, but {name} has no norm")
        norms.append(None if fields is None else Norm(**{**fields, "weight": weight}))
    layouts = told["cache_layout"]
    layouts = tuple(CacheLayout(**each) if isinstance(each, dict) else each
                    for each in (layouts if isinstance(layouts, tuple) else (layouts,) * 3))
    heads, head_dim = told["how"][7:]
    all_of = (q,) * len(heads) if heads else (q, k, v)
    n = max(i + 1 for i, each in enumerate(all_of) if each is not None)
    if out is not None and heads and len(out.shape) == len(q.shape) and head_dim:
        raise Error(f"out has the shape {tuple(out.shape)}, but heads have a dimension of their own there")
    cache = (None, tensors["k_cache"], tensors["v_cache"])
    stages = Stages(tuple(norms)[:n], told["scale"], cache, told["dtype"], layouts, tensors["slots"],
                    told["duplicate_slots"], hadamard=told["hadamard"])
    outputs = (q if out is None else out, *all_of[1:])
    given, _ = complete((q, k, v), tensors["positions"], outputs, told["rotary_offset"], stages, told["how"])
    return find(told["angles"]), *given


def _describe(name: str, given: list[Any], start: int, how: str) -> tuple[Any, ...]:
    """The arguments of the extension's rotate for a call of an operator."""
    tensors = dict(zip(_ROLES, given))
    if name == "road":
        return _describe_road(tensors, how)
    angles, offsets, options = _read(how)
    q, k, out, k_out = (tensors[role] for role in ("q", "k", "out", "k_out"))
    positions = tensors["positions"]
    if positions is None and not (angles.by_token and start == 0):
        positions = start
    outputs = (q if out is None else out, k if k_out is None else k_out, None)
    return angles, (q, k, None), outputs, positions, offsets, None, options


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
    turn_on_gpu(*_describe(op.__name__.split(".")[0], [told[role] for role in _ROLES], told["start"] or 0, told["how"]))
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
    angles, offsets, (pairing, out_pairing, inverse, layout, bad_position, threads, *_) = _read(ctx.how)
    own = pairing or angles.pairing or "half"
    own_out = out_pairing or (own if pairing else angles.out_pairing or own)
    how = "|".join(map(str, (ctx.how.split("|")[0], int(not inverse), own_out, own, *offsets[:2], layout, bad_position,
                             threads)))
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
           inverse: bool = False, pairing: str | None = None, out_pairing: str | None = None,
           rotary_offset: int | tuple[int, int] = 0, layout: str = "bshd", bad_position: str = "error",
           threads: int = 0) -> Tensor | tuple[Tensor, Tensor]:
    """halyard.rotate of tensors into new ones, with gradients, and in one piece of a compiled graph.

    threads: 0: as many as PyTorch's (torch.get_num_threads()). The rest is as in halyard.rotate.
    """
    if not isinstance(angles, AngleSource):
        raise not_a_source("angles", angles)
    if layout not in ("bshd", "bhsd"):
        raise Error(f'layout is "{layout}", which is none of: bshd, bhsd')
    if (positions is None and q.dim() in (3, 4) and (q.dim() == 4 or q.shape[1 if layout == "bhsd" else 0] == 1)
            and not angles._handle.by_token):
        raise Error(f"positions is left out, but q has {'a batch' if q.dim() == 4 else 'one token'}: say where the "
                    "tokens are (0, if they start at position 0)")
    if inverse or pairing or out_pairing or rotary_offset or threads or layout != "bshd" or bad_position != "error":
        how = describe(angles, inverse=inverse, pairing=pairing, out_pairing=out_pairing, rotary_offset=rotary_offset,
                       layout=layout, bad_position=bad_position, threads=threads)
    else:
        how = angles._key
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

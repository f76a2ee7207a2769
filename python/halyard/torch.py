"""Halyard for PyTorch, 2.6 or newer: operators for eager calls and torch.compile, on CPUs and CUDA devices.

    >>> import torch, halyard, halyard.torch
    >>> angles = halyard.AngleSource(halyard.Frequencies.from_base(10000.0, 64))
    >>> q = torch.randn(1, 5, 4, 64, requires_grad=True)
    >>> halyard.torch.rotate(q, angles=angles, positions=torch.arange(5)).sum().backward()

``halyard.rotate`` takes tensors too, but has no gradients. ``halyard.torch.rotate`` calls these operators of
torch.ops.halyard:

    rotate(Tensor q, str how, Tensor? positions=None, SymInt start=0) -> Tensor
    rotate_qk(Tensor q, Tensor k, str how, …) -> (Tensor, Tensor)
    rotate_, rotate_qk_     in place, for torch.no_grad() and inference_mode()

rotate and rotate_qk have gradients (backward(), torch.autograd.grad) and, outside of compiled graphs, forward-mode
derivatives (dual numbers, jvp, jacfwd). Every operator refuses torch.func's grad, vjp and jacrev.

``how`` is a string that ``describe`` returns: the call's options and a key of the AngleSource, which must be kept alive.
The string is the same in every process, so that PyTorch's on-disk cache can reuse a compiled graph that contains it.
(Not so for given and linear sources, because these hold memory of one process.)
"""

import functools
import weakref
from typing import Any

import torch
from torch.autograd import forward_ad

from . import _core
from ._angles import AngleSource, find_source
from ._calls import rotate_on_cuda
from ._core import Error
from ._tensor import Options, require_source
from ._tensor import Tensor as Stages

Tensor = torch.Tensor
_OPS = torch.ops.halyard


def describe(angles: AngleSource, *, rotary_offset: int = 0, inverse: bool = False, pairing: str | None = None,
             out_pairing: str | None = None, layout: str = "bshd", bad_position: str = "error",
             duplicate_slots: str = "error", threads: int = 0) -> str:
    """Returns the ``how`` of an operator. rotary_offset is that of q and k; the rest is as in halyard.rotate."""
    require_source("angles", angles)
    return (f"{angles._key}|{rotary_offset}|{int(inverse)}|{pairing or ''}|{out_pairing or ''}|{layout}|{bad_position}|"
            f"{duplicate_slots}|{threads}")


def _read(how: str) -> tuple[_core.AngleSource, int, Options]:
    """Parses the string that describe returned into source, rotary_offset and options."""
    key, *others = how.split("|")
    if len(others) not in (0, 8):
        raise Error(f'how is "{how[:60]}", which is nothing that describe has made')
    offset, inverse, pairing, out_pairing, layout, bad_position, duplicates, threads = (
        others or ("0", "", "", "", "bshd", "error", "error", "0"))
    options = Options(inverse == "1", pairing or None, out_pairing or None, layout, bad_position, duplicates, int(threads))
    return find_source(key), int(offset), options


def _describe(how: str, start: int, *given: Any) -> tuple[Any, ...]:
    """The arguments of _core.rotate for an operator's call; given: q, k, out, k_out and positions, each or None."""
    q, k, out, k_out, positions = (x if x is None else x.detach() for x in given)
    angles, offset, options = _read(how)
    if positions is None and not (angles.by_token and start == 0):
        positions = start
    stages = Stages(rotary_offset=offset) if offset else None
    tensors = [(name, x, x if to is None else to, True, stages)
               for name, x, to in (("q", q, out), ("k", k, k_out)) if x is not None]
    return angles, tensors, positions, None, options


# The prepared calls of each `how`, as long as its source lives.
_bound: dict[str, _core.Prepared] = {}
_has_exchange = hasattr(Tensor, "__dlpack_c_exchange_api__")


def _run(how: str, start: int, q: Tensor, k: Tensor | None, out: Tensor | None, k_out: Tensor | None,
         positions: Tensor | None) -> None:
    """The kernel of every operator. Without out, q and k are overwritten."""
    if q.is_cuda:
        rotate_on_cuda(*_describe(how, start, q, k, out, k_out, positions))
        return
    calls = _bound.get(how)
    if calls is None:
        source = find_source(how.partition("|")[0])
        calls = _bound[how] = _core.Prepared(functools.partial(_describe, how))
        weakref.finalize(source, _bound.pop, how, None).atexit = False
    if not _has_exchange:  # before PyTorch 2.10, DLPack refuses tensors that require gradients
        q, k, out, k_out, positions = (x if x is None else x.detach() for x in (q, k, out, k_out, positions))
    # No method: PyTorch 2.13's compiler calls methods without their object.
    _core.run_tensors(calls, start, q, k, out, k_out, positions)


def _rotate(q: Tensor, how: str, positions: Tensor | None = None, start: int = 0) -> Tensor:
    _run(how, start, q, None, out := torch.empty_like(q), None, positions)
    return out


def _rotate_qk(q: Tensor, k: Tensor, how: str, positions: Tensor | None = None, start: int = 0) -> tuple[Tensor, Tensor]:
    _run(how, start, q, k, out := torch.empty_like(q), k_out := torch.empty_like(k), positions)
    return out, k_out


_WHERE = "str how, Tensor? positions=None, SymInt start=0"
_OPERATORS: dict[str, tuple[str, Any]] = {
    "rotate": (f"(Tensor q, {_WHERE}) -> Tensor", _rotate),
    "rotate_": (f"(Tensor(a!) q, {_WHERE}) -> ()",
                lambda q, how, positions=None, start=0: _run(how, start, q, None, None, None, positions)),
    "rotate_qk": (f"(Tensor q, Tensor k, {_WHERE}) -> (Tensor, Tensor)", _rotate_qk),
    "rotate_qk_": (f"(Tensor(a!) q, Tensor(b!) k, {_WHERE}) -> ()",
                   lambda q, k, how, positions=None, start=0: _run(how, start, q, k, None, None, positions)),
}

_NO_TANGENTS = ("a tensor may have a tangent, but halyard.torch has no forward-mode derivatives (jvp, jacfwd) in compiled "
                "graphs: call it outside of them")


def _refuse_transforms(*values: Any) -> None:
    """Raises Error if torch.func differentiates a tensor in reverse mode, even inside other transforms."""
    functorch: Any = torch._C._functorch
    for x in values:
        while isinstance(x, Tensor):
            if x.requires_grad and torch.is_grad_enabled():
                raise Error("a tensor requires a gradient in a transform of torch.func (grad, vjp, jacrev), where "
                            "halyard.torch has none: take backward() or torch.autograd.grad")
            x = functorch.get_unwrapped(x) if functorch.is_functorch_wrapped_tensor(x) else None


def _fake(op: Any, *values: Any, **others: Any) -> Any:
    """The fake kernel, for tracing graphs: outputs without data. It checks tensors, so that bad graphs fail early."""
    if forward_ad._current_level >= 0:
        raise Error(_NO_TANGENTS)
    tensors = [x for x in (*values, *others.values()) if isinstance(x, Tensor)]
    if len(devices := {x.device.type for x in tensors}) > 1:
        raise Error(f"the tensors lie on {' and '.join(sorted(devices))}, but have to lie on one device")
    for x in tensors[:2 if "_qk" in op.__name__ else 1]:
        if x.dim() not in (3, 4) or x.dtype not in (torch.float32, torch.float16, torch.bfloat16):
            raise Error(f"a tensor of shape {tuple(x.shape)} and {x.dtype} has to be [tokens, heads, head_dim] or "
                        "[batch, tokens, heads, head_dim] of float32, float16 or bfloat16")
    outputs = tuple(torch.empty_like(x) for x in values[:len(op._schema.returns)])
    return outputs[0] if len(outputs) == 1 else outputs or None


@functools.lru_cache(256)
def _inverse(how: str) -> str:
    """The ``how`` of the gradient. The rotation by theta, scaled by attention_factor, is linear, so its gradient is its
    transpose: the rotation by -theta with the same factor, from the output's pairing to the input's."""
    angles, offset, options = _read(how)
    own = options.pairing or angles.pairing or "half"
    own_out = options.out_pairing or (own if options.pairing else angles.out_pairing or own)
    transpose = options._replace(inverse=not options.inverse, pairing=own_out, out_pairing=own)
    return "|".join((how.split("|")[0], str(offset), str(int(transpose.inverse)), *map(str, transpose[1:7])))


class _Differentiable(torch.autograd.Function):
    """The operator rotate or rotate_qk as autograd records it."""

    @staticmethod
    def forward(ctx: Any, below: Any, how: str, positions: Tensor | None, start: int, *tensors: Tensor) -> Any:
        ctx.how, ctx.start = _inverse(how), start
        ctx.source = find_source(how.partition("|")[0])  # keeps the source alive until backward
        ctx.save_for_backward(positions)
        return below(*tensors, how, positions, start)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        op = _OPS.rotate if len(gradients) == 1 else _OPS.rotate_qk
        results = op.default(*gradients, ctx.how, *ctx.saved_tensors, ctx.start)
        return None, None, None, None, *((results,) if len(gradients) == 1 else results)


# Sets of dispatch keys as integers, because an operation of PyTorch on its sets takes .3 µs.
_AFTER_AUTOGRAD = torch._C._after_autograd_keyset.raw_repr()
_CPU = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU).raw_repr()


def _redispatch(op: Any, keyset: Any, *values: Any) -> Any:
    with torch._C._AutoDispatchBelowAutograd():
        return op.redispatch(keyset & torch._C._after_autograd_keyset, *values)


def _differentiate(op: Any, kernel: Any, n: int, keyset: Any, *values: Any) -> Any:
    """The autograd kernel of an operator with n outputs: records gradients and rotates tangents, or refuses them. If the
    tensors have no dispatch key but CPU left, it calls `kernel` itself, which saves a second pass through PyTorch's
    dispatcher."""
    below = kernel if keyset.raw_repr() & _AFTER_AUTOGRAD == _CPU else functools.partial(_redispatch, op, keyset)
    records = torch.is_grad_enabled() and (n == 0 or values[0].requires_grad or values[n - 1].requires_grad)
    if not records and forward_ad._current_level < 0 and below is kernel:
        return kernel(*values)
    if forward_ad._current_level >= 0:
        duals = [forward_ad.unpack_dual(x) for x in values[:n] or values if isinstance(x, Tensor)]
        if any(x.tangent is not None for x in duals):
            if n == 0:
                raise Error("what is done in place has no derivatives, but a tensor has a tangent: detach() it")
            # The rotation is linear, so the tangent of its result is the tangent, rotated.
            primals, tangents = zip(*((x, torch.zeros_like(x) if tangent is None else tangent) for x, tangent in duals))
            made = [op(*tensors, *values[n:]) for tensors in (primals, tangents)]
            return forward_ad.make_dual(*made) if n == 1 else tuple(map(forward_ad.make_dual, *made))
    if torch._C._are_functorch_transforms_active():
        _refuse_transforms(*values)
    if not records:
        return below(*values)
    if n == 0:
        raise Error("what is done in place has no gradients: call it in torch.no_grad()")
    how, positions, start = (*values[n:], *(None, 0)[len(values) - n - 1:])
    return _Differentiable.apply(below, how, positions, start, *values[:n])


def _raise_for_negative_bit(*_: Any) -> None:
    """For operators that return nothing. For all others, PyTorch itself resolves views with its negative bit."""
    raise Error("a tensor has PyTorch's negative bit, so that its memory holds other numbers: call resolve_neg() before")


_library = torch.library.Library("halyard", "DEF")
for _name, (_schema, _kernel) in _OPERATORS.items():
    _library.define(_name + _schema, tags=[torch.Tag.pt2_compliant_tag])
    _op = getattr(_OPS, _name).default
    for _device in "CPU", "CUDA":
        _library.impl(_name, _kernel, _device)
    _library.impl(_name, functools.partial(_differentiate, _op, _kernel, len(_op._schema.returns)), "Autograd",
                  with_keyset=True)
    if not _op._schema.returns:
        _library.impl(_name, _raise_for_negative_bit, "Negative")
    torch.library.register_fake(_op, functools.partial(_fake, _op), lib=_library)


def rotate(q: Tensor, k: Tensor | None = None, *, angles: AngleSource, positions: Tensor | int | None = None,
           layout: str = "bshd", **options: Any) -> Tensor | tuple[Tensor, Tensor]:
    """Rotates q and k into new tensors, as halyard.rotate does, but with gradients, and without a break in compiled
    graphs.

    q, k: float32, float16 or bfloat16 tensors, [tokens, heads, head_dim] or [batch, tokens, heads, head_dim].
    options: those of describe. The other arguments are as in halyard.rotate.

    Returns one tensor, or a tuple if k is given. Raises as halyard.rotate does, and halyard.Error for derivatives that
    the operators refuse.
    """
    require_source("angles", angles)
    if q is None:
        raise TypeError("q is a NoneType, not a tensor")
    if layout not in ("bshd", "bhsd"):
        raise Error(f'layout is "{layout}", which is none of: bshd, bhsd')
    if (positions is None and q.dim() in (3, 4) and (q.dim() == 4 or q.shape[1 if layout == "bhsd" else 0] == 1)
            and not angles._handle.by_token):
        raise Error(f"positions is left out, but q has {'a batch' if q.dim() == 4 else 'one token'}: say where the "
                    "tokens are (0, if they start at position 0)")
    # torch.compile makes the level read here a guard of its graph.
    if forward_ad._current_level >= 0 and torch.compiler.is_compiling():
        raise Error(_NO_TANGENTS)
    how = describe(angles, layout=layout, **options) if options or layout != "bshd" else angles._key
    start = 0 if positions is None or isinstance(positions, Tensor) else positions
    if isinstance(start, bool) or not isinstance(start, (int, torch.SymInt)):
        raise TypeError(f"positions is a {type(positions).__name__}, not a tensor or an int")
    where = (positions,) if isinstance(positions, Tensor) else (None, start)
    return _OPS.rotate.default(q, how, *where) if k is None else _OPS.rotate_qk.default(q, k, how, *where)

"""Halyard for PyTorch: rotate with gradients and under torch.compile, by operators in torch.ops.halyard.

    >>> import torch, halyard, halyard.torch
    >>> angles = halyard.AngleSource(halyard.Frequencies.from_base(10000.0, 64))
    >>> q = torch.randn(1, 5, 4, 64, requires_grad=True)
    >>> halyard.torch.rotate(q, angles=angles, positions=torch.arange(5)).sum().backward()

``halyard.rotate`` takes tensors as well; it has all of the road's stages, but no gradients. Here there are

    torch.ops.halyard.rotate(q, positions, angles, …) -> Tensor
    torch.ops.halyard.rotate_qk(q, k, positions, angles, …) -> (Tensor, Tensor)

with fake implementations, so that torch.compile takes them into its graphs, and a backward: the inverse rotation, which
Halyard does too. Tensors lie on the CPU, or on a CUDA device where halyard.rotate takes these.
"""

from typing import Any

import torch

from ._angles import AngleSource, _numbered
from ._core import Error
from ._rotate import rotate as _rotate

Tensor = torch.Tensor

_OPTIONS = ("Tensor? positions, int angles, *, SymInt start=0, bool inverse=False, str? pairing=None, "
            "str? out_pairing=None, int q_offset=0, int k_offset=0, bool heads_first=False, "
            "str bad_position='error', int threads=0")

_library = torch.library.Library("halyard", "DEF")
_library.define(f"rotate(Tensor q, {_OPTIONS}) -> Tensor", tags=[torch.Tag.pt2_compliant_tag])
_library.define(f"rotate_qk(Tensor q, Tensor k, {_OPTIONS}) -> (Tensor, Tensor)", tags=[torch.Tag.pt2_compliant_tag])


def _find(number: int) -> AngleSource:
    found = _numbered.get(number)
    if found is None:
        raise Error(f"angles is {number}, the number of no AngleSource that is alive")
    return found


def _call(q: Tensor, k: Tensor | None, positions: Tensor | None, angles: int, start: int = 0, inverse: bool = False,
          pairing: str | None = None, out_pairing: str | None = None, q_offset: int = 0, k_offset: int = 0,
          heads_first: bool = False, bad_position: str = "error", threads: int = 0) -> Any:
    # The memory of a tensor that requires gradients can be had for a detached one; they are followed in _backward.
    return _rotate(q.detach(), None if k is None else k.detach(), angles=_find(angles),
                   positions=start if positions is None else positions, inverse=inverse, pairing=pairing,
                   out_pairing=out_pairing, rotary_offset=(q_offset, k_offset),
                   layout="bhsd" if heads_first else "bshd", bad_position=bad_position,
                   threads=threads or torch.get_num_threads())


def _run_rotate(q: Tensor, positions: Tensor | None, angles: int, **options: Any) -> Any:
    return _call(q, None, positions, angles, **options)


def _run_rotate_qk(q: Tensor, k: Tensor, positions: Tensor | None, angles: int,
                   **options: Any) -> Any:
    return _call(q, k, positions, angles, **options)


for _device in "CPU", "CUDA":
    _library.impl("rotate", _run_rotate, _device)
    _library.impl("rotate_qk", _run_rotate_qk, _device)


def _check(*tensors: Tensor) -> None:
    """What a graph is refused for when it is made, rather than when it runs."""
    for x in tensors:
        if x.dim() not in (3, 4) or x.dtype not in (torch.float32, torch.float16, torch.bfloat16):
            raise Error(f"a tensor of shape {tuple(x.shape)} and {x.dtype} has to be [tokens, heads, head_dim] or "
                        "[batch, tokens, heads, head_dim] of float32, float16 or bfloat16")


@torch.library.register_fake("halyard::rotate", lib=_library)
def _fake_rotate(q: Tensor, positions: Tensor | None, angles: int, **options: Any) -> Tensor:
    _check(q)
    return torch.empty_like(q)


@torch.library.register_fake("halyard::rotate_qk", lib=_library)
def _fake_rotate_qk(q: Tensor, k: Tensor, positions: Tensor | None, angles: int,
                    **options: Any) -> tuple[Tensor, Tensor]:
    _check(q, k)
    return torch.empty_like(q), torch.empty_like(k)


def _keep(ctx: Any, inputs: tuple[Any, ...], keyword_only_inputs: dict[str, Any], output: Any) -> None:
    *_, positions, ctx.angles = inputs
    ctx.source = _find(ctx.angles)  # which must live until then
    ctx.has_positions = positions is not None
    ctx.save_for_backward(*([positions] if ctx.has_positions else []))
    ctx.options = dict(keyword_only_inputs)


def _turn_back(ctx: Any) -> tuple[Tensor | None, int, dict[str, Any]]:
    """The arguments of the inverse: R(-theta) f, the transpose of R(theta) f, from the output's pairing to the
    input's."""
    options = ctx.options
    core = ctx.source._handle
    pairing = options.get("pairing") or core.pairing or "half"
    out_pairing = options.get("out_pairing") or (pairing if options.get("pairing") else core.out_pairing or pairing)
    positions = ctx.saved_tensors[0] if ctx.has_positions else None
    return positions, ctx.angles, {**options, "inverse": not options.get("inverse", False), "pairing": out_pairing,
                                       "out_pairing": pairing}


def _backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
    positions, angles, options = _turn_back(ctx)
    return torch.ops.halyard.rotate(gradient, positions, angles, **options), None, None


def _backward_qk(ctx: Any, q_gradient: Tensor, k_gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:
    positions, angles, options = _turn_back(ctx)
    return (*torch.ops.halyard.rotate_qk(q_gradient, k_gradient, positions, angles, **options), None, None)


torch.library.register_autograd("halyard::rotate", _backward, setup_context=_keep, lib=_library)
torch.library.register_autograd("halyard::rotate_qk", _backward_qk, setup_context=_keep, lib=_library)


def rotate(q: Tensor, k: Tensor | None = None, *, angles: AngleSource, positions: Tensor | int | None = None,
           inverse: bool = False, pairing: str | None = None, out_pairing: str | None = None,
           rotary_offset: int | tuple[int, int] = 0, layout: str = "bshd", bad_position: str = "error",
           threads: int = 0) -> Tensor | tuple[Tensor, Tensor]:
    """halyard.rotate of tensors into new ones, with gradients, and in one piece of a compiled graph.

    threads: 0: as many as PyTorch's (torch.get_num_threads()). The rest is as in halyard.rotate.
    """
    if layout not in ("bshd", "bhsd"):
        raise Error(f'layout is "{layout}", which is none of: bshd, bhsd')
    if positions is None and q.dim() in (3, 4) and (q.dim() == 4 or q.shape[1 if layout == "bhsd" else 0] == 1):
        raise Error(f"positions is left out, but q has {'a batch' if q.dim() == 4 else 'one token'}: say where the "
                    "tokens are (0, if they start at position 0)")
    start = positions if isinstance(positions, (int, torch.SymInt)) else 0
    given = positions if isinstance(positions, Tensor) else None
    offsets = rotary_offset if isinstance(rotary_offset, tuple) else (rotary_offset, rotary_offset)
    options: dict[str, Any] = dict(start=start, inverse=inverse, pairing=pairing, out_pairing=out_pairing,
                                   q_offset=offsets[0], k_offset=offsets[-1], heads_first=layout == "bhsd",
                                   bad_position=bad_position, threads=threads)
    turned: Tensor | tuple[Tensor, Tensor]
    if k is None:
        turned = torch.ops.halyard.rotate(q, given, angles._number, **options)
    else:
        turned = torch.ops.halyard.rotate_qk(q, k, given, angles._number, **options)
    return turned

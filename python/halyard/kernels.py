"""Halyard as a layer of the package `kernels`, by which transformers exchanges parts of its models.

    >>> import halyard.kernels, kernels                                          # doctest: +SKIP
    >>> kernels.register_kernel_mapping(halyard.kernels.MAPPING)                 # doctest: +SKIP
    >>> model.set_use_kernels(True)     # or from_pretrained(…, use_kernels=True), or kernels.kernelize(model, …)
    ...                                                                          # doctest: +SKIP

Layers get cos and sin from the model, so angles are as far off as the model's; ``halyard.transformers.patch`` has exact
ones, and serves models whose functions transformers does not mark for kernels. `kernels` itself is not imported here.
"""

import inspect
from typing import Any

import torch

from . import torch as _torch
from ._angles import AngleSource
from ._core import Error
from ._rotate import rotate as _rotate

Tensor = torch.Tensor

_library = torch.library.Library("halyard", "FRAGMENT")
_library.define("rotate_given(Tensor q, Tensor k, Tensor cos, Tensor sin, *, bool inverse=False, "
                "bool heads_first=True) -> (Tensor, Tensor)", tags=[torch.Tag.pt2_compliant_tag])


def _rotate_given(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, *, inverse: bool = False,
                  heads_first: bool = True) -> Any:
    """q, k: [batch, heads, tokens, head_dim], or tokens before heads; cos, sin: [batch or 1, tokens, width], a row for
    each token, of head_dim / 2 elements or of twice as many that repeat themselves."""
    head_dim, width = q.shape[-1], cos.shape[-1]
    if cos.dim() != 3 or cos.shape != sin.shape or width not in (head_dim, head_dim // 2) or q.dim() != 4:
        raise Error(f"cos has the shape {tuple(cos.shape)}, but has to be [batch or 1, tokens, width] like sin, with a "
                    f"width of {head_dim} or {head_dim // 2}, beside q of {tuple(q.shape)}")
    if cos.shape[1] != q.shape[2 if heads_first else 1] or cos.shape[0] not in (1, q.shape[0]):
        raise Error(f"cos has the shape {tuple(cos.shape)}, which has no rows for the tokens of q {tuple(q.shape)}")
    shared = cos.shape[0] == 1
    rows = (x.detach().reshape(-1, width) for x in (cos, sin))
    angles = AngleSource.given(*rows, rotary_dim=head_dim, by_token=not shared)
    return _rotate(q.detach(), k.detach(), angles=angles, positions=0 if shared else None, inverse=inverse,
                   layout="bhsd" if heads_first else "bshd", threads=torch.get_num_threads())


_library.impl("rotate_given", _rotate_given, "CPU")


@torch.library.register_fake("halyard::rotate_given", lib=_library)
def _fake(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, **_: Any) -> tuple[Tensor, Tensor]:
    _torch._check(q, k)
    return torch.empty_like(q), torch.empty_like(k)


def _keep(ctx: Any, inputs: tuple[Tensor, ...], keyword_only_inputs: dict[str, Any], output: Any) -> None:
    if any(ctx.needs_input_grad[2:4]):
        raise Error("cos or sin requires a gradient, which only q and k get")
    ctx.save_for_backward(*inputs[2:])
    ctx.options = dict(keyword_only_inputs)


def _backward(ctx: Any, q_gradient: Tensor, k_gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:
    options = {**ctx.options, "inverse": not ctx.options.get("inverse", False)}
    return (*torch.ops.halyard.rotate_given(q_gradient, k_gradient, *ctx.saved_tensors, **options), None, None)


torch.library.register_autograd("halyard::rotate_given", _backward, setup_context=_keep, lib=_library)


_agreeing: set[tuple[type, bool]] = set()  # of functions that are known to do what Halyard does


@torch.compiler.assume_constant_result
def _check(kind: type, repeats: bool) -> bool:
    """Throws where the function that `kind` stands for does not turn q and k as Halyard does: backward, say."""
    if (kind, repeats) in _agreeing:
        return True
    random = torch.Generator().manual_seed(1)
    q, k = (torch.randn(2, heads, 5, 8, generator=random) for heads in (3, 1))
    theta = torch.randn(2, 5, 4, generator=random).repeat(1, 1, 2 if repeats else 1)
    rows = theta.cos(), theta.sin()
    with torch.no_grad():
        expected = kind.forward(None, q, k, *rows)  # type: ignore[attr-defined]
    for x, y, z in zip((q, k), expected, _rotate_given(q, k, *rows)):
        if not ((y - z).abs() <= 8 * 2.0 ** -23 * x.norm(dim=-1, keepdim=True)).all():
            stock = inspect.getclosurevars(kind.forward).nonlocals.get("func", kind)  # type: ignore[attr-defined]
            raise Error(f"{stock.__module__}.{stock.__qualname__} does not turn q and k by half pairs, forward")
    _agreeing.add((kind, repeats))
    return True


class RotaryPositionEmbedding(torch.nn.Module):
    """q and k turned by given cos and sin, with gradients: what transformers calls rotary_pos_emb. On the CPU.

    Throws halyard.Error at the first call where the function whose place it takes does something else.
    """

    can_torch_compile = True
    has_backward = True

    def forward(self, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, unsqueeze_dim: int = 1) -> Any:
        if type(self) is not RotaryPositionEmbedding:
            _check(type(self), cos.shape[-1] == q.shape[-1])
        follows = torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, cos, sin))
        turn = torch.ops.halyard.rotate_given if follows or torch.compiler.is_compiling() else _rotate_given
        return turn(q, k, cos, sin, heads_first=unsqueeze_dim == 1)


class _Repository:
    """What the package `kernels` loads a layer from."""

    def load(self) -> type[torch.nn.Module]:
        return RotaryPositionEmbedding

    def __str__(self) -> str:
        return "halyard.kernels"


MAPPING = {"rotary_pos_emb": {"cpu": _Repository()}}
"""For kernels.register_kernel_mapping and use_kernel_mapping: inference and training, eager and compiled."""

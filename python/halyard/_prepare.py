"""Calls of rotate that differ in nothing but their tensors, as an engine's layers make them."""

import dataclasses
from collections.abc import Callable
from typing import Any

from . import _core
from ._angles import AngleSource
from ._tensor import Options, Tensor, complete, require_source


def prepare(q: Any, k: Any = None, v: Any = None, *, head_dim: int, angles: AngleSource, **options: Any) -> Any:
    """What rotates q, k and v that lie side by side in one array, as a projection makes them: a function

        prepared(packed, positions=None, slots=None, out=None)

    of arrays. All else is said and checked once, for each number of tokens (bound runs, of which it keeps 64).

    q, k, v: how many heads of head_dim each has, or a Tensor with that in the place of its array.
    options: of rotate, from inverse on. threads=0: those of the process's OpenMP, such as PyTorch's, for engines that
        bind threads to cores.
    packed: [tokens, columns] of float32, float16 or bfloat16, the last dimension dense: the heads of q, then those of
        k, then those of v. What has no cache is turned in place.
    positions, slots: int32 or int64 [tokens].
    out: [tokens, columns], where q goes instead.

    prepared raises as rotate does.
    """
    require_source("angles", angles)
    how = Options(**options)
    given = with_heads((q, k, v), head_dim)
    columns = sum(tensor.array for _, tensor in given) * head_dim

    def describe(packed: Any, positions: Any, slots: Any, out: Any) -> tuple[Any, ...]:
        for name, array, wanted in ("packed", packed, columns), ("out", out, given[0][1].array * head_dim):
            if array is not None and tuple(array.shape) != (packed.shape[0], wanted):
                raise _core.Error(f"{name} has the shape {tuple(array.shape)}, but has to be [tokens, {wanted}], for "
                                  f"heads of {head_dim}")
        heads = packed.reshape(packed.shape[0], columns // head_dim, head_dim)
        parts = split(given, lambda first, n: heads[:, first:first + n],
                      None if out is None else out.reshape(packed.shape[0], given[0][1].array, head_dim))
        return angles._handle, parts, positions, slots, how

    return _core.Prepared(describe)


def with_heads(tensors: tuple[Any, ...], head_dim: int) -> list[tuple[str, Tensor]]:
    """By their names those that are given, numbers of heads as Tensors."""
    given = [(name, each if isinstance(each, Tensor) else Tensor(each)) for name, each in zip("qkv", tensors)
             if each is not None]
    for name, tensor in given:
        if not isinstance(tensor.array, int) or tensor.array < 1 or head_dim < 1:
            raise _core.Error(f"{name} is {tensor.array} heads of {head_dim}, but these are numbers of at least 1")
    return given


def split(given: list[tuple[str, Tensor]], part: Callable[[int, int], Any], out: Any) -> list[tuple[Any, ...]]:
    """What the extension takes of tensors that lie side by side, part(first, n) for so many heads from the first on.
    They go where they lie if nothing else is said, and the first one to out."""
    tensors, first = [], 0
    for name, tensor in given:
        x, to = part(first, tensor.array), out if first == 0 and out is not None else tensor.out
        tensors.append(complete(name, dataclasses.replace(tensor, array=x, out=to), True, name != "v"))
        first += tensor.array
    return tensors

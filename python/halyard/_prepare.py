"""Calls of rotate that differ in nothing but their tensors, as an engine's layers make them."""

import dataclasses
from typing import Any

from . import _core
from ._angles import AngleSource
from ._tensor import Options, Tensor, complete, require_source


def prepare(q: Any, k: Any = None, v: Any = None, *, head_dim: int, angles: AngleSource, **options: Any) -> Any:
    """What rotates q, k and v that lie side by side in one array, as a projection makes them: a function

        prepared(packed, positions=None, slots=None, out=None)

    of arrays. All else is said and checked once, for each number of tokens (bound runs, of which it keeps 64).

    q, k, v: how many heads of head_dim each has, or a Tensor with that in the place of its array.
    options: of rotate, from inverse on.
    packed: [tokens, columns] of float32, float16 or bfloat16, the last dimension dense: the heads of q, then those of
        k, then those of v. What has no cache is turned in place.
    positions, slots: int32 or int64 [tokens].
    out: [tokens, columns], where q goes instead.

    prepared raises as rotate does.
    """
    require_source("angles", angles)
    how = Options(**options)
    given = [(name, each if isinstance(each, Tensor) else Tensor(each)) for name, each in zip("qkv", (q, k, v))
             if each is not None]
    for name, tensor in given:
        if not isinstance(tensor.array, int) or tensor.array < 1 or head_dim < 1:
            raise _core.Error(f"{name} is {tensor.array} heads of {head_dim}, but these are numbers of at least 1")
    columns, columns_of_q = (head_dim * sum(tensor.array for _, tensor in some) for some in (given, given[:1]))

    def describe(packed: Any, positions: Any, slots: Any, out: Any) -> tuple[Any, ...]:
        n_tokens = packed.shape[0]
        for name, array, wanted in ("packed", packed, columns), ("out", out, columns_of_q):
            if array is not None and tuple(array.shape) != (n_tokens, wanted):
                raise _core.Error(f"{name} has the shape {tuple(array.shape)}, but has to be [tokens, {wanted}], for "
                                  f"heads of {head_dim}")
        heads, parts, first = packed.reshape(n_tokens, columns // head_dim, head_dim), [], 0
        for name, tensor in given:
            x = heads[:, first:first + tensor.array]
            to = tensor.out if out is None or first > 0 else out.reshape(n_tokens, tensor.array, head_dim)
            parts.append(complete(name, dataclasses.replace(tensor, array=x, out=to), True, name != "v"))
            first += tensor.array
        return angles._handle, parts, positions, slots, how

    return _core.Prepared(describe)

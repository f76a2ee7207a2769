"""Calls of rotate that differ in nothing but their tensors, as an engine's layers make them."""

from typing import Any

from . import _core
from ._angles import AngleSource
from ._rotate import Stages, check_heads, complete, not_a_source


def prepare(heads: tuple[int, ...], head_dim: int, *, angles: AngleSource, inverse: bool = False,
            pairing: str | None = None, out_pairing: str | None = None, rotary_offset: int | tuple[int, ...] = 0,
            bad_position: str = "error", norm: Any = None, scale: Any = None, dtype: Any = None, cache: Any = None,
            cache_layout: Any = "nhd", duplicate_slots: str = "error", hadamard: int | tuple[int, ...] = 0,
            threads: int = 1, target: str | None = None) -> Any:
    """What rotates q, k and v that lie side by side in one array, as a projection makes them: a function

        prepared(packed, positions=None, slots=None, out=None)

    of arrays. All else is said and checked once, for each number of tokens (bound runs, of which it keeps 64).

    heads: of q, k and v, or of the first of them; head_dim is the same for all.
    packed: [tokens, columns] of float32, float16 or bfloat16, the last dimension dense: the heads of q, then those of
        k, then those of v. What has no cache is turned in place.
    positions, slots: int32 or int64 [tokens].
    out: [tokens, columns], where q goes instead.
    threads: 0: those of the process's OpenMP, such as PyTorch's, for engines that bind threads to cores.
    The rest is as in rotate, with arrays that are kept.

    prepared raises as rotate does.
    """
    if not isinstance(angles, AngleSource):
        raise not_a_source("angles", angles)
    check_heads(heads, head_dim, 1)
    columns = sum(heads) * head_dim
    how = (pairing, out_pairing, inverse, "bshd", bad_position, threads, target, heads, head_dim)

    def describe(packed: Any, positions: Any, slots: Any, out: Any) -> tuple[Any, ...]:
        if tuple(packed.shape[1:]) != (columns,):
            raise _core.Error(f"packed has the shape {tuple(packed.shape)}, but has to be [tokens, {columns}], for "
                              f"{sum(heads)} heads of {head_dim}")
        if out is not None and tuple(out.shape) != (packed.shape[0], heads[0] * head_dim):
            raise _core.Error(f"out has the shape {tuple(out.shape)}, but has to be "
                              f"{(packed.shape[0], heads[0] * head_dim)}")
        outputs = [packed] * len(heads)
        if out is not None:
            outputs[0] = out.reshape(packed.shape[0], heads[0], head_dim)
        stages = Stages(norm, scale, cache, dtype, cache_layout, slots, duplicate_slots, hadamard=hadamard)
        given, _ = complete((packed, None, None), positions, tuple(outputs), rotary_offset, stages, how)
        return angles._handle, *given

    return _core.Prepared(describe)

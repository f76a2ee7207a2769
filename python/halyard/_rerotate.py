"""rerotate: keys that were rotated move to other positions."""

from typing import Any

from . import _core
from ._angles import AngleSource
from ._tensor import Cache, Options, Tensor, require_source


def rerotate(keys: Any, *, angles: AngleSource, from_positions: Any, positions: Any = None,
             from_angles: AngleSource | None = None, slots: Any = None, inverse: bool = False,
             pairing: str | None = None, layout: str = "bshd", threads: int = 0, target: str | None = None) -> Any:
    """Moves keys that were rotated for some positions to others, as when a context shifts or a cached prefix is used
    again: by R(positions - from_positions), in one step and where they lie.

    keys: an array of any dtype that rotate writes, or a Tensor, which says in its hadamard, scale, dtype and groups how
        the keys are stored; it may have an out, and no other stage. With slots a Cache, or a Tensor that has one, or
        the array of a cache; its CacheLayout, if it has one, says n_heads and head_dim.
    angles: those that keys go to; from_angles: those that they were rotated with [angles], such as LongRoPE's short
        ones. Exact, and no given rows; their ranges do not matter.
    from_positions, positions: as in rotate [positions: 0, 1, 2, …].
    slots: int32 or int64 [tokens] or [batch, tokens]: the tokens that move; -1: none. No two are alike.
    inverse: the keys were turned back, not forward.
    pairing: of the keys [what the config says of rotated ones; else half]. The rest is as in rotate.

    A static scale, which cancels, is not read; a DynamicScale and the scales of groups are read and renewed.
    Returns keys' array, or out. attention_factor is not applied again. Keys of few bits should move seldom and far,
    because a slow pair that turns by less than half an ulp stays where it is. Raises as rotate does.
    """
    source = angles if from_angles is None else from_angles
    require_source("angles", angles)
    require_source("from_angles", source)
    if slots is not None and not isinstance(keys, (Cache, Tensor)):
        keys = Cache(keys)
    tensor = keys if isinstance(keys, Tensor) else Tensor(cache=keys) if isinstance(keys, Cache) else Tensor(keys)
    x = tensor.array if tensor.cache is None else tensor.cache.array
    out = x if tensor.out is None else tensor.out
    _core.rerotate(angles._handle, source._handle, ("keys", x, out, True, tensor), from_positions, positions, slots,
                   Options(inverse, pairing, layout=layout, threads=threads, target=target))
    return out

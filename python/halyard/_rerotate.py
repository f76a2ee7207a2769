"""rerotate: keys that were rotated move to other positions."""

from typing import Any

from . import _core
from ._angles import AngleSource
from ._rotate import CacheLayout, not_a_source


def rerotate(keys: Any, *, angles: AngleSource, from_positions: Any, positions: Any = None,
             from_angles: AngleSource | None = None, out: Any = None, slots: Any = None,
             cache_layout: str | CacheLayout = "nhd", n_heads: int | None = None, head_dim: int | None = None,
             scale: Any = None, hadamard: int = 0, groups: str | None = None, group_scales: Any = None,
             dtype: str | None = None, pairing: str | None = None, rotary_offset: int = 0,
             layout: str = "bshd", inverse: bool = False, threads: int = 1, target: str | None = None) -> Any:
    """Moves keys that were rotated for some positions to others, as when a context shifts or a cached prefix is used
    again: by R(positions - from_positions), in one step and where they lie.

    keys: of any dtype that rotate writes, [tokens, heads, head_dim] or [batch, tokens, heads, head_dim], with any
        strides; with slots a cache, [slots, heads, head_dim], [pages, slots, heads, head_dim] or, with cache_layout
        "hnd", [pages, heads, slots, head_dim]; with a CacheLayout of any shape, and n_heads and head_dim say what is in
        it.
    angles: those that keys go to; from_angles: those that they were rotated with [angles], such as LongRoPE's short
        ones. Exact, and no given rows; their ranges do not matter.
    from_positions, positions: as in rotate [positions: 0, 1, 2, …].
    out: an array of the keys' shape that takes them instead; not with slots.
    slots: int32 or int64 [tokens] or [batch, tokens]: the tokens that move; -1: none. No two are alike.
    scale: of keys of 8 bits, a number or an array as in rotate, or a DynamicScale, which is read and renewed.
    hadamard: of keys that are stored so, as in rotate: it is undone and done again.
    groups: of keys that are records of bytes, as in rotate; group_scales are read and renewed.
    dtype: of other uint8 arrays, "e4m3" or "e5m2".
    pairing: of the keys [what the config says of rotated ones; else half].
    inverse: the keys were turned back, not forward. The rest is as in rotate.

    Returns keys, or out. attention_factor is not applied again. Keys of few bits should move seldom and far, because a
    slow pair that turns by less than half an ulp stays where it is. Raises as rotate does.
    """
    source = angles if from_angles is None else from_angles
    for name, value in ("angles", angles), ("from_angles", source):
        if not isinstance(value, AngleSource):
            raise not_a_source(name, value)
    how = pairing, None, inverse, layout, "error", threads, target, None, 0
    told = (keys, out, slots, rotary_offset, n_heads, head_dim, scale, dtype, cache_layout, hadamard, groups,
            group_scales)
    _core.rerotate(angles._handle, source._handle, told, from_positions, positions, how)
    return keys if out is None else out

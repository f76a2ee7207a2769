"""The calls: rotate, convert, rerotate, and prepare for many that are alike."""

import dataclasses
import functools
from typing import Any

from . import _core
from ._angles import AngleSource
from ._frequencies import Frequencies
from ._tensor import Cache, Options, Tensor, complete, require_source


def rotate(q: Any, k: Any = None, v: Any = None, *, angles: AngleSource, positions: Any = None, slots: Any = None,
           in_place: bool = False, inverse: bool = False, pairing: str | None = None, out_pairing: str | None = None,
           layout: str = "bshd", bad_position: str = "error", duplicate_slots: str = "error", threads: int = 0,
           target: str | None = None) -> Any:
    """Rotates q and k into new arrays, or where they say. v takes the other stages, but is not rotated.

    q, k, v: arrays, or Tensors, which have stages, and say where they go.
    angles: where cos and sin come from.
    positions: int32 or int64 [tokens] or [batch, tokens]; with an axis map [axes, tokens] or [axes, batch, tokens], or
        [tokens] where all axes are equal; an int, or [batch, 1]: that of the first token, the others follow. May be
        left out, for 0, of several tokens without a batch that go into no cache; and has to be where angles are given
        by_token. Those of tokens that are stored nowhere are not looked at.
    slots: int32 or int64 [tokens] or [batch, tokens]: where each token goes in the caches; -1: it is not stored. An
        int, or [batch, 1]: where the first token goes, the others follow; -1: none is stored.
    in_place: what says neither out nor cache goes where it lies.
    inverse: turn back.
    pairing, out_pairing: "half" or "interleaved", as q and k are read and written [the config's; else half; pairing].
    layout: "bshd", or "bhsd" where heads come before tokens.
    bad_position: what a position is that angles does not cover: "error", "clamp" (to the nearest) or "identity".
    duplicate_slots: what two tokens with one slot are: "error", or "last": the later one is kept.
    threads: how many do the work, 1 … 1024; they are kept for the next call that asks for as many. 0: those of the
        process's OpenMP, such as PyTorch's; one where it has none.
    target: the name of the target whose kernels are taken [the best].

    Returns the array that each tensor went to, in a tuple but for q alone.
    """
    if q is None:
        raise TypeError("q is a NoneType, but only k and v can be left out")
    return turn((("q", q), ("k", k), ("v", v)), angles, positions, slots, in_place,
                (inverse, pairing, out_pairing, layout, bad_position, duplicate_slots, threads, target))


def turn(given: tuple[tuple[str, Any], ...], angles: AngleSource, positions: Any, slots: Any, in_place: bool,
         options: tuple[Any, ...]) -> Any:
    """rotate of tensors by their names, of which only v is not rotated."""
    require_source("angles", angles)
    tensors = [complete(name, each, in_place, name != "v") for name, each in given if each is not None]
    on_cuda = any(getattr(tensor[1], "is_cuda", False) for tensor in tensors)
    results = (turn_on_cuda if on_cuda else _core.rotate)(angles._handle, tensors, positions, slots, options)
    return results[0] if len(results) == 1 else results


def turn_on_cuda(angles: _core.AngleSource, tensors: list[tuple[Any, ...]], positions: Any, *others: Any) -> Any:
    """Of PyTorch's tensors: in the context of the first one's device, and with a first position that lies there."""
    import torch
    device = tensors[0][1].device
    with torch.cuda.device(device):
        if isinstance(positions, int):
            axes = (angles.n_axes,) if angles.n_axes > 1 else ()
            positions = torch.full((*axes, 1, 1), positions, dtype=torch.int64, device=device)
        return _core.rotate(angles, tensors, positions, *others)


@functools.cache
def _no_angles() -> AngleSource:
    return AngleSource(Frequencies.from_base(10000.0, 2))  # of which nothing is read


def convert(v: Any, *, slots: Any = None, duplicate_slots: str = "error", layout: str = "bshd", threads: int = 0,
            target: str | None = None, **stages: Any) -> Any:
    """What rotate does with v = Tensor(v, **stages): every stage but the rotation. So an engine's cache changes its
    format, from floats to records of groups, say, or back:

        records = halyard.convert(keys, groups="ggml_q8_0", hadamard=128)
        keys = halyard.convert(records, from_groups="ggml_q8_0")  # still transformed
    """
    options = Options(duplicate_slots=duplicate_slots, layout=layout, threads=threads, target=target)
    return turn((("v", Tensor(v, **stages)),), _no_angles(), None, slots, False, options)


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
    if isinstance(keys, Tensor):
        tensor = keys
    else:
        tensor = Tensor(keys) if slots is None and not isinstance(keys, Cache) else Tensor(cache=keys)
    x = tensor.array if tensor.cache is None else tensor.cache.array
    out = x if tensor.out is None else tensor.out
    _core.rerotate(angles._handle, source._handle, ("keys", x, out, True, tensor), from_positions, positions, slots,
                   Options(inverse, pairing, layout=layout, threads=threads, target=target))
    return out


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

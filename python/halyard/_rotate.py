"""rotate: from a projection to a cache."""

from typing import Any

from . import _core
from ._angles import AngleSource
from ._tensor import complete, require_source


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

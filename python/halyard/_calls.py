"""The functions that rotate and convert arrays: rotate, convert, rerotate and prepare."""

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
    """Rotates q and k. v is not rotated, but takes all other stages of its Tensor.

    q, k, v: arrays, or Tensors, which add stages and a destination. An array is float32, float16 or bfloat16, [tokens,
        heads, head_dim] or [batch, tokens, heads, head_dim], with any strides. Without a destination the output is a
        new array of the same shape and dtype: a PyTorch tensor for a PyTorch input, else a NumPy array.
    angles: the AngleSource.
    positions: int32 or int64 [tokens] or [batch, tokens]; with an axis map [axes, tokens] or [axes, batch, tokens], or
        [tokens] if the axes are equal. An int or [batch, 1] is the position of each sequence's first token; the others
        follow. Must be given for a batch, for a single token and for caches; otherwise the default is 0, 1, 2, … Must
        be left out if angles has a row for each token (by_token, linear). Positions of tokens that are stored nowhere
        are not checked.
    slots: int32 or int64 [tokens] or [batch, tokens]: the slot of each token in the caches; -1: the token is not
        stored. An int or [batch, 1] is the slot of each sequence's first token; the others follow; -1: none is stored.
    in_place: arrays, and Tensors with neither out nor cache, are overwritten.
    inverse: rotate by the negative angles.
    pairing, out_pairing: "half" or "interleaved": how the pairs of q and k are read, and how they are written.
        [pairing: the config's; if that is unknown, half. out_pairing: pairing if given; else the config's.]
    layout: "bshd" (the shapes above), or "bhsd" if heads come before tokens.
    bad_position: for positions that angles does not cover: "error"; "clamp": use the nearest position that is covered;
        "identity": use position 0.
    duplicate_slots: if two tokens have one slot: "error", or "last": the later token is stored.
    threads: 1 … 1024 threads, which are kept for later calls with the same number. 0: the threads of the OpenMP in the
        process, such as PyTorch's, or one thread if there is none.
    target: the name of the target whose kernels to use, see halyard.targets [the best of this machine].

    Returns the array that each tensor was written to (out, the cache's array, or the new array): one array if q is the
    only tensor, else a tuple. Raises halyard.Error for arguments that do not fit, before anything is written, and
    TypeError for objects of a wrong type.
    """
    if q is None:
        raise TypeError("q is a NoneType, but only k and v can be left out")
    return _run((("q", q), ("k", k), ("v", v)), angles, positions, slots, in_place,
                (inverse, pairing, out_pairing, layout, bad_position, duplicate_slots, threads, target))


def _run(given: tuple[tuple[str, Any], ...], angles: AngleSource, positions: Any, slots: Any, in_place: bool,
         options: tuple[Any, ...]) -> Any:
    """rotate, for pairs of a name ("q", "k" or "v") and a tensor or None. The tensor "v" is not rotated."""
    require_source("angles", angles)
    tensors = [complete(name, each, in_place, name != "v") for name, each in given if each is not None]
    on_cuda = any(getattr(tensor[1], "is_cuda", False) for tensor in tensors)
    results = (rotate_on_cuda if on_cuda else _core.rotate)(angles._handle, tensors, positions, slots, options)
    return results[0] if len(results) == 1 else results


def rotate_on_cuda(angles: _core.AngleSource, tensors: list[tuple[Any, ...]], positions: Any, *others: Any) -> Any:
    """_core.rotate for PyTorch's CUDA tensors. It makes the first tensor's device current, and turns an int position
    into an array on that device, because GPU kernels read positions there."""
    import torch
    device = tensors[0][1].device
    with torch.cuda.device(device):
        if isinstance(positions, int):
            axes = (angles.n_axes,) if angles.n_axes > 1 else ()
            positions = torch.full((*axes, 1, 1), positions, dtype=torch.int64, device=device)
        return _core.rotate(angles, tensors, positions, *others)


@functools.cache
def _no_angles() -> AngleSource:
    return AngleSource(Frequencies.from_base(10000.0, 2))  # convert needs a source, but reads none of its angles


def convert(v: Any, *, slots: Any = None, duplicate_slots: str = "error", layout: str = "bshd", threads: int = 0,
            target: str | None = None, **stages: Any) -> Any:
    """Applies all stages of Tensor(v, **stages) except the rotation. Use it, for example, to convert a cache from
    floats to records of quantised groups, or back:

        records = halyard.convert(keys, groups="ggml_q8_0", hadamard=128)
        keys = halyard.convert(records, from_groups="ggml_q8_0")  # the Hadamard transform is not undone

    v: an array. stages: the arguments of Tensor after array. The other arguments, the result and errors are as in
    rotate.
    """
    options = Options(duplicate_slots=duplicate_slots, layout=layout, threads=threads, target=target)
    return _run((("v", Tensor(v, **stages)),), _no_angles(), None, slots, False, options)


def rerotate(keys: Any, *, angles: AngleSource, from_positions: Any, positions: Any = None,
             from_angles: AngleSource | None = None, slots: Any = None, inverse: bool = False,
             pairing: str | None = None, layout: str = "bshd", threads: int = 0, target: str | None = None) -> Any:
    """Re-rotates keys from the positions that they were rotated for to other positions, as when a context shifts or a
    cached prefix is used again. It rotates by the difference of the angles, in one step, in place by default.

    keys: an array of any dtype that rotate can write; or a Tensor, whose hadamard, scale, dtype and groups describe how
        the keys are stored. Without slots its out may be given; other stages are refused. With slots: a Cache, a
        cache's array, or a Tensor with a cache. A CacheLayout must give n_heads and head_dim.
    angles: the source of the new angles. from_angles: the source that the keys were rotated with [angles], for example
        LongRoPE's short frequencies. Both must be exact and may not have given rows. Positions outside their ranges are
        allowed.
    from_positions: the positions that keys have now; as in rotate. positions: their new positions [0, 1, 2, …].
    slots: int32 or int64 [tokens] or [batch, tokens]: the slots of the keys to re-rotate; -1 skips a token. No slot may
        occur twice.
    inverse: the keys were rotated with inverse=True.
    pairing: of the keys [the out_pairing of the angles' config; if unknown, half]. Other arguments are as in rotate.

    A static scale is not read, because it cancels. The scales of a DynamicScale and of groups are read and replaced.
    attention_factor is not applied again. Each re-rotation rounds, and does not change a pair that rotates by less than
    half an ulp. So re-rotate keys of few bits seldom, and by many positions at once. Returns the keys' array, or out.
    Raises as rotate does.
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
    """Prepares calls of rotate for q, k and v in one array, as a QKV projection writes them. Returns a function

        prepared(packed, positions=None, slots=None, out=None)

    For a new combination of shapes, strides and dtypes it checks all arguments. It keeps the latest 64 combinations,
    for which it checks only addresses, positions and slots.

    q, k, v: the number of heads of head_dim elements; or a Tensor with that number as its array, and stages.
    angles: the AngleSource. options: those of rotate from `inverse` on.
    packed: float32, float16 or bfloat16 [tokens, columns], the last dimension dense: all heads of q, then of k, then of
        v. Tensors with neither out nor cache are rotated in place.
    positions, slots: int32 or int64 [tokens].
    out: [tokens, n_heads of q * head_dim]: q is written there instead.

    prepared returns None, and raises as rotate does.
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

    return functools.partial(_core.run_packed, _core.Prepared(describe))  # faster than a method

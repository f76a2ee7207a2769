"""rotate, and what it is told about the road to a cache."""

import dataclasses
from typing import Any

from . import _arrays, _core
from ._angles import AngleSource


@dataclasses.dataclass(frozen=True)
class Norm:
    """RMSNorm: v / sqrt(mean(v ** 2) + eps), times the weight. Defaults are Llama's kind, of each head.
    A layer norm takes the mean off v first, and adds a bias at the end.

    weight: float32, float16 or bfloat16, as many as are normed; of two dimensions, [heads, window_size], each head has
        its own; None: there is none.
    eps: >= 0.
    unit_offset: multiply by 1 + weight (Gemma).
    width: "head", or "row": all heads of a token together.
    order: "before" or "after" the rotation.
    rounding: where the normed value is rounded to the input's dtype: "none", "before_weight", "after_weight" or "both"
        (as transformers' modules do). After the weight is after the bias, where there is one (as torch does).
    window_offset, window_size: the elements of a head that are normed [all]; the others pass by.
    kind: "rms" or "layer".
    bias: of a layer norm, of the weight's dtype and shape; None: there is none.
    """

    weight: Any = None
    eps: float = 1e-6
    unit_offset: bool = False
    width: str = "head"
    order: str = "before"
    rounding: str = "none"
    window_offset: int = 0
    window_size: int = 0
    kind: str = "rms"
    bias: Any = None


@dataclasses.dataclass(frozen=True)
class DynamicScale:
    """A scale for each head of each token, so that the greatest becomes the greatest number of an 8-bit dtype.

    scales_out: float32 of the tensor's shape without head_dim, which is written; with a cache [slots, heads].
    """

    scales_out: Any


@dataclasses.dataclass(frozen=True)
class CacheLayout:
    """Where the elements of a cache lie whose array's dimensions don't say so; in elements, none negative.

    Element d of head h and token t of block b lies at b * stride_block + h * stride_head
    + (t // tile_tokens) * stride_tile_tokens + (t % tile_tokens) * stride_token
    + (d // tile_elements) * stride_tile_elements + (d % tile_elements) * stride_element;
    slot s is token s % block_size of block s // block_size. 0 stands for: block_size n_slots, tile_tokens block_size,
    tile_elements head_dim, stride_element 1. The array is dense, of any shape, and large enough.
    """

    n_slots: int
    block_size: int = 0
    stride_block: int = 0
    stride_head: int = 0
    tile_tokens: int = 0
    stride_tile_tokens: int = 0
    stride_token: int = 0
    tile_elements: int = 0
    stride_tile_elements: int = 0
    stride_element: int = 0


_NONE = (None, None, None)


def _for_each(argument: str, value: Any, n_given: int) -> tuple[Any, Any, Any]:
    """(for q, for k, for v), of a tuple with as many or fewer; one that is no tuple is for q alone."""
    if value is None:
        return _NONE
    if not isinstance(value, tuple):
        if n_given != 1:
            raise _core.Error(f"{argument} is no tuple, but there are {n_given} tensors: it has to be "
                              "(for q, for k, for v)")
        return value, None, None
    if len(value) > 3:
        raise _core.Error(f"{argument} has {len(value)} members, but there are only q, k and v")
    return value + _NONE[len(value):]


def rotate(q: Any, k: Any = None, v: Any = None, *, angles: AngleSource, positions: Any = None, out: Any = None,
           inverse: bool = False, pairing: str | None = None, out_pairing: str | None = None,
           rotary_offset: int | tuple[int, ...] = 0, layout: str = "bshd", bad_position: str = "error",
           norm: Any = None, position_scales: Any = None, hadamard: int | tuple[int, ...] = 0, scale: Any = None,
           dtype: Any = None, cache: Any = None, cache_layout: Any = "nhd", slots: Any = None,
           duplicate_slots: str = "error", threads: int = 1, target: str | None = None) -> Any:
    """Rotates q and k. v, which is not rotated, takes the other stages of the road, as q and k do:
    norm, rotation, norm, scale by position, Hadamard transform, scale, conversion to another dtype, and a store into an
    array or into a cache by slot.

    q, k, v: float32, float16 or bfloat16, [tokens, heads, head_dim] or [batch, tokens, heads, head_dim], with any
        strides; heads and head_dim may differ. With layout "bhsd" heads come before tokens.
    angles: where cos and sin come from.
    positions: int32 or int64 [tokens] or [batch, tokens]; with an axis map [axes, tokens] or [axes, batch, tokens]; an
        int, or [batch, 1]: that of the first token, the others follow [0].
    out: where results go: new arrays of the input's library [None]; the input itself, for in place; any array of its
        shape. Its dtype may be another one: float8_e4m3fn, float8_e5m2 and int8 too.
    inverse: turn back.
    pairing, out_pairing: "half" or "interleaved", as q and k are read and written [the config's; else half; pairing].
    rotary_offset: where the rotated window begins in a head; (for q, for k) where they differ.
    bad_position: what a position is that angles does not cover: "error", "clamp" (to the nearest) or "identity".
    norm: a Norm.
    position_scales: what a tensor is multiplied by: float32 [tokens] or, with a batch, [batch, tokens]; or of the
        tensor's shape without head_dim. Frequencies.position_scales makes those of models that scale q.
    hadamard: n: a Hadamard transform of each n elements of a head, orthonormal and so its own inverse; a power of two
        that divides head_dim; (for q, for k, for v) where they differ [0: none].
    scale: stored = convert(value / scale), so that value = stored * scale: a number, float32 [heads], [head_dim] or
        [heads, head_dim], or a DynamicScale.
    dtype: of outputs that are made, "f32", "f16", "bf16", "e4m3", "e5m2" or "int8" [the input's]; of uint8 arrays, e4m3
        or e5m2.
    cache: an array that takes the place of out: [slots, heads, head_dim], [pages, slots, heads, head_dim], or with
        cache_layout "hnd" [pages, heads, slots, head_dim]; cache_layout may be a CacheLayout, and (for q, for k, for v)
        where they differ.
    slots: int32 or int64 [tokens] or [batch, tokens]: where each token goes in the caches; -1: it is not stored. An
        int, or [batch, 1]: where the first token goes, the others follow; -1: none is stored.
    duplicate_slots: what two tokens with one slot are: "error", or "last": the later one is kept. A CUDA device takes
                  "last" alone, and mixes the elements of such tokens.
    threads: how many do the work, 1 … 1024; they are kept for the next call that asks for as many.
    target: the name of the target whose kernels are taken [the best].

    out, norm, position_scales, scale, dtype and cache are tuples (for q, for k, for v), with None where one has none,
    or what is meant for q where it is alone. Returns the array that each tensor went to: of q alone the array, else a
    tuple of them.

    Tensors may lie on a CUDA device where the package was built for that (HALYARD_BUILD_GPU), and then all arrays do
    but scales. The work is enqueued on the stream that their library works on, and not waited for, so what positions
    and slots hold is not checked: a position that is not covered is taken for 0, and a slot that is not there for -1.
    What halyard_gpu.h says of roads holds; threads is not looked at.

    Raises halyard.Error, or TypeError for what is no array; nothing has been written then. Where a sentence speaks of
    x[i] or y[i], that is the i-th of the tensors, as it goes in or comes out.
    """
    if not isinstance(angles, AngleSource):
        raise not_a_source("angles", angles)
    stages = None
    if not (norm is None and scale is None and dtype is None and cache is None and slots is None
            and position_scales is None and hadamard == 0):
        stages = (norm, scale, cache, dtype, cache_layout, slots, duplicate_slots, position_scales, hadamard)
    how = (pairing, out_pairing, inverse, layout, bad_position, threads, target)
    return _turn((q, k, v), angles, positions, out, rotary_offset, stages, how)


def not_a_source(name: str, value: Any) -> TypeError:
    return TypeError(f"{name} is a {type(value).__name__}, not a halyard.AngleSource")


def _turn(inputs: tuple[Any, Any, Any], angles: AngleSource, positions: Any, out: Any, offset: int | tuple[int, ...],
          stages: tuple[Any, ...] | None, how: tuple[Any, ...]) -> Any:
    """rotate, with what belongs together in tuples as the extension takes them."""
    given, caches, finish = complete(inputs, positions, out, offset, stages, how)
    outputs = given[1]
    if getattr(inputs[0], "is_cuda", False):
        _turn_on_gpu(angles, *given)
    else:
        _core.rotate(angles._handle, *given)
    if inputs[1] is None and inputs[2] is None:
        return _result(0, outputs, caches, finish)
    return tuple(_result(i, outputs, caches, finish) for i in range(3) if inputs[i] is not None)


def complete(inputs: tuple[Any, Any, Any], positions: Any, out: Any, offset: int | tuple[int, ...],
             stages: tuple[Any, ...] | None, how: tuple[Any, ...]) -> tuple[Any, Any, Any]:
    """What the extension's rotate takes beside angles; the caches; what makes of outputs what the caller gets."""
    n_given = 1 + (inputs[1] is not None) + (inputs[2] is not None)
    outputs = _for_each("out", out, n_given)
    caches = dtypes = finish = _NONE
    if stages is not None:
        norm, scale, cache, dtype, cache_layout, slots, duplicate_slots, position_scales, hadamard = stages
        layouts = (*cache_layout, "nhd", "nhd", "nhd")[:3] if isinstance(cache_layout, tuple) else (cache_layout,) * 3
        caches = _for_each("cache", cache, n_given)
        dtypes = _for_each("dtype", dtype, n_given)
        stages = (_for_each("norm", norm, n_given), _for_each("scale", scale, n_given), caches, dtypes, layouts, slots,
                  duplicate_slots, _for_each("position_scales", position_scales, n_given),
                  (*hadamard, 0, 0, 0)[:3] if isinstance(hadamard, tuple) else (hadamard,) * 3)
    if out is None or stages is not None or type(out) is tuple:
        outputs, finish = _complete(inputs, outputs, caches, dtypes)
    offsets = (*offset, 0, 0) if isinstance(offset, tuple) else (offset, offset)
    return (inputs, outputs, positions, (offsets[0], offsets[1], 0), stages, how), caches, finish


def _turn_on_gpu(angles: AngleSource, inputs: tuple[Any, Any, Any], outputs: Any, positions: Any, *others: Any) -> None:
    """Of PyTorch's tensors: in the context of q's device, and with a first position that lies there."""
    import torch
    device = inputs[0].device
    with torch.cuda.device(device):
        if isinstance(positions, int):
            axes = (angles.n_axes,) if angles.n_axes > 1 else ()
            positions = torch.full((*axes, 1, 1), positions, dtype=torch.int64, device=device)
        _core.rotate(angles._handle, inputs, outputs, positions, *others)


def _complete(inputs: tuple[Any, ...], outputs: tuple[Any, ...], caches: tuple[Any, ...],
              dtypes: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The outputs with new arrays where there are none, and what makes of each what the caller gets."""
    completed, finish = list(outputs), list[Any](_NONE)
    for i, x in enumerate(inputs):
        if x is not None and outputs[i] is None and caches[i] is None:
            completed[i], finish[i] = _arrays.new_like("qkv"[i], x, dtypes[i])
    return tuple(completed), tuple(finish)


def _result(i: int, outputs: tuple[Any, ...], caches: tuple[Any, ...], finish: tuple[Any, ...]) -> Any:
    if caches[i] is not None:
        return caches[i]
    return outputs[i] if finish[i] is None else finish[i](outputs[i])

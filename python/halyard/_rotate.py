"""rotate, and what it is told about the road to a cache."""

import dataclasses
from typing import Any, NamedTuple

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


class Stages(NamedTuple):
    """What rotate is told of the road; for the extension with (for q, for k, for v) of all but the slots."""

    norm: Any = None
    scale: Any = None
    cache: Any = None
    dtype: Any = None
    cache_layout: Any = "nhd"
    slots: Any = None
    duplicate_slots: str = "error"
    position_scales: Any = None
    hadamard: Any = 0
    groups: Any = None
    from_groups: Any = None
    group_scales: Any = None
    from_group_scales: Any = None


_NO_STAGES = Stages(cache=_NONE, dtype=_NONE, groups=_NONE, from_groups=_NONE, group_scales=_NONE)


def rotate(q: Any, k: Any = None, v: Any = None, *, angles: AngleSource, positions: Any = None, out: Any = None,
           inverse: bool = False, pairing: str | None = None, out_pairing: str | None = None,
           rotary_offset: int | tuple[int, ...] = 0, layout: str = "bshd", bad_position: str = "error",
           norm: Any = None, position_scales: Any = None, hadamard: int | tuple[int, ...] = 0, scale: Any = None,
           dtype: Any = None, groups: Any = None, from_groups: Any = None, group_scales: Any = None,
           from_group_scales: Any = None, cache: Any = None, cache_layout: Any = "nhd", slots: Any = None,
           duplicate_slots: str = "error", threads: int = 1, target: str | None = None,
           heads: tuple[int, ...] | None = None, head_dim: int = 0) -> Any:
    """Rotates q and k. v, which is not rotated, takes the other stages of the road, as q and k do: norm, rotation,
    norm, scale by position, Hadamard transform, scale, conversion to another dtype, a store in a cache by slot.

    q, k, v: float32, float16 or bfloat16, [tokens, heads, head_dim] or [batch, tokens, heads, head_dim], with any
        strides; heads and head_dim may differ. With layout "bhsd" heads come before tokens.
    angles: where cos and sin come from.
    positions: int32 or int64 [tokens] or [batch, tokens]; with an axis map [axes, tokens] or [axes, batch, tokens], or
        [tokens] where all axes are equal; an int, or [batch, 1]: that of the first token, the others follow. May be
        left out, for 0, of several tokens without a batch that go into no cache; and has to be where angles are given
        by_token. Those of tokens that are stored nowhere are not looked at.
    out: where results go: new arrays [None], PyTorch's for its own and NumPy's for all others; the input itself, for
        in place; any array of its shape. Its dtype may be another one: float8_e4m3fn, float8_e5m2 and int8 too.
    inverse: turn back.
    pairing, out_pairing: "half" or "interleaved", as q and k are read and written [the config's; else half; pairing].
    rotary_offset: where the rotated window begins in a head; (for q, for k) where they differ.
    bad_position: what a position is that angles does not cover: "error", "clamp" (to the nearest) or "identity".
    norm: a Norm.
    position_scales: what a tensor is multiplied by: float32 [tokens] or, with a batch, [batch, tokens]; or of the
        tensor's shape without head_dim. Frequencies.position_scales makes those of models that scale q.
    hadamard: n: a Hadamard transform of each n elements of a head, orthonormal and so its own inverse; a power of two
        that divides head_dim; (for q, for k, for v) where they differ [0: none].
    scale: stored = convert(value / scale), so that value = stored * scale: a number, float32 [heads], or a
        DynamicScale.
    dtype: of outputs that are made, "f32", "f16", "bf16", "e4m3", "e5m2" or "int8", or such a dtype of NumPy or PyTorch
        [the input's]; of uint8 arrays, e4m3 or e5m2.
    groups: how records of bytes hold heads, as engines' quantised caches do, told in halyard.h: "ggml_q8_0",
        "ggml_q8_0_neon", "ggml_q8_0_reference", "ggml_q4_0", "vllm_int8", "vllm_fp8", "openvino_u8", "openvino_u4",
        "mla_v32", "mla_v4", "mla_v41" or "mx". What a tensor goes to is uint8, a record in the place of head_dim.
    group_scales: where scales lie apart from the records: float32, or uint8 for powers of two, of the tensor's shape
        without head_dim and, where a head has several groups, with these as its last dimension; with a cache [slots,
        heads] or [pages, slots of a page, heads]. Without a cache it may be left out: then (array, scales) takes the
        array's place in what is returned.
    from_groups, from_group_scales: the same of a tensor that comes as such records. It goes to float32, or what dtype
        or groups say.
    cache: an array that takes the place of out: [slots, heads, head_dim], [pages, slots, heads, head_dim], or with
        cache_layout "hnd" [pages, heads, slots, head_dim]; cache_layout may be a CacheLayout, and (for q, for k, for v)
        where they differ.
    slots: int32 or int64 [tokens] or [batch, tokens]: where each token goes in the caches; -1: it is not stored. An
        int, or [batch, 1]: where the first token goes, the others follow; -1: none is stored.
    duplicate_slots: what two tokens with one slot are: "error", or "last": the later one is kept.
    threads: how many do the work, 1 … 1024; they are kept for the next call that asks for as many.
    target: the name of the target whose kernels are taken [the best].
    heads: of q, k and v, or of the first of them, that lie side by side in one array, as a projection makes them. It
        comes as q: [tokens, heads, head_dim] or [batch, tokens, heads, head_dim], or with head_dim said [tokens,
        columns] or [batch, tokens, columns]; as out it is turned in place.

    out, norm, dtype, cache, all scales and groups are tuples (for q, for k, for v), with None where one has none, or
    what is meant for q where it is alone. Returns the array that each tensor went to, in a tuple but for q alone.
    """
    if q is None:
        raise TypeError("q is a NoneType, but only k and v can be left out")
    stages = None
    if not (norm is scale is dtype is cache is slots is position_scales is groups is from_groups is group_scales
            is from_group_scales is None and hadamard == 0):
        stages = Stages(norm, scale, cache, dtype, cache_layout, slots, duplicate_slots, position_scales, hadamard,
                        groups, from_groups, group_scales, from_group_scales)
    how = pairing, out_pairing, inverse, layout, bad_position, threads, target, heads, head_dim
    return turn((q, k, v), angles, positions, out, rotary_offset, stages, how)


def not_a_source(name: str, value: Any) -> TypeError:
    return TypeError(f"{name} is a {type(value).__name__}, not a halyard.AngleSource")


def turn(inputs: tuple[Any, Any, Any], angles: AngleSource, positions: Any, out: Any, offset: int | tuple[int, ...],
         stages: Stages | None, how: tuple[Any, ...]) -> Any:
    """rotate, with what belongs together in tuples as the extension takes them."""
    if not isinstance(angles, AngleSource):
        raise not_a_source("angles", angles)
    heads, head_dim = how[7:]
    if heads is not None:
        check_heads(heads, head_dim)
        if inputs[1] is not None or inputs[2] is not None:
            raise _core.Error(f"heads is {heads}, but all of these have to lie in q, without k and v")
        if stages and (stages.from_groups is not None or (stages.groups is not None and stages.cache is None)):
            raise _core.Error("groups are for heads of q, k and v in arrays of their own, or on their way to a cache")
    given, results = complete(inputs, positions, out, offset, stages, how)
    if any(getattr(x, "is_cuda", False) for x in inputs):
        turn_on_gpu(angles._handle, *given)
    else:
        _core.rotate(angles._handle, *given)
    return out if results is None else results.get()


def check_heads(heads: tuple[int, ...], head_dim: int, least_head_dim: int = 0) -> None:
    if not 1 <= len(heads) <= 3 or min(heads) < 1 or head_dim < least_head_dim:
        raise _core.Error(f"heads is {heads} of {head_dim or 'a dimension'}, but has to be one to three numbers of "
                          "heads, of at least 1")


def complete(inputs: tuple[Any, Any, Any], positions: Any, out: Any, offset: int | tuple[int, ...],
             stages: Stages | None, how: tuple[Any, ...]) -> tuple[Any, "_Results | None"]:
    """What the extension's rotate takes beside angles, and what the caller gets; None: out, which is of q alone."""
    given, (heads, head_dim) = inputs, how[7:]
    if heads is not None:
        given = ((inputs[0],) * len(heads) + _NONE)[:3]
        out = (out,) * len(heads) if out is inputs[0] else out
    n_given = 1 + (given[1] is not None) + (given[2] is not None)
    outputs = _for_each("out", out, n_given)
    if stages is not None:
        stages = _for_each_tensor(stages, n_given)
    results = None
    if stages is not None or out is None or type(out) is tuple:
        results = _Results(given, outputs, stages or _NO_STAGES, heads, head_dim)
        outputs = tuple(results.outputs)
        stages = stages and stages._replace(group_scales=tuple(results.group_scales))
    offsets = (*offset, 0, 0) if isinstance(offset, tuple) else (offset, offset)
    return (inputs, outputs, positions, (offsets[0], offsets[1], 0), stages, how), results


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


def _for_each_tensor(stages: Stages, n_given: int) -> Stages:
    told = {}
    for name, value in stages._asdict().items():
        if name in ("cache_layout", "hadamard"):  # of one for all
            default = Stages._field_defaults[name]
            told[name] = (*value, *3 * (default,))[:3] if isinstance(value, tuple) else (value,) * 3
        elif name not in ("slots", "duplicate_slots"):
            told[name] = _for_each(name, value, n_given)
    told["dtype"] = tuple(None if each is None else _arrays.name_of_dtype(each) for each in told["dtype"])
    for each in told["norm"]:
        if each is not None and not isinstance(each, Norm):
            raise TypeError(f"norm is a {type(each).__name__}, not a halyard.Norm: its weight is Norm(weight)")
    return stages._replace(**told)


def turn_on_gpu(angles: _core.AngleSource, inputs: tuple[Any, Any, Any], outputs: Any, positions: Any,
                *others: Any) -> None:
    """Of PyTorch's tensors: in the context of the first one's device, and with a first position that lies there."""
    import torch
    device = next(x for x in inputs if x is not None).device
    with torch.cuda.device(device):
        if isinstance(positions, int):
            axes = (angles.n_axes,) if angles.n_axes > 1 else ()
            positions = torch.full((*axes, 1, 1), positions, dtype=torch.int64, device=device)
        _core.rotate(angles, inputs, outputs, positions, *others)


class _Results:
    """Where the tensors of a call go: arrays that are made where none are given, and what the caller gets."""

    def __init__(self, inputs: tuple[Any, ...], outputs: tuple[Any, ...], stages: Stages,
                 heads: tuple[int, ...] | None, head_dim: int) -> None:
        self.inputs, self.stages, self.heads, self.head_dim = inputs, stages, heads, head_dim
        self.outputs, self.group_scales = list(outputs), list(stages.group_scales)
        self._makes_scales = [False] * 3
        for i, x in enumerate(inputs):
            if x is not None and stages.cache[i] is None:
                self._make(i, x)

    def _make(self, i: int, x: Any) -> None:
        name, groups, dtype = "qkv"[i], self.stages.groups[i], self.stages.dtype[i]
        tail: tuple[int, ...] | None = None  # in the place of the input's last dimension
        if groups is not None:
            width, n_groups, is_apart, dtype_of_scales = _core.get_groups_info(
                groups, self._head_dim(i, x), f"groups of {name}")
            dtype, tail = "uint8", (width,)
            if is_apart and self.group_scales[i] is None:
                self._makes_scales[i] = True
                self.group_scales[i] = _arrays.new_like(name, x, dtype_of_scales, (n_groups,) if n_groups > 1 else ())
        if self.outputs[i] is not None:
            return
        if groups is None and self.stages.from_groups[i] is not None:
            dtype, tail = dtype or "f32", (self._head_dim(i, x),)
        if self.heads is not None:
            tail = (self.heads[i], *(tail or (self._head_dim(i, x),)))
            if self.head_dim == 0 and len(x.shape) > 1 and x.shape[-2] > 0:  # else it is refused later
                x = x[..., 0, :]
        self.outputs[i] = _arrays.new_like(name, x, dtype, tail)

    def _head_dim(self, i: int, x: Any) -> int:
        if self.stages.from_groups[i] is not None:
            return _core.find_head_dim(self.stages.from_groups[i], x, "qkv"[i], f"from_groups of {'qkv'[i]}")
        return self.head_dim or (x.shape[-1] if len(x.shape) > 0 else 0)

    def _get(self, i: int) -> Any:
        if self.stages.cache[i] is not None:
            return self.stages.cache[i]
        return (self.outputs[i], self.group_scales[i]) if self._makes_scales[i] else self.outputs[i]

    def get(self) -> Any:
        """What the caller gets once all is filled in: of one tensor the array, else a tuple."""
        got = tuple(self._get(i) for i, x in enumerate(self.inputs) if x is not None)
        return got[0] if len(got) == 1 else got

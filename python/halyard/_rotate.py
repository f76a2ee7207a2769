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


@dataclasses.dataclass(frozen=True)
class Groups:
    """How a record of bytes holds a head: elements in groups, each with a scale and perhaps a zero point.

    What the fields mean, and what each preset says, is told at halyard_groups_desc in halyard/halyard.h; None and 0 are
    what is not said there. A preset's name alone may take the place of a Groups.

    preset: "ggml_q8_0", "ggml_q8_0_neon", "ggml_q8_0_reference", "ggml_q4_0", "vllm_int8", "vllm_fp8", "openvino_u8",
        "openvino_u4", "mla_v32", "mla_v4", "mla_v41" or "mx".
    element: "int8", "uint8", "int4", "uint4", "e4m3" or "e5m2".
    packing: of 4 bits, "low_first", "high_first" or "halves".
    rule: "largest", "signed" or "range".
    reciprocal: "of_stored", "of_scale" or "of_largest".
    rounding: "even" or "away".
    scale_dtype: "f32", "f16", "bf16", "e8m0_up" or "e8m0_ocp".
    raw_dtype: "f32", "f16" or "bf16", of elements that are in no group.
    floor: of scales.
    group, n_grouped: in elements [n_grouped; head_dim]. record_bytes, offsets and strides are in bytes.
    scales_apart: scales lie in an array of their own: see group_scales of rotate.
    """

    preset: str | None = None
    element: str | None = None
    packing: str | None = None
    rule: str | None = None
    reciprocal: str | None = None
    rounding: str | None = None
    scale_dtype: str | None = None
    raw_dtype: str | None = None
    floor: float = 0.0
    group: int = 0
    n_grouped: int = 0
    record_bytes: int = 0
    data_offset: int = 0
    data_stride: int = 0
    scale_offset: int = 0
    scale_stride: int = 0
    zero_offset: int = 0
    zero_stride: int = 0
    raw_offset: int = 0
    scales_apart: bool = False


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
           dtype: Any = None, groups: Any = None, from_groups: Any = None, group_scales: Any = None,
           from_group_scales: Any = None, cache: Any = None, cache_layout: Any = "nhd", slots: Any = None,
           duplicate_slots: str = "error", threads: int = 1, target: str | None = None,
           heads: tuple[int, ...] | None = None, head_dim: int = 0) -> Any:
    """Rotates q and k. v, which is not rotated, takes the other stages of the road, as q and k do:
    norm, rotation, norm, scale by position, Hadamard transform, scale, conversion to another dtype, and a store into an
    array or into a cache by slot.

    q, k, v: float32, float16 or bfloat16, [tokens, heads, head_dim] or [batch, tokens, heads, head_dim], with any
        strides; heads and head_dim may differ. With layout "bhsd" heads come before tokens.
    angles: where cos and sin come from.
    positions: int32 or int64 [tokens] or [batch, tokens]; with an axis map [axes, tokens] or [axes, batch, tokens]; an
        int, or [batch, 1]: that of the first token, the others follow. May be left out, for 0, of several tokens
        without a batch that go into no cache; and has to be where angles are given by_token.
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
    dtype: of outputs that are made, "f32", "f16", "bf16", "e4m3", "e5m2" or "int8", or such a dtype of NumPy or PyTorch
        [the input's]; of uint8 arrays, e4m3 or e5m2.
    groups: how records of bytes hold heads, as engines' quantised caches do: a preset's name, "ggml_q8_0" say, or
        Groups. What a tensor goes to is uint8 then, and has the bytes of a record in the place of head_dim.
    from_groups: the same of a tensor that comes as such records. It goes to float32, or what dtype or groups say.
    group_scales: of groups whose scales lie apart: an array of the tensor's shape without head_dim and, where a head
        has several groups, with these as its last dimension; with a cache [slots, heads] or [pages, slots of a page,
        heads]. float32, float16, bfloat16, or uint8 for powers of two. Where there is no cache it is made [None], and
        (array, scales) takes the array's place in what is returned.
    from_group_scales: those that from_groups has apart, likewise.
    cache: an array that takes the place of out: [slots, heads, head_dim], [pages, slots, heads, head_dim], or with
        cache_layout "hnd" [pages, heads, slots, head_dim]; cache_layout may be a CacheLayout, and (for q, for k, for v)
        where they differ.
    slots: int32 or int64 [tokens] or [batch, tokens]: where each token goes in the caches; -1: it is not stored. An
        int, or [batch, 1]: where the first token goes, the others follow; -1: none is stored.
    duplicate_slots: what two tokens with one slot are: "error", or "last": the later one is kept. A CUDA device takes
                  "last" alone, and mixes the elements of such tokens.
    threads: how many do the work, 1 … 1024; they are kept for the next call that asks for as many.
    target: the name of the target whose kernels are taken [the best].
    heads: of q, k and v, or of the first of them, that lie side by side in one array, as a projection makes them. It
        comes as q: [tokens, heads, head_dim] or [batch, tokens, heads, head_dim], or with head_dim said [tokens,
        columns] or [batch, tokens, columns]; as out it is turned in place.

    out, norm, position_scales, scale, dtype, cache, groups and what goes with them are tuples (for q, for k, for v), with None where one has none,
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
    if q is None:
        raise TypeError("q is a NoneType, but only k and v can be left out")
    stages = None
    if not (norm is None and scale is None and dtype is None and cache is None and slots is None
            and position_scales is None and hadamard == 0 and groups is None and from_groups is None
            and group_scales is None and from_group_scales is None):
        stages = (norm, scale, cache, dtype, cache_layout, slots, duplicate_slots, position_scales, hadamard, groups,
                  from_groups, group_scales, from_group_scales)
    how: tuple[Any, ...] = (pairing, out_pairing, inverse, layout, bad_position, threads, target)
    if heads is not None:
        if k is not None or v is not None or not 1 <= len(heads) <= 3 or min(heads) < 1 or head_dim < 0:
            raise _core.Error(f"heads is {heads} of {head_dim or 'a dimension'}, but has to be one to three numbers of "
                              "heads, of at least 1, all of which lie in q")
        if from_groups is not None or (groups is not None and cache is None):
            raise _core.Error("groups are for heads of q, k and v in arrays of their own, or on their way to a cache")
        how += tuple(heads), head_dim
    return _turn((q, k, v), angles, positions, out, rotary_offset, stages, how)


def not_a_source(name: str, value: Any) -> TypeError:
    return TypeError(f"{name} is a {type(value).__name__}, not a halyard.AngleSource")


def _turn(inputs: tuple[Any, Any, Any], angles: AngleSource, positions: Any, out: Any, offset: int | tuple[int, ...],
          stages: tuple[Any, ...] | None, how: tuple[Any, ...]) -> Any:
    """rotate, with what belongs together in tuples as the extension takes them."""
    given, results = complete(inputs, positions, out, offset, stages, how)
    outputs = given[1]
    if any(getattr(x, "is_cuda", False) for x in inputs):
        turn_on_gpu(angles._handle, *given)
    else:
        _core.rotate(angles._handle, *given)
    all_inputs = inputs if len(how) == 7 else _unpack(inputs, how[7])
    if all_inputs[1] is None and all_inputs[2] is None:
        return outputs[0] if results is None else results.of(0, outputs[0])
    return tuple(outputs[i] if results is None else results.of(i, outputs[i])
                 for i in range(3) if all_inputs[i] is not None)


def _unpack(inputs: tuple[Any, ...], heads: tuple[int, ...]) -> tuple[Any, ...]:
    """The inputs, where all of them lie in the first."""
    return ((inputs[0],) * len(heads) + _NONE)[:3]


def complete(inputs: tuple[Any, Any, Any], positions: Any, out: Any, offset: int | tuple[int, ...],
             stages: tuple[Any, ...] | None, how: tuple[Any, ...]) -> tuple[Any, Any]:
    """What the extension's rotate takes beside angles, and what makes of outputs what the caller gets, if anything."""
    given, heads, head_dim = inputs, None, 0
    if len(how) > 7:
        heads, head_dim = how[7:]
        given = _unpack(inputs, heads)
        out = (out,) * len(heads) if out is inputs[0] else out
    n_given = 1 + (given[1] is not None) + (given[2] is not None)
    outputs = _for_each("out", out, n_given)
    results = None  # where outputs are all there is
    if stages is not None:
        norm, scale, cache, dtype, cache_layout, slots, duplicate_slots, position_scales, hadamard, *groups = stages
        names = ("groups", "from_groups", "group_scales", "from_group_scales")
        groups, from_groups, group_scales, from_group_scales = (_for_each(name, each, n_given)
                                                                for name, each in zip(names, groups))
        dtypes = tuple(None if each is None else _arrays.name_of_dtype(each)
                       for each in _for_each("dtype", dtype, n_given))
        norms = _for_each("norm", norm, n_given)
        for each in norms:
            if each is not None and not isinstance(each, Norm):
                raise TypeError(f"norm is a {type(each).__name__}, not a halyard.Norm: its weight is Norm(weight)")
        layouts = (*cache_layout, "nhd", "nhd", "nhd")[:3] if isinstance(cache_layout, tuple) else (cache_layout,) * 3
        results = _Results(given, _for_each("cache", cache, n_given), dtypes, groups, from_groups, heads, head_dim)
        stages = (norms, _for_each("scale", scale, n_given), results.caches, results.dtypes,
                  layouts, slots, duplicate_slots, _for_each("position_scales", position_scales, n_given),
                  (*hadamard, 0, 0, 0)[:3] if isinstance(hadamard, tuple) else (hadamard,) * 3, groups, from_groups,
                  results.complete_scales(group_scales), from_group_scales)
    elif out is None or type(out) is tuple:
        results = _Results(given, heads=heads, head_dim=head_dim)
    if results is not None:
        outputs = results.complete(outputs)
    offsets = (*offset, 0, 0) if isinstance(offset, tuple) else (offset, offset)
    return (inputs, outputs, positions, (offsets[0], offsets[1], 0), stages, how), results


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

    def __init__(self, inputs: tuple[Any, ...], caches: tuple[Any, ...] = _NONE, dtypes: tuple[Any, ...] = _NONE,
                 groups: tuple[Any, ...] = _NONE, from_groups: tuple[Any, ...] = _NONE,
                 heads: tuple[int, ...] | None = None, head_dim: int = 0):
        self.heads, self.head_dim = heads, head_dim
        self.inputs, self.caches, self.dtypes, self.groups, self.from_groups = inputs, caches, dtypes, groups, from_groups
        self._finish, self._scales = list[Any](_NONE), list[Any](_NONE)

    def complete(self, outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """The outputs with new arrays where there are none."""
        completed = list(outputs)
        for i, x in enumerate(self.inputs):
            if x is not None and outputs[i] is None and self.caches[i] is None:
                dtype, tail = self._kind_of_output(i, x)
                if self.heads is not None:
                    tail = (self.heads[i], *(tail or (self._head_dim(i, x),)))
                    if self.head_dim == 0 and len(x.shape) > 1 and x.shape[-2] > 0:  # else it is refused later
                        x = x[..., 0, :]
                completed[i], self._finish[i] = _arrays.new_like("qkv"[i], x, dtype, tail)
        return tuple(completed)

    def complete_scales(self, scales: tuple[Any, ...]) -> tuple[Any, ...]:
        """Scales of groups that lie apart, with new arrays where there are none and no cache."""
        completed = list(scales)
        for i, x in enumerate(self.inputs):
            if x is not None and self.groups[i] is not None and scales[i] is None and self.caches[i] is None:
                _, n_groups, is_apart, dtype = self._resolve(i, x)
                if is_apart:
                    tail = (n_groups,) if n_groups > 1 else ()
                    completed[i], finish = _arrays.new_like(f"group_scales of {'qkv'[i]}", x, dtype, tail)
                    self._scales[i] = completed[i], finish
        return tuple(completed)

    def of(self, i: int, output: Any) -> Any:
        """What the caller gets of tensor i, once it is filled in."""
        if self.caches[i] is not None:
            return self.caches[i]
        finish = self._finish[i]
        result = output if finish is None else finish(output)
        if self._scales[i] is None:
            return result
        scales, finish = self._scales[i]
        return result, scales if finish is None else finish(scales)

    def _kind_of_output(self, i: int, x: Any) -> tuple[str | None, tuple[int, ...] | None]:
        """Its dtype, and what takes the place of the input's last dimension; None: both are as the input has them."""
        if self.groups[i] is not None:
            return "uint8", (self._resolve(i, x)[0],)
        if self.from_groups[i] is not None:
            return self.dtypes[i] or "f32", (self._head_dim(i, x),)
        return self.dtypes[i], None

    def _head_dim(self, i: int, x: Any) -> int:
        name = "qkv"[i]
        if self.from_groups[i] is not None:
            return _core.find_head_dim(self.from_groups[i], x, name, f"from_groups of {name}")
        return self.head_dim or (x.shape[-1] if len(x.shape) > 0 else 0)

    def _resolve(self, i: int, x: Any) -> tuple[int, int, bool, str]:
        return _core.resolve_groups(self.groups[i], self._head_dim(i, x), f"groups of {'qkv'[i]}")

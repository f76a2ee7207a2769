"""What a call says of each of its tensors, and of all of them."""

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
    tile_elements head_dim, stride_element 1. The array is dense, of any shape, and large enough. n_heads and head_dim
    are for rerotate, which does not know otherwise what is in the cache.
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
    n_heads: int = 0
    head_dim: int = 0


@dataclasses.dataclass(frozen=True, eq=False)
class Cache:
    """Where tokens are stored by slot.

    array: [slots, heads, head_dim] or [pages, slots, heads, head_dim]; with the layout "hnd" [pages, heads, slots,
        head_dim].
    layout: "nhd", "hnd" or a CacheLayout.
    """

    array: Any = None
    layout: str | CacheLayout = "nhd"

    def __post_init__(self) -> None:
        if not isinstance(self.layout, (str, CacheLayout)):
            raise TypeError(f"layout is a {type(self.layout).__name__}, not a string or a halyard.CacheLayout")


@dataclasses.dataclass(frozen=True, eq=False)
class Groups:
    """Records of bytes that hold heads, as engines' quantised caches do, told in halyard_kv.h: uint8 arrays with a
    record in the place of head_dim.

    preset: "ggml_q8_0", "ggml_q8_0_neon", "ggml_q8_0_reference", "ggml_q4_0", "vllm_int8", "vllm_fp8", "openvino_u8",
        "openvino_u4", "mla_v32", "mla_v4", "mla_v41" or "mx".
    scales: those that lie apart from the records: float32, or uint8 for powers of two, of the tensor's shape without
        head_dim and, where a head has several groups, with these as its last dimension; with a cache [slots, heads] or
        [pages, slots of a page, heads]. Of an output that is made they are made, too [None]: (array, scales) takes the
        array's place in what is returned.
    """

    preset: str
    scales: Any = None


@dataclasses.dataclass(frozen=True, eq=False)
class Tensor:
    """One tensor of a call, and its stages: load, norm, rotation, norm, scale by position, Hadamard transform, scale,
    conversion, store.

    array: float32, float16 or bfloat16, [tokens, heads, head_dim] or [batch, tokens, heads, head_dim], with any strides.
        With layout "bhsd" heads come before tokens.
    from_groups: Groups, or a preset's name, where the array holds such records. It goes to float32, or what dtype or
        groups say.
    norm: a Norm.
    rotary_offset: where the rotated window begins in a head.
    position_scales: what it is multiplied by: float32 [tokens] or, with a batch, [batch, tokens]; or of the tensor's
        shape without head_dim. Frequencies.position_scales makes those of models that scale q.
    hadamard: n: a Hadamard transform of each n elements of a head, orthonormal and so its own inverse; a power of two
        that divides head_dim [0: none].
    scale: stored = convert(value / scale), so that value = stored * scale: a number, float32 [heads], or a DynamicScale.
    dtype: of the output: "f32", "f16", "bf16", "e4m3", "e5m2" or "int8", or such a dtype of NumPy or PyTorch [the
        input's]; of a uint8 array "e4m3" or "e5m2".
    groups: Groups, or a preset's name, as which it is stored.
    out: where it goes: any array of its shape, itself for in place [a new array: PyTorch's for its own, else NumPy's].
    cache: a Cache, or its array, where it goes instead.
    """

    array: Any = None
    _: dataclasses.KW_ONLY
    from_groups: Any = None
    norm: Norm | None = None
    rotary_offset: int = 0
    position_scales: Any = None
    hadamard: int = 0
    scale: Any = None
    dtype: Any = None
    groups: Any = None
    out: Any = None
    cache: Any = None

    def __post_init__(self) -> None:
        if self.norm is not None and not isinstance(self.norm, Norm):
            raise TypeError(f"norm is a {type(self.norm).__name__}, not a halyard.Norm: its weight is Norm(weight)")
        if self.out is not None and self.cache is not None:
            raise _core.Error("out and cache are given, but a tensor goes to one place")
        for name, kind in ("from_groups", Groups), ("groups", Groups), ("cache", Cache):
            value = getattr(self, name)
            if value is not None and not isinstance(value, kind):
                object.__setattr__(self, name, kind(value))
        if self.dtype is not None:
            object.__setattr__(self, "dtype", _arrays.name_of_dtype(self.dtype))


class Options(NamedTuple):
    """What a call says of all tensors, as rotate explains it."""

    inverse: bool = False
    pairing: str | None = None
    out_pairing: str | None = None
    layout: str = "bshd"
    bad_position: str = "error"
    duplicate_slots: str = "error"
    threads: int = 0
    target: str | None = None


def require_source(name: str, value: Any) -> None:
    if not isinstance(value, AngleSource):
        raise TypeError(f"{name} is a {type(value).__name__}, not a halyard.AngleSource")


def complete(name: str, given: Any, in_place: bool, rotates: bool) -> tuple[Any, ...]:
    """What the extension takes of an array or a Tensor: its name, it, where it goes (None: into a new array or a cache),
    whether it is rotated, and the Tensor."""
    if not isinstance(given, Tensor):
        return name, given, given if in_place else None, rotates, None
    out = given.array if in_place and given.out is None and given.cache is None else given.out
    return name, given.array, out, rotates, given

"""Tensor and the types of its arguments; the options that all tensors of a call share."""

import dataclasses
from typing import Any, NamedTuple

from . import _arrays, _core
from ._angles import AngleSource


@dataclasses.dataclass(frozen=True)
class Norm:
    """RMS norm, v / sqrt(mean(v ** 2) + eps) * weight, by default of each head by itself; or layer norm, which first
    subtracts mean(v), and adds a bias at the end.

    weight: float32, float16 or bfloat16, dense: one weight for each normed element of a head ("row": of all heads), or
        [heads, window_size] if each head has its own. None: no weight.
    eps: >= 0.
    unit_offset: multiply by 1 + weight (Gemma).
    width: what is normed together: "head", or "row": all heads of a token.
    order: "before" or "after" the rotation.
    rounding: where the normed value is rounded to the input's dtype: "none"; "before_weight"; "after_weight", that is
        after weight and bias; or "both", as in transformers.
    window_offset, window_size: norm only window_size elements of each head, from window_offset on [0: all from there].
        The others stay as they are.
    kind: "rms" or "layer".
    bias: for layer norms with a weight only; of the weight's dtype and shape. None: no bias.
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
    """Computes a scale for each head of each token: the head's largest magnitude divided by the largest number of the
    output's dtype, which must be "e4m3", "e5m2" or "int8".

    scales_out: a float32 array for the scales: the tensor's shape without head_dim; with a cache [slots, heads].
    """

    scales_out: Any


@dataclasses.dataclass(frozen=True)
class CacheLayout:
    """The layout of a cache in tiles or with other strides than its array's. Strides are in elements; no field is
    negative.

    Slot s is token s % block_size of block s // block_size. Element d of head h and token t of block b lies at

        b * stride_block + h * stride_head + (t // tile_tokens) * stride_tile_tokens + (t % tile_tokens) * stride_token
        + (d // tile_elements) * stride_tile_elements + (d % tile_elements) * stride_element

    from the array's first element. The array must be dense, of any shape, and large enough. Defaults, for a field of 0:
    block_size is n_slots, tile_tokens block_size, tile_elements head_dim, stride_element 1. Only rerotate reads n_heads
    and head_dim, and requires them.
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
    """A KV cache of keys or of values, to which rotate writes each token at its slot.

    array: of a dtype that Tensor lists, with any strides: [slots, heads, head_dim] or [pages, slots of a page, heads,
        head_dim]; with the layout "hnd" [pages, heads, slots of a page, head_dim]. Slots count through all pages.
    layout: "nhd" (heads after slots), "hnd" (heads before slots), or a CacheLayout.
    """

    array: Any = None
    layout: str | CacheLayout = "nhd"

    def __post_init__(self) -> None:
        if not isinstance(self.layout, (str, CacheLayout)):
            raise TypeError(f"layout is a {type(self.layout).__name__}, not a string or a halyard.CacheLayout")


@dataclasses.dataclass(frozen=True, eq=False)
class Groups:
    """The format of an engine's quantised cache: each head is a record of bytes that holds its elements in groups. The
    array is uint8, and its last dimension holds the bytes of a record. halyard_kv.h describes the formats.

    preset: "ggml_q8_0", "ggml_q8_0_neon", "ggml_q8_0_reference", "ggml_q4_0", "vllm_int8", "vllm_fp8", "openvino_u8",
        "openvino_u4", "mla_v32", "mla_v4", "mla_v41" or "mx".
    scales: an array for presets whose scales lie outside the records (vllm_…, mla_v4, mla_v41); None for all others. It
        is float32, or uint8 for E8M0 scales (mla_v4, mla_v41). Its shape is the tensor's without head_dim; with a cache
        [slots, heads] or [pages, slots of a page, heads]. If a head has several groups, a dense last dimension of
        groups is added. If scales is None for an output without a cache, rotate makes the array, and returns (output,
        scales) in place of the output.
    """

    preset: str
    scales: Any = None


@dataclasses.dataclass(frozen=True, eq=False)
class Tensor:
    """One tensor of a call, with its stages and its destination. The stages run in this order: load, norm, rotation (or
    rotation, norm), scale by position, Hadamard transform, scale, conversion, store.

    array: float32, float16 or bfloat16, [tokens, heads, head_dim] or [batch, tokens, heads, head_dim], of any strides.
        With layout "bhsd" heads come before tokens. With from_groups, uint8 records.
    from_groups: the format of the array's records: a Groups, or a preset's name [None: the array has no records]. The
        output is then float32 by default.
    norm: a Norm [none].
    rotary_offset: the first element of a head that rotates; the window has the angles' rotary_dim elements.
    position_scales: factors for each token, float32 [tokens] or [batch, tokens]; or for each token and head, of the
        tensor's shape without head_dim. Frequencies.position_scales computes them for models that scale q.
    hadamard: n, a power of two that divides head_dim, for a Hadamard transform of every n elements of a head [0: none].
        The transform is orthonormal, and so its own inverse.
    scale: a number, float32 [heads], or a DynamicScale. stored = convert(value / scale), so value = stored * scale.
    dtype: of the output: "f32", "f16", "bf16", "e4m3", "e5m2", "int8", or that dtype of NumPy or PyTorch [the input's].
        An out or cache of uint8 needs it: "e4m3" or "e5m2".
    groups: the format of the output's records: a Groups, or a preset's name [None: no records].
    out: an array for the output, of the same shape; `array` itself to work in place [a new array: a PyTorch tensor for
        a PyTorch input, else a NumPy array].
    cache: a Cache, or its array, to store to by slot; not together with out.

    Raises TypeError for a norm of another type, halyard.Error if both out and cache are given. rotate checks the rest.
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
    """The options of a call that hold for all its tensors; rotate documents them."""

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
    """Returns what the extension takes for an array or a Tensor: the name, the array, its out (None: a new array or the
    cache), whether it is rotated, and the Tensor (None for an array)."""
    if not isinstance(given, Tensor):
        return name, given, given if in_place else None, rotates, None
    out = given.array if in_place and given.out is None and given.cache is None else given.out
    return name, given.array, out, rotates, given

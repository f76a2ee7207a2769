"""Frequencies: what a model's RoPE turns by."""

import dataclasses
import json
import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from . import _arrays, _core


class QScale(NamedTuple):
    """What a model multiplies q by at position p, after the rotation and any norm.

    rule "log": 1 + scale * ln(1 + floor((p + shift) / length)), as in Llama 4 and Ministral 3;
    rule "power": (1 + (p + shift) / length) ** scale.
    layers: "all", or "unrotated": those that turn neither q nor k.
    """

    rule: str
    scale: float
    length: int
    shift: int
    layers: str


@dataclasses.dataclass(frozen=True, init=False, eq=False, repr=False)
class Frequencies:
    """Inverse frequencies and attention_factor of a model, by from_base, from_list or from_config, and what its config
    tells beside them. Never changes.

    inv_freq: rotary_dim / 2 numbers in radians per position, correctly rounded.
    head_dim: columns of the head that is rotated (of MLA its rotated slice alone), if a config tells.
    pairing: "half" or "interleaved", as the model reads its heads, if a config tells.
    out_pairing: as the model writes them: another one than pairing in DeepSeek-V3 and its kin.
    method: "default", "list", "linear", "ntk", "dynamic", "yarn", "llama3", "longrope" or "proportional".
    base: what unscaled frequencies are powers of; None of a list.
    max_position, original_max_position: in tokens: the context that the model is meant for, and that it was trained
        with, if known.
    first_seq_len, last_seq_len: in tokens: the shortest and the longest context that they are for; 2**53 where any is.
        A length outside takes others (for_length).
    axis_map: ("sections" or "interleaved", pairs of each axis) where positions have several, as in Qwen2-VL.
    q_scale: what the model asks of q beside its angles, which no rotation does; None where that is nothing.
    has_unrotated_layers: whether the attention of other layers than those that these are for turns neither q nor k
        (Llama 4, SmolLM3, Cohere 2).
    """

    inv_freq: tuple[float, ...]
    attention_factor: float
    rotary_dim: int
    head_dim: int | None
    pairing: str | None
    out_pairing: str | None
    method: str
    base: float | None
    max_position: int | None
    original_max_position: int | None
    first_seq_len: int
    last_seq_len: int
    axis_map: tuple[str, tuple[int, ...]] | None
    q_scale: QScale | None
    has_unrotated_layers: bool
    _handle: _core.Frequencies
    _recipe: tuple[Any, ...]  # what they were made from

    def __init__(self) -> None:
        raise TypeError("Frequencies come from Frequencies.from_base, from_list or from_config")

    @classmethod
    def _wrap(cls, core: _core.Frequencies, *recipe: Any) -> "Frequencies":
        told = core.tell()
        told["q_scale"] = told["q_scale"] and QScale(*told["q_scale"])
        self = object.__new__(cls)
        self.__dict__.update(told, _handle=core, _recipe=recipe)
        return self

    @classmethod
    def from_base(cls, base: float, rotary_dim: int) -> "Frequencies":
        """inv_freq[k] = base ** (-2 k / rotary_dim), kept to twice double precision.

        base: finite, > 0 (10000 in most models). rotary_dim: even, 2 … 2**20.
        """
        return cls._wrap(_core.Frequencies.from_base(base, rotary_dim), "base", float(base), int(rotary_dim))

    @classmethod
    def from_list(cls, inv_freq: Iterable[float], attention_factor: float = 1.0) -> "Frequencies":
        """inv_freq as given, in radians per position, each taken as exact; rotary_dim is twice their number.

        attention_factor: 2**-60 … 2**60; what rotated vectors are multiplied by.
        """
        values = [float(value) for value in inv_freq]
        return cls._wrap(_core.Frequencies.from_list(values, attention_factor), "list", values, float(attention_factor))

    @classmethod
    def from_config(cls, config: Mapping[str, Any] | str | os.PathLike[str] | Any, *, seq_len: int = 0,
                    layer_type: str | None = None, layer: int | None = None) -> "Frequencies":
        """Those of a model with this Hugging Face config: the dict that ``config.json`` holds, its path (or its
        folder's), or a config of transformers.

        seq_len: in tokens, the context that dynamic NTK and LongRoPE are made for [a short one].
        layer_type: whose frequencies, such as "sliding_attention", or "vision", where not all layers share one.
        layer: a layer's number, counted from 0, where the config lists bases, factors or types by layer.

        Nothing is guessed: a field that is missing, contradictory or of an unknown kind raises ``halyard.Error``. Other
        exceptions: OSError of a file, TypeError of what is none of these.
        """
        if isinstance(config, (str, os.PathLike)):
            path = os.path.join(config, "config.json") if os.path.isdir(config) else config
            with open(path, "rb") as file:
                text = file.read()
        elif isinstance(config, Mapping):
            text = json.dumps(config).encode()
        elif hasattr(config, "to_json_string"):
            text = config.to_json_string(use_diff=False).encode()
        else:
            raise TypeError(f"config is a {type(config).__name__}, not a dict, a path or a config of transformers")
        return cls._wrap(_core.Frequencies.from_config(text, seq_len, layer_type, layer), text, int(seq_len), layer_type,
                         layer)

    def for_length(self, seq_len: int) -> "Frequencies":
        """Those of the same model for a context of seq_len tokens, 0 … 2**53, without reading its config again.

        Of dynamic NTK and LongRoPE others, of all other methods the same. Keys that were cached with the old ones have
        to move: rerotate's from_angles. Raises halyard.Error for a length that is out of range, and for the first
        Qwen's use_dynamic_ntk beyond its seq_length, or dual chunks beyond the first.
        """
        return self._wrap(self._handle.for_length(seq_len), self._recipe, int(seq_len))

    def position_scales(self, positions: Any) -> Any:
        """What q is multiplied by at these positions, as rotate's position_scales: q_scale, rounded to float32.

        positions: int32 or int64 [tokens] or [batch, tokens], none negative. Returns a new array of their shape,
        PyTorch's or NumPy's. Raises halyard.Error where the model has no such rule.
        """
        scales = _arrays.new_like("positions", positions, "f32")
        self._handle.position_scales(positions, scales)
        return scales

    def __deepcopy__(self, memo: dict[int, Any]) -> "Frequencies":
        return self  # it never changes

    def __repr__(self) -> str:
        pairing = f", pairing {self.pairing}" if self.pairing else ""
        return f"<halyard.Frequencies: {self.method}, rotary_dim {self.rotary_dim}{pairing}>"

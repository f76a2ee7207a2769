"""Frequencies: the inverse frequency of each pair of a model's RoPE."""

import dataclasses
import json
import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from . import _arrays, _core


class QScale(NamedTuple):
    """The rule for the factor by which a model multiplies q at position p, after the rotation and any norm.

    rule: "log": the factor is 1 + scale * ln(1 + floor((p + shift) / length)), as in Llama 4 and Ministral 3;
        "power": it is (1 + (p + shift) / length) ** scale.
    length: in tokens, >= 1. shift: 0 or 1.
    layers: which layers apply it: "all", or "unrotated", those without RoPE.
    """

    rule: str
    scale: float
    length: int
    shift: int
    layers: str


@dataclasses.dataclass(frozen=True, init=False, eq=False, repr=False)
class Frequencies:
    """Inverse frequencies and attention_factor of a model, and related fields of its config. Made by from_base,
    from_list or from_config; never changes. Fields are None if they are not known, as without a config.

    inv_freq: rotary_dim / 2 numbers in radians per position, correctly rounded.
    attention_factor: what rotated vectors are multiplied by.
    rotary_dim: elements of a head that are rotated.
    head_dim: elements of a head; with MLA, only those of the slice that is rotated.
    pairing: "half" or "interleaved": of the rotation's input.
    out_pairing: of its output; differs from pairing in DeepSeek-V3 and related models.
    method: "default", "list", "linear", "ntk", "dynamic", "yarn", "llama3", "longrope" or "proportional".
    base: the number whose powers the unscaled frequencies are; None for a list.
    max_position, original_max_position: in tokens: the context that the model is meant for, and the context that it
        was trained with.
    first_seq_len, last_seq_len: in tokens: the shortest and the longest sequence that these frequencies hold for, 0 …
        2**53. For other lengths call for_length.
    axis_map: if positions have several axes (Qwen2-VL), ("sections" or "interleaved", the numbers of pairs by axis).
    q_scale: the model's rule for scaling q by position, which rotate does not apply by itself; None if it has none.
    has_unrotated_layers: whether other layers of the model have attention without RoPE (Llama 4, SmolLM3, Cohere 2).
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
    _recipe: tuple[Any, ...]  # the arguments that these were made from, which AngleSource hashes

    def __init__(self) -> None:
        raise TypeError("Frequencies come from Frequencies.from_base, from_list or from_config")

    @classmethod
    def _wrap(cls, core: _core.Frequencies, *recipe: Any) -> "Frequencies":
        fields = core.get_fields()
        fields["q_scale"] = fields["q_scale"] and QScale(*fields["q_scale"])
        self = object.__new__(cls)
        self.__dict__.update(fields, _handle=core, _recipe=recipe)
        return self

    @classmethod
    def from_base(cls, base: float, rotary_dim: int) -> "Frequencies":
        """Frequencies with inv_freq[k] = base ** (-2 k / rotary_dim), kept to twice double precision.

        base: finite, > 0 (10000 in most models). rotary_dim: even, 2 … 2**20. Else raises halyard.Error.
        """
        return cls._wrap(_core.Frequencies.from_base(base, rotary_dim), "base", float(base), int(rotary_dim))

    @classmethod
    def from_list(cls, inv_freq: Iterable[float], attention_factor: float = 1.0) -> "Frequencies":
        """Frequencies with the given inv_freq, each taken as exact; rotary_dim is twice their number.

        inv_freq: 1 … 2**19 finite numbers in radians per position, of at most 2**20 in magnitude; 0: no rotation.
        attention_factor: 2**-60 … 2**60; what rotated vectors are multiplied by. Else raises halyard.Error.
        """
        values = [float(value) for value in inv_freq]
        return cls._wrap(_core.Frequencies.from_list(values, attention_factor), "list", values, float(attention_factor))

    @classmethod
    def from_config(cls, config: Mapping[str, Any] | str | os.PathLike[str] | Any, *, seq_len: int = 0,
                    layer_type: str | None = None, layer: int | None = None) -> "Frequencies":
        """The frequencies of the model with this Hugging Face config.

        config: the dict that ``config.json`` holds, the path of that file or of its folder, or a config object of
            transformers.
        seq_len: in tokens, 0 … 2**53: the context that dynamic NTK and LongRoPE are made for [a short one].
        layer_type: one of the config's layer types, such as "sliding_attention", or "vision" for the image encoder.
            Required if layer types have different RoPE.
        layer: a layer's number, counted from 0. Required if the config lists bases, factors or types by layer.

        Nothing is guessed: a field that is missing, contradictory or unknown raises ``halyard.Error``. A file that
        cannot be read raises OSError, a config of any other type TypeError.
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
        """The frequencies of the same model for a context of seq_len tokens (0 … 2**53), without reading its config.

        Only with dynamic NTK and LongRoPE do frequencies change. Re-rotate keys that were cached with the old
        frequencies: pass the old angle source to rerotate as from_angles. Raises halyard.Error for a length that is out
        of range, beyond seq_length for the first Qwen's use_dynamic_ntk, or beyond the first chunk for dual chunks.
        """
        return self._wrap(self._handle.for_length(seq_len), self._recipe, int(seq_len))

    def position_scales(self, positions: Any) -> Any:
        """The factor of q at each position by the rule q_scale, rounded to float32. Pass it to rotate in a Tensor.

        positions: int32 or int64 [tokens] or [batch, tokens], each 0 … 2**31 - 1.

        Returns a new float32 array of that shape: a PyTorch tensor for PyTorch positions, else a NumPy array.
        Raises halyard.Error if q_scale is None, or for other positions.
        """
        scales = _arrays.new_like("positions", positions, "f32")
        self._handle.position_scales(positions, scales)
        return scales

    def __deepcopy__(self, memo: dict[int, Any]) -> "Frequencies":
        return self  # it never changes

    def __repr__(self) -> str:
        pairing = f", pairing {self.pairing}" if self.pairing else ""
        return f"<halyard.Frequencies: {self.method}, rotary_dim {self.rotary_dim}{pairing}>"

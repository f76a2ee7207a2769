"""Angle sources over the tables that vLLM's rotary layers hold."""

from typing import Any

from .._angles import AngleSource


def source_of(layer: Any) -> AngleSource:
    """Of a rotary layer, by its table: rows [cos, sin] of rotary_dim numbers, one for each position."""
    table = layer.cos_sin_cache
    held = layer.__dict__.get("_halyard_source")
    if held is None or held[0] is not table:  # vLLM makes a new table where q has another dtype
        held = layer.__dict__["_halyard_source"] = table, AngleSource.given(*table.chunk(2, dim=-1))
    source: AngleSource = held[1]
    return source


def pairing_of(layer: Any) -> str:
    return "half" if layer.is_neox_style else "interleaved"

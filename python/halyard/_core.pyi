"""The extension, as the package calls it: what halyard/halyard.h says, with names for numbers."""

from collections.abc import Callable
from typing import Any

version: str
has_gpu: bool

class Error(ValueError):
    status: str

class Frequencies:
    @staticmethod
    def from_base(base: float, rotary_dim: int) -> Frequencies: ...
    @staticmethod
    def from_list(inv_freq: list[float], attention_factor: float) -> Frequencies: ...
    @staticmethod
    def from_config(text: bytes, seq_len: int, layer_type: str | None, layer: int | None = None) -> Frequencies: ...
    def for_length(self, seq_len: int) -> Frequencies: ...
    def tell(self) -> dict[str, Any]: ...
    def position_scales(self, positions: Any, out: Any) -> None: ...

class AngleSource:
    @staticmethod
    def make(frequencies: Frequencies, kind: str, first: int | None, n_positions: int | None, reference: str,
             axis_map: tuple[str, list[int]] | None) -> AngleSource: ...
    @staticmethod
    def given(cos: Any, sin: Any, rotary_dim: int, by_token: bool,
              axis_map: tuple[str, list[int]] | None = None) -> AngleSource: ...
    @staticmethod
    def linear(positions: Any, matrix: Any, attention_factor: float) -> AngleSource: ...
    kind: str
    rotary_dim: int
    by_token: bool
    pairing: str | None
    out_pairing: str | None
    first: int
    last: int
    n_axes: int
    n_bytes: int

def targets() -> list[tuple[str, str, bool, bool, bool, str]]: ...
def explain(dtypes: tuple[str, str], pairings: tuple[str, str], head_dim: int, rotary_dim: int, rotary_offset: int,
            inverse: bool, targets: tuple[str | None, str | None], /) -> str: ...
def get_groups_info(groups: Any, head_dim: int, name: str) -> tuple[int, int, bool, str]: ...
def find_head_dim(groups: Any, records: Any, name: str, name_of_groups: str) -> int: ...

# pairing, out_pairing, inverse, layout, bad_position, threads, target, and of heads in one array heads and head_dim
_How = tuple[Any, ...]

def rotate(angles: AngleSource, x: tuple[Any, Any, Any], y: tuple[Any, Any, Any], positions: Any,
           offsets: tuple[int, int, int], stages: tuple[Any, ...] | None,
           how: _How) -> None: ...
def rerotate(angles: AngleSource, from_angles: AngleSource, keys: tuple[Any, ...], from_positions: Any, positions: Any,
             how: _How) -> None: ...

class View:
    shape: tuple[int, ...]

def implement_operators(path: str, describe: Callable[[str, list[View | None], int, str], tuple[Any, ...]]) -> None: ...

class Prepared:
    def __init__(self, describe: Callable[[Any, Any, Any, Any], tuple[Any, ...]]) -> None: ...
    def __call__(self, packed: Any, positions: Any = None, slots: Any = None, out: Any = None) -> None: ...

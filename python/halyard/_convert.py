"""convert: what a cache holds becomes another cache's, without a rotation."""

import functools
from typing import Any

from ._angles import AngleSource
from ._frequencies import Frequencies
from ._rotate import turn
from ._tensor import Options, Tensor


@functools.cache
def _no_angles() -> AngleSource:
    return AngleSource(Frequencies.from_base(10000.0, 2))  # of which nothing is read


def convert(v: Any, *, slots: Any = None, duplicate_slots: str = "error", layout: str = "bshd", threads: int = 0,
            target: str | None = None, **stages: Any) -> Any:
    """What rotate does with v = Tensor(v, **stages): every stage but the rotation. So an engine's cache changes its
    format, from floats to records of groups, say, or back:

        records = halyard.convert(keys, groups="ggml_q8_0", hadamard=128)
        keys = halyard.convert(records, from_groups="ggml_q8_0")  # still transformed
    """
    options = Options(duplicate_slots=duplicate_slots, layout=layout, threads=threads, target=target)
    return turn((("v", Tensor(v, **stages)),), _no_angles(), None, slots, False, options)

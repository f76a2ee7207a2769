"""convert: what a cache holds becomes another cache's, without a rotation."""

import functools
from typing import Any

from ._angles import AngleSource
from ._frequencies import Frequencies
from ._rotate import Stages, turn


@functools.cache
def _no_angles() -> AngleSource:
    return AngleSource(Frequencies.from_base(10000.0, 2))  # of which nothing is read


def convert(v: Any, *, out: Any = None, hadamard: int = 0, scale: Any = None, dtype: str | None = None,
            groups: Any = None, from_groups: Any = None, group_scales: Any = None, from_group_scales: Any = None,
            cache: Any = None, cache_layout: Any = "nhd", slots: Any = None, duplicate_slots: str = "error",
            layout: str = "bshd", threads: int = 1, target: str | None = None) -> Any:
    """What rotate does with v: every stage but the rotation. So an engine's cache changes its format, from floats to
    records of groups, say, or back:

        records = halyard.convert(keys, groups="ggml_q8_0", hadamard=128)
        keys = halyard.convert(records, from_groups="ggml_q8_0")  # still transformed

    v: keys or values as rotate takes them, or with from_groups records. The rest is as in rotate, of one tensor.
    """
    def alone(value: Any) -> Any:
        return None if value is None else (None, None, value)

    stages = Stages(None, alone(scale), alone(cache), alone(dtype), cache_layout, slots, duplicate_slots, None,
                    hadamard, alone(groups), alone(from_groups), alone(group_scales), alone(from_group_scales))
    how = None, None, False, layout, "error", threads, target, None, 0
    return turn((None, None, v), _no_angles(), None, alone(out), 0, stages, how)

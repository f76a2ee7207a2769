"""What this build holds, and which kernel serves what."""

from typing import NamedTuple

from . import _core


class Target(NamedTuple):
    """A kernel target, such as x86_avx2.

    isa: what it requires, in words. supported: by this machine. reason: why it is not active; empty where it is.
    active: whether calls that name no target take it; the environment (HALYARD_TARGET, HALYARD_MAX_TARGET) applies.
    """

    name: str
    isa: str
    built: bool
    supported: bool
    active: bool
    reason: str


def targets() -> list[Target]:
    """Every kernel target, best first; the last is the portable reference."""
    return [Target(*row) for row in _core.targets()]


def explain(dtype: str = "f32", head_dim: int = 128, *, rotary_dim: int | None = None, rotary_offset: int = 0,
            pairing: str = "half", out_dtype: str | None = None, out_pairing: str | None = None, inverse: bool = False,
            target: str | None = None, max_target: str | None = None) -> str:
    """For each kernel that could serve such heads, whether it is taken and if not why: lines of text.

    dtype, out_dtype: "f32", "f16", "bf16", and for outputs "e4m3", "e5m2", "int8" [dtype].
    rotary_dim: [head_dim]. out_pairing: [pairing]. target, max_target: as in rotate; the best one to consider.
    """
    return _core.explain((dtype, out_dtype or dtype), (pairing, out_pairing or pairing), head_dim,
                         head_dim if rotary_dim is None else rotary_dim, rotary_offset, inverse, (target, max_target))

"""The kernel targets of this build, and which kernel serves a call."""

from typing import NamedTuple

from . import _core


class Target(NamedTuple):
    """A kernel target, such as x86_avx2.

    isa: the instruction sets that it requires, as text.
    built: whether this build contains it. supported: whether this machine can run it.
    active: whether calls that name no target may use its kernels; HALYARD_TARGET and HALYARD_MAX_TARGET restrict that.
    reason: why it is not active; empty if it is.
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
    """Lists the kernels that could rotate such heads, a line of text each: which one is used, and why others are not.

    dtype, out_dtype: "f32", "f16" or "bf16"; out_dtype also "e4m3", "e5m2" or "int8" [dtype].
    rotary_dim, rotary_offset: the rotated window of a head [all of it].
    out_pairing: [pairing].
    target: the target whose kernels to use [the best]. max_target: no better target than this one is considered.

    Raises halyard.Error for arguments that rotate() would refuse.
    """
    return _core.explain((dtype, out_dtype or dtype), (pairing, out_pairing or pairing), head_dim,
                         head_dim if rotary_dim is None else rotary_dim, rotary_offset, inverse, (target, max_target))

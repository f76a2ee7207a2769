"""Angle sources: where cos and sin come from."""

import hashlib
import itertools
import operator
import uuid
import weakref
from collections.abc import Sequence
from typing import Any

from . import _core
from ._frequencies import Frequencies


# Sources by what they are called in PyTorch's operators, which take tensors, numbers and texts alone.
_known: "weakref.WeakValueDictionary[str, _core.AngleSource]" = weakref.WeakValueDictionary()
_numbers = itertools.count(1)
_process = uuid.uuid4().hex[:16]


def find(key: str) -> _core.AngleSource:
    found = _known.get(key)
    if found is None:
        raise _core.Error(f'angles is "{key[:60]}", which is no AngleSource that is alive in this process: make it '
                          "before, and keep it")
    return found


def _told(name: str, doc: str | None = None) -> Any:
    """A property: what the extension's source has under this name."""
    return property(operator.attrgetter(f"_handle.{name}"), doc=doc)


class AngleSource:
    """cos and sin for some frequencies. Made once, shared by all layers and threads; never changes.

    frequencies: what is turned by; not needed any more afterwards.
    kind: "auto", "table" (a row for each position, 4 * rotary_dim bytes) or "phase" (no table). "auto" is a table where
        that takes at most 64 MiB, else phase.
    first, n_positions: which positions are covered [every int32; where just one is said, from 0 on, or up to 2**31 - 1].
    reference: "exact", cos and sin within 1.2e-7 at every position (a table's are correctly rounded); or "hf_f32", a
        table of what transformers computes, for those who have to reproduce its numbers.
    axis_map: ("sections", counts) or ("interleaved", counts), with the pairs of each axis of positions, or ("none", ())
        [what the config told].

    Raises halyard.Error, also where the memory of a table cannot be had.
    """

    def __init__(self, frequencies: Frequencies, kind: str = "auto", *, first: int | None = None,
                 n_positions: int | None = None, reference: str = "exact",
                 axis_map: tuple[str, Sequence[int]] | None = None) -> None:
        if not isinstance(frequencies, Frequencies):
            raise TypeError(f"frequencies is a {type(frequencies).__name__}, not a halyard.Frequencies")
        # The key is the same in every process. Sources that are alike are one while any of them lives.
        how = kind, first, n_positions, reference, axis_map and (axis_map[0], list(axis_map[1]))
        self._key = hashlib.blake2b(repr((frequencies._recipe, how)).encode(), digest_size=16).hexdigest()
        made = _known.get(self._key)
        if made is None:
            made = _known.setdefault(self._key, _core.AngleSource.make(frequencies._handle, *how))
        self._handle = made

    @classmethod
    def given(cls, cos: Any, sin: Any, *, rotary_dim: int | None = None, by_token: bool = False,
              axis_map: tuple[str, Sequence[int]] | None = None) -> "AngleSource":
        """Rows of the caller's own, which are not copied and may be rewritten between calls.

        cos, sin: [n_rows, rotary_dim / 2] of float32, float16 or bfloat16, the last dimension dense; position p reads
            row p. Rows that repeat themselves to rotary_dim are taken too, with rotary_dim given.
        rotary_dim: [twice the columns]
        by_token: the rows are those of a call's tokens, in [batch, tokens] order; such calls have no positions.
        axis_map: as above [one axis]: pair k reads the row of the position that a token has on the pair's axis. Rows
            [axes, tokens, rotary_dim / 2] of some tokens are such a table, too, once their first two dimensions are
            one: token t has the positions t, tokens + t, 2 * tokens + t …
        """
        dim = 2 * int(cos.shape[-1]) if rotary_dim is None else rotary_dim
        return cls._wrap(_core.AngleSource.given(cos, sin, dim, by_token,
                                               axis_map and (axis_map[0], list(axis_map[1]))))

    @classmethod
    def linear(cls, positions: Any, matrix: Any, *, attention_factor: float = 1.0) -> "AngleSource":
        """For positions that need not be integers, as models of images, video and audio have them (DINOv3, LTX, Mochi):
        pair k of a token at positions p turns by sum(p[a] * matrix[a, k] for each axis a), in radians.

        positions: float32 or float64 [axes, tokens], or [axes, batch, tokens] where batch rows differ. The source is for
            calls of just these tokens, which have no positions of their own; it copies what it takes.
        matrix: float32 or float64 [axes, rotary_dim / 2]. Where heads differ, each is a view with a source of its own.

        cos and sin are within 1.2e-7 * attention_factor of those of the exact sum, for angles up to 2**31.
        """
        return cls._wrap(_core.AngleSource.linear(positions, matrix, attention_factor))

    @classmethod
    def _wrap(cls, core: _core.AngleSource) -> "AngleSource":
        """For sources over memory of a process, which have a key that no other one has in any."""
        self = object.__new__(cls)
        self._handle, self._key = core, f"{core.kind} {_process} {next(_numbers)}"
        _known[self._key] = core
        return self

    kind: str = _told("kind", '"table", "phase" or "given": never "auto".')
    rotary_dim: int = _told("rotary_dim")
    first: int = _told("first", "The first position that is covered.")
    last: int = _told("last", "The last position that is covered.")
    n_axes: int = _told("n_axes", "How many axes positions have.")
    n_bytes: int = _told("n_bytes", "Memory that the source owns.")

    def __deepcopy__(self, memo: dict[int, Any]) -> "AngleSource":
        return self  # it never changes

    def __repr__(self) -> str:
        return f"<halyard.AngleSource: {self.kind}, rotary_dim {self.rotary_dim}, {self.first} … {self.last}>"

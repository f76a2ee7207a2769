"""AngleSource: computes or holds cos and sin for each position."""

import hashlib
import itertools
import operator
import uuid
import weakref
from collections.abc import Sequence
from typing import Any

from . import _core
from ._frequencies import Frequencies


# Living sources by the key that names them in halyard.torch's operators, whose arguments cannot be Python objects.
_known: "weakref.WeakValueDictionary[str, _core.AngleSource]" = weakref.WeakValueDictionary()
_numbers = itertools.count(1)
_process = uuid.uuid4().hex[:16]


def find_source(key: str) -> _core.AngleSource:
    found = _known.get(key)
    if found is None:
        raise _core.Error(f'angles is "{key[:60]}", which is no AngleSource that is alive in this process: make it '
                          "before, and keep it")
    return found


def _of_handle(name: str, doc: str | None = None) -> Any:
    """A property that returns the attribute of this name of the extension's source."""
    return property(operator.attrgetter(f"_handle.{name}"), doc=doc)


class AngleSource:
    """cos and sin for some frequencies. Made once, shared by all layers and threads; never changes.

    frequencies: a Frequencies; the source copies what it needs.
    kind: "table" (a row of cos and sin for each position, 4 * rotary_dim bytes), "phase" (no table: computes them in
        each call) or "auto": a table if that takes at most 64 MiB or reference is "hf_f32", else phase.
    first, n_positions: the source covers the n_positions positions from `first` on [every int32 position; if only one
        of the two is given: first is 0, or n_positions reaches to 2**31 - 1].
    reference: "exact": cos and sin are within 1.2e-7 at every position, and correctly rounded in a table. "hf_f32": a
        table with the float32 angles of Hugging Face transformers, to reproduce its results.
    axis_map: ("sections", counts) or ("interleaved", counts), where counts[a] is the number of pairs that read their
        position from axis a (halyard.h defines the maps), or ("none", ()): one axis [the map of the config].

    Raises halyard.Error for arguments out of range, and if there is not enough memory for a table.
    """

    def __init__(self, frequencies: Frequencies, kind: str = "auto", *, first: int | None = None,
                 n_positions: int | None = None, reference: str = "exact",
                 axis_map: tuple[str, Sequence[int]] | None = None) -> None:
        if not isinstance(frequencies, Frequencies):
            raise TypeError(f"frequencies is a {type(frequencies).__name__}, not a halyard.Frequencies")
        # The key is a hash of all arguments, so it is the same in every process. Equal sources share one handle.
        how = kind, first, n_positions, reference, axis_map and (axis_map[0], list(axis_map[1]))
        self._key = hashlib.blake2b(repr((frequencies._recipe, how)).encode(), digest_size=16).hexdigest()
        made = _known.get(self._key)
        if made is None:
            made = _known.setdefault(self._key, _core.AngleSource.make(frequencies._handle, *how))
        self._handle = made

    @classmethod
    def given(cls, cos: Any, sin: Any, *, rotary_dim: int | None = None, by_token: bool = False,
              axis_map: tuple[str, Sequence[int]] | None = None) -> "AngleSource":
        """A source that reads the caller's own rows of cos and sin. It does not copy them: the caller may rewrite them
        between calls, but not during one.

        cos, sin: float32, float16 or bfloat16 [n_rows, rotary_dim / 2], with one dtype, shape and row stride, and a
            dense last dimension; position p reads row p. For rows of rotary_dim columns, as in Hugging Face, pass
            rotary_dim; only the first half of their columns is read.
        rotary_dim: even, 2 … 2**20 [twice the number of columns].
        by_token: there is a row for each token of a call, in [batch, tokens] order. Such calls take no positions.
        axis_map: as for AngleSource [one axis]. Pair k reads the row of the token's position on the pair's axis. Rows
            [axes, tokens, rotary_dim / 2] can be passed as [axes * tokens, rotary_dim / 2], with positions t + a *
            tokens for token t on axis a.

        Raises halyard.Error for other shapes and dtypes, TypeError for objects that are not arrays.
        """
        dim = 2 * int(cos.shape[-1]) if rotary_dim is None else rotary_dim
        return cls._wrap(_core.AngleSource.given(cos, sin, dim, by_token,
                                               axis_map and (axis_map[0], list(axis_map[1]))))

    @classmethod
    def linear(cls, positions: Any, matrix: Any, *, attention_factor: float = 1.0) -> "AngleSource":
        """A source for positions that need not be integers, as in models of images, video and audio (DINOv3, LTX,
        Mochi): pair k of a token at positions p rotates by sum(p[a] * matrix[a, k] for each axis a), in radians.

        positions: float32 or float64 [axes, tokens], or [axes, batch, tokens] if batch rows differ. The source serves
            only calls for these tokens, which then take no positions.
        matrix: float32 or float64 [axes, rotary_dim / 2]. If heads have different matrices, rotate each head by itself,
            as a view of the array, with its own source.
        attention_factor: 2**-60 … 2**60; cos and sin are multiplied by it.

        The source copies what it needs. cos and sin are within 1.2e-7 * attention_factor of those of the exact sum, for
        angles up to 2**31. Raises halyard.Error for other shapes and dtypes, TypeError for objects that are not arrays.
        """
        return cls._wrap(_core.AngleSource.linear(positions, matrix, attention_factor))

    @classmethod
    def _wrap(cls, core: _core.AngleSource) -> "AngleSource":
        """For sources that hold memory of this process: their key is unique among all processes."""
        self = object.__new__(cls)
        self._handle, self._key = core, f"{core.kind} {_process} {next(_numbers)}"
        _known[self._key] = core
        return self

    kind: str = _of_handle("kind", '"table", "phase" or "given": never "auto".')
    rotary_dim: int = _of_handle("rotary_dim", "Elements of a head that are rotated.")
    first: int = _of_handle("first", "The first position that is covered.")
    last: int = _of_handle("last", "The last position that is covered.")
    n_axes: int = _of_handle("n_axes", "The number of axes of a token's position.")
    n_bytes: int = _of_handle("n_bytes", "Bytes of memory that the source owns.")

    def __deepcopy__(self, memo: dict[int, Any]) -> "AngleSource":
        return self  # it never changes

    def __repr__(self) -> str:
        return f"<halyard.AngleSource: {self.kind}, rotary_dim {self.rotary_dim}, {self.first} … {self.last}>"

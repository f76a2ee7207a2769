"""New arrays for outputs, of the library that an input comes from."""

import functools
from collections.abc import Callable
from typing import Any

from . import _core

_LONG_NAMES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2",
               "int8": "int8"}

Finish = Callable[[Any], Any]


def name_of_dtype(dtype: Any) -> Any:
    """A dtype's name, "f16" say, of a dtype of NumPy or PyTorch or of its name there; else what was given."""
    if isinstance(dtype, type):
        name = dtype.__name__
    else:
        name = dtype if isinstance(dtype, str) else str(dtype).removeprefix("torch.")
    return next((short for short, long in _LONG_NAMES.items() if name in (short, long)), name)


@functools.lru_cache(maxsize=256)
def _library_of(kind: Any) -> str:
    for base in kind.__mro__:
        name = f"{base.__module__}.{base.__qualname__}"
        if name == "numpy.ndarray":
            return "numpy"
        if name == "torch.Tensor":
            return "torch"
    return ""


def _new_numpy(like: Any, kind: Any, tail: tuple[int, ...] | None) -> Any:
    import numpy
    if kind in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        import ml_dtypes
        kind = getattr(ml_dtypes, kind)
    return (numpy.empty_like(like, kind, subok=False) if tail is None else
            numpy.empty((*like.shape[:-1], *tail), kind or like.dtype))


def _new_torch(like: Any, kind: Any, tail: tuple[int, ...] | None) -> Any:
    import torch
    kind = kind and getattr(torch, kind)
    return (torch.empty_like(like, dtype=kind) if tail is None else
            torch.empty((*like.shape[:-1], *tail), dtype=kind or like.dtype, device=like.device))


def as_it_is(array: Any) -> Any:
    return array


def new_like(name: str, like: Any, dtype: str | None, tail: tuple[int, ...] | None = None) -> tuple[Any, Finish]:
    """An array like another one, but for its dtype, and what makes of it, once it is filled in, what the caller gets.
    With a tail that takes the place of the last dimension, and the array is dense.

    Arrays of other libraries than NumPy and PyTorch may not be written, so theirs are made from filled memory, without
    a copy; where the library's from_dlpack is not known (by __array_namespace__), the result has __dlpack__ and no
    more.
    """
    if dtype is not None and dtype not in _LONG_NAMES and dtype != "uint8":
        raise _core.Error(f"dtype is {dtype}, which is none of: {', '.join(_LONG_NAMES)}")
    kind = None if dtype is None else _LONG_NAMES.get(dtype, dtype)
    library = _library_of(type(like))
    if library == "numpy":
        return _new_numpy(like, kind, tail), as_it_is
    if library == "torch":
        return _new_torch(like, kind, tail), as_it_is
    made = _core.new_array(like, kind, name, tail)
    if hasattr(like, "__array_namespace__"):
        return made, like.__array_namespace__().from_dlpack
    return made, as_it_is

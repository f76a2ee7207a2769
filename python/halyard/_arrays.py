"""Makes arrays for outputs: PyTorch tensors for PyTorch inputs, NumPy arrays for all others."""

import functools
from typing import Any

from . import _core

_LONG_NAMES = _core.dtypes  # by short name


def name_of_dtype(dtype: Any) -> Any:
    """The short name, such as "f16", of a NumPy or PyTorch dtype or of its long name. An unknown name is returned."""
    name = dtype.__name__ if isinstance(dtype, type) else str(dtype).removeprefix("torch.")
    return next((short for short, long in _LONG_NAMES.items() if name in (short, long)), name)


@functools.lru_cache(maxsize=256)
def _is_torch(kind: Any) -> bool:
    return any((base.__module__, base.__qualname__) == ("torch", "Tensor") for base in kind.__mro__)


def _new_numpy(like: Any, kind: Any, tail: tuple[int, ...] | None) -> Any:
    import numpy
    if not hasattr(like, "shape"):
        like = numpy.from_dlpack(like)
    if kind is not None and not hasattr(numpy, kind):
        import ml_dtypes
        kind = getattr(ml_dtypes, kind)
    return (numpy.empty_like(like, kind, subok=False) if tail is None else
            numpy.empty((*like.shape[:-1], *tail), kind or like.dtype))


def _new_torch(like: Any, kind: Any, tail: tuple[int, ...] | None) -> Any:
    import torch
    kind = kind and getattr(torch, kind)
    return (torch.empty_like(like, dtype=kind) if tail is None else
            torch.empty((*like.shape[:-1], *tail), dtype=kind or like.dtype, device=like.device))


def new_like(name: str, like: Any, dtype: str | None, tail: tuple[int, ...] | None = None) -> Any:
    """A new array with the shape and dimension order of `like`. dtype: None for that of `like`. If `tail` is given, it
    replaces the last dimension, and the array is in row-major order. `name` is what errors call `like`."""
    if not hasattr(like, "__dlpack__"):
        raise TypeError(f"{name} is a {type(like).__name__}, not an array with __dlpack__ (as numpy.asarray makes one)")
    if dtype is not None and dtype not in _LONG_NAMES and dtype != "uint8":
        raise _core.Error(f"dtype is {dtype}, which is none of: {', '.join(_LONG_NAMES)}")
    kind = None if dtype is None else _LONG_NAMES.get(dtype, dtype)
    return (_new_torch if _is_torch(type(like)) else _new_numpy)(like, kind, tail)

"""Halyard in vLLM on CPUs: a plug-in, which vLLM loads through the entry point `vllm.general_plugins`.

The environment variable HALYARD_VLLM selects what it does:

    off      nothing
    fused    one operator does norm, rotation, the store into vLLM's paged cache, and attention, for the attention
             classes in fused.KNOWN; this is the default

If the plug-in cannot serve a layer or this machine, it logs the reason once in vLLM's log, and vLLM's own code runs.
"""

import collections
import logging
import os

from .._calls import convert
from .._core import Error

MODES = ("off", "fused")
DEFAULT = "fused"

logger = logging.getLogger("vllm.halyard")  # below "vllm", so that vLLM's logging settings apply

counts: collections.Counter[tuple[str, str]] = collections.Counter()
"""The number of layers that this process has made, by (class, "fused" or the reason why Halyard does not serve it)."""

_logged: set[str] = set()


def log_once(message: str, *, level: int = logging.WARNING) -> None:
    if message not in _logged:
        _logged.add(message)
        logger.log(level, message)


def leave_to_vllm(kind: str, reason: str) -> None:
    """Counts a layer of class `kind` that Halyard does not serve, and logs the reason once."""
    counts[kind, reason] += 1
    log_once(f"Halyard leaves {kind} to vLLM: {reason}")


def why_not(mode: str) -> str | None:
    """The reason why the plug-in cannot work in this process; None if it can."""
    if mode not in MODES:
        return f'HALYARD_VLLM is "{mode}", which is none of: {", ".join(MODES)}'
    try:
        from vllm.platforms import current_platform
    except ImportError as error:
        return f"vLLM cannot be imported ({error}), which the plug-in is for"
    if not current_platform.is_cpu():
        return f"vLLM runs on {current_platform.device_type}, and the plug-in is for CPUs"
    import torch
    try:  # the KV path has no portable kernels: every run fails without AVX2 or NEON, or if HALYARD_TARGET forbids it
        convert(torch.zeros(1, 1, 2), dtype="f16")
    except Error as error:
        return str(error)
    return None


def register() -> None:
    """The entry point: vLLM calls it in each of its processes, sometimes twice."""
    mode = os.environ.get("HALYARD_VLLM") or DEFAULT
    if mode == "off":
        return
    if reason := why_not(mode):
        log_once(f"Halyard does nothing: {reason}")
        return
    try:
        from . import fused
        fused.install()
    except (ImportError, AttributeError) as error:
        log_once(f"Halyard does nothing: this vLLM is not as the plug-in knows it ({error})")

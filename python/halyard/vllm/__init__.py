"""Halyard in vLLM on CPUs: a plug-in, which vLLM loads by the entry point `vllm.general_plugins`.

The environment variable HALYARD_VLLM says what it does:

    off      nothing
    fused    norm, rotation, the store into vLLM's paged cache, and attention are one operator, in models that are known;
             this is the default

What cannot be done is said in one sentence of vLLM's log, and then vLLM goes on as if the plug-in were not there.
"""

import collections
import logging
import os

from .._calls import convert
from .._core import Error

MODES = ("off", "fused")
DEFAULT = "fused"

logger = logging.getLogger("vllm.halyard")  # vLLM's own settings reach it there

counts: collections.Counter[tuple[str, str]] = collections.Counter()
"""How many layers of which class this process has made: (class, "fused" or why it is left)."""

_said: set[str] = set()


def say_once(sentence: str, *, level: int = logging.WARNING) -> None:
    if sentence not in _said:
        _said.add(sentence)
        logger.log(level, sentence)


def left(kind: str, reason: str) -> None:
    """Counts a layer that stays vLLM's, and names it once."""
    counts[kind, reason] += 1
    say_once(f"Halyard leaves {kind} to vLLM: {reason}")


def why_not(mode: str) -> str | None:
    """Why the plug-in does nothing, in one sentence."""
    if mode not in MODES:
        return f'HALYARD_VLLM is "{mode}", which is none of: {", ".join(MODES)}'
    try:
        from vllm.platforms import current_platform
    except ImportError as error:
        return f"vLLM cannot be imported ({error}), which the plug-in is for"
    if not current_platform.is_cpu():
        return f"vLLM runs on {current_platform.device_type}, and the plug-in is for CPUs"
    import torch
    try:  # stages have no portable loops: a CPU without kernels, or the environment, would fail every run
        convert(torch.zeros(1, 1, 2), dtype="f16")
    except Error as error:
        return str(error)
    return None


def register() -> None:
    """What vLLM calls in each of its processes, perhaps twice."""
    mode = os.environ.get("HALYARD_VLLM") or DEFAULT
    if mode == "off":
        return
    if reason := why_not(mode):
        say_once(f"Halyard does nothing: {reason}")
        return
    try:
        from . import fused
        fused.install()
    except (ImportError, AttributeError) as error:
        say_once(f"Halyard does nothing: this vLLM is not as the plug-in knows it ({error})")

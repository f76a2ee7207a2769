"""vLLM's rotary layers with Halyard's kernels, in place, by the layers' own tables: the bits of vLLM's own operator in
float16, and in bfloat16 where vLLM rounds: without AVX-512's bf16 instructions it cuts off."""

import importlib
import inspect
import pkgutil
from typing import Any

import torch
from vllm.model_executor.custom_op import op_registry_oot
from vllm.model_executor.layers import rotary_embedding
from vllm.model_executor.layers.rotary_embedding.base import RotaryEmbedding

from .. import AngleSource, prepare
from . import counts

Tensor = torch.Tensor

# (table's memory, head_dim, pairing) -> (the table, what turns so many heads). Tables are few, and live as long.
_turns: dict[tuple[int, int, bool], tuple[Tensor, dict[int, Any]]] = {}


def _turn(table: Tensor, head_dim: int, is_neox: bool, x: Tensor, positions: Tensor) -> None:
    key = table.data_ptr(), head_dim, is_neox
    if key not in _turns:
        if len(_turns) > 64:
            _turns.clear()
        _turns[key] = table, {}
    known = _turns[key][1]
    flat = x if x.dim() == 2 else x.view(x.shape[0], -1)
    heads = flat.shape[1] // head_dim
    if heads not in known:
        known[heads] = prepare((heads,), head_dim, angles=AngleSource.given(*table.chunk(2, dim=-1)), threads=0,
                               pairing="half" if is_neox else "interleaved")
    known[heads](flat, positions)


def _rotate(positions: Tensor, query: Tensor, key: Tensor | None, table: Tensor, head_dim: int, is_neox: bool) -> None:
    positions = positions.flatten()
    _turn(table, head_dim, is_neox, query, positions)
    if key is not None:
        _turn(table, head_dim, is_neox, key, positions)


_library = torch.library.Library("halyard", "FRAGMENT")
_library.define("vllm_rotate(Tensor positions, Tensor(a!) query, Tensor(b!)? key, Tensor table, int head_dim, "
                "bool is_neox) -> ()", tags=[torch.Tag.pt2_compliant_tag])
_library.impl("vllm_rotate", _rotate, "CPU")
torch.library.register_fake("halyard::vllm_rotate", lambda *_: None, lib=_library)


def known_classes() -> list[Any]:
    """The classes whose operator is RotaryEmbedding's, whatever table they make."""
    modules = [importlib.import_module(f"{rotary_embedding.__name__}.{module.name}")
               for module in pkgutil.iter_modules(rotary_embedding.__path__)]
    found = {kind for module in modules for _, kind in inspect.getmembers(module, inspect.isclass)
             if issubclass(kind, RotaryEmbedding) and kind.forward_cpu is RotaryEmbedding.forward_cpu
             and kind.forward_native is RotaryEmbedding.forward_native}
    return sorted(found, key=lambda kind: kind.__name__)


def _ours(kind: Any) -> Any:
    """A class that takes the place of one of vLLM's."""
    stock_init = kind.__init__

    def init(self: Any, *args: Any, **others: Any) -> None:
        stock_init(self, *args, **others)
        counts[kind.__name__, "rotary"] += 1

    def forward_cpu(self: Any, positions: Tensor, query: Tensor,
                    key: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        table = self._match_cos_sin_cache_dtype(query)
        turn = torch.ops.halyard.vllm_rotate if torch.compiler.is_compiling() else _rotate
        turn(positions, query, key, table, self.head_size, self.is_neox_style)
        return query, key

    return type(f"Halyard{kind.__name__}", (kind,), {"__init__": init, "forward_cpu": forward_cpu})


OURS = {kind: _ours(kind) for kind in known_classes()}


def install() -> None:
    if RotaryEmbedding.__name__ in op_registry_oot:
        return
    for kind, ours in OURS.items():
        name = kind.name
        kind.register_oot(ours)
        ours.name = name  # by which custom_ops switches it, as vLLM's

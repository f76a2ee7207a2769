"""Replaces vLLM's attention layers: norms, rotation, the store into the cache, and attention become one operator."""

import functools
import importlib
import inspect
import logging
from types import SimpleNamespace
from typing import Any

import torch
from vllm import _custom_ops
from vllm.config import get_current_vllm_config
from vllm.model_executor.layers.attention.attention import get_attention_context
from vllm.model_executor.layers.layernorm import GemmaRMSNorm, RMSNorm
from vllm.model_executor.layers.rotary_embedding.base import RotaryEmbedding
from vllm.v1.attention.backend import AttentionType
from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend, CPUAttentionBackendImpl
from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend

from .. import AngleSource, Cache, CacheLayout, Norm, prepare
from .. import Tensor as Heads
from . import counts, leave_to_vllm, log_once

Tensor = torch.Tensor

# vLLM's attention classes that the plug-in replaces, with their files. Their forward calls qkv_proj, norms q and k of
# each head if it has norms, and then calls rotary_emb, attn and o_proj. Subclasses with their own forward keep it.
KNOWN = {"LlamaAttention": "llama", "MistralAttention": "mistral", "Qwen2Attention": "qwen2", "Qwen3Attention": "qwen3",
         "Gemma3Attention": "gemma3"}
# The names in the forward methods that are replaced: every method uses all names of _USED, and some also use names of
# _USED_BY_SOME. _ATTENTION: the parameters of vLLM's attention function. _compare refuses a vLLM whose code uses other
# names, because it may compute something else.
_USED = set("qkv_proj split q_size kv_size rotary_emb attn o_proj".split())
_USED_BY_SOME = set("view shape flatten unflatten num_heads num_kv_heads head_dim qk_norm q_norm k_norm "
                    "do_llama_4_scaling _get_llama_4_attn_scale to dtype".split())
_ATTENTION = ("query key_cache value_cache output query_start_loc seq_lens scale causal alibi_slopes sliding_window "
              "block_table softcap scheduler_metadata s_aux dynamic_causal k_scale v_scale kv_cache_dtype").split()
# The layouts of k and of v in a block of b slots, with heads of d elements, by vLLM's name of the instruction set.
_LAYOUTS = {
    "vec": lambda b, d: (dict(stride_token=1, tile_elements=1, stride_tile_elements=b), dict(stride_token=d)),
    "amx": lambda b, d: (
        dict(tile_tokens=16, stride_tile_tokens=16 * d, stride_token=2, tile_elements=2, stride_tile_elements=32),
        dict(tile_tokens=2, stride_tile_tokens=32, stride_token=1, tile_elements=16, stride_tile_elements=16 * b,
             stride_element=2)),
}
_LAYOUTS["vec16"] = _LAYOUTS["vec"]


class KvPath:
    """Norms and rotates q and k of one layer, and stores k and v in its cache."""

    def __init__(self, module: Any, kv_cache: Tensor, isa: str) -> None:
        n_blocks, n_heads, block_size, _ = kv_cache.shape
        head_dim = module.head_dim
        self.kv_cache = kv_cache
        self.k_cache, self.v_cache = kv_cache.view(n_blocks, n_heads, 2 * block_size, -1).chunk(2, dim=2)
        elements = kv_cache.view(-1)
        common = dict(n_slots=n_blocks * block_size, block_size=block_size, stride_block=kv_cache.stride(0),
                      stride_head=kv_cache.stride(1))
        k_layout, v_layout = (CacheLayout(**common, **own) for own in _LAYOUTS[isa](block_size, head_dim))
        q_norm, k_norm = (_norm_of(getattr(module, name, None)) for name in ("q_norm", "k_norm"))
        self.run = prepare(
            Heads(module.num_heads, norm=q_norm),
            Heads(module.num_kv_heads, norm=k_norm, cache=Cache(elements, k_layout)),
            Heads(module.num_kv_heads, cache=Cache(elements[block_size * head_dim:], v_layout)),
            head_dim=head_dim, angles=_source_of(module.rotary_emb),
            pairing="half" if module.rotary_emb.is_neox_style else "interleaved", duplicate_slots="last")


def _source_of(rotary: Any) -> AngleSource:
    """The angle source of a rotary layer: it reads the layer's own table, [positions, cos | sin]."""
    table = rotary.cos_sin_cache
    held = rotary.__dict__.get("_halyard_source")
    if held is None or held[0] is not table:  # vLLM makes a new table when q's dtype changes
        held = rotary.__dict__["_halyard_source"] = table, AngleSource.given(*table.chunk(2, dim=-1))
    source: AngleSource = held[1]
    return source


def _norm_of(module: Any) -> Norm | None:
    if module is None:
        return None
    return Norm(module.weight.detach(), module.variance_epsilon, unit_offset=isinstance(module, GemmaRMSNorm))


def _is_plain(rotary: Any) -> bool:
    """Whether a rotary layer only rotates q and k by the rows of its table."""
    return isinstance(rotary, RotaryEmbedding) and type(rotary).forward_native is RotaryEmbedding.forward_native


def _why_not(module: Any) -> str | None:
    """The reason why Halyard does not serve an attention layer; None if it does."""
    config = get_current_vllm_config()
    rotary, attention = module.rotary_emb, module.attn
    impl = getattr(attention, "impl", None)
    norms = [getattr(module, name) for name in ("q_norm", "k_norm") if getattr(module, name, None) is not None]
    for wrong, reason in (
            (config.lora_config is not None, "LoRA is on"),
            (config.kv_transfer_config is not None, "a KV connector is on"),
            (config.speculative_config is not None, "speculative decoding is on"),
            (config.parallel_config.world_size > 1, "it runs in parallel"),
            (type(impl) is not HalyardAttentionImpl, "its attention is another backend's"),
            (getattr(impl, "attn_type", None) != AttentionType.DECODER, "its attention is no decoder's"),
            (getattr(module, "dual_chunk_attention_config", None) is not None, "it attends in two chunks"),
            (getattr(module, "do_llama_4_scaling", False), "it scales q by position"),
            (not _is_plain(rotary), f"{type(rotary).__name__} is not known"),
            (any(type(norm) not in (RMSNorm, GemmaRMSNorm) or norm.weight.shape != (module.head_dim,)
                 or getattr(norm, "variance_size_override", None) is not None for norm in norms),
             "its norm is not known"),
            (getattr(impl, "kv_sharing_target_layer_name", None) is not None, "it shares another layer's cache"),
            (getattr(impl, "is_fp8_kv_cache", False), "its cache is fp8, which vLLM cuts off and Halyard rounds")):
        if wrong:
            return reason
    return None


class HalyardAttentionImpl(CPUAttentionBackendImpl):
    """vLLM's CPU attention, with attend(), which starts from the output of the QKV projection."""

    module: Any = None  # the model's attention layer, if Halyard serves it
    kv_path: KvPath | None = None
    is_known = False  # whether the layer is of a class in KNOWN

    def __init__(self, *args: Any, **others: Any) -> None:
        super().__init__(*args, **others)
        model = get_current_vllm_config().model_config
        self.model = "a model" if model is None else model.architectures[0]

    def process_weights_after_loading(self, act_dtype: torch.dtype) -> None:
        super().process_weights_after_loading(act_dtype)
        self.kv_path = None  # its norms may have new weights
        if not self.is_known:
            leave_to_vllm(f"the attention of {self.model}", "it is not known")

    def attend(self, attention: Any, qkv: Tensor, positions: Tensor, kv_cache: Tensor, metadata: Any,
               slots: Tensor) -> Tensor:
        output = qkv.new_empty((qkv.shape[0], self.num_heads * self.head_size))
        if metadata is None:  # vLLM's profiling run, which has no cache and only measures memory
            return output
        path = self.kv_path
        if path is None or path.kv_cache is not kv_cache:
            path = self.kv_path = KvPath(self.module, kv_cache, attention.isa)
        n = metadata.num_actual_tokens
        if n != qkv.shape[0]:
            qkv, positions, slots = qkv[:n], positions[:n], slots[:n]
        q = qkv.new_empty((n, self.num_heads, self.head_size))
        path.run(qkv, positions, slots, q.view(n, -1))
        torch.ops._C.cpu_attention_with_kv_cache(
            q, path.k_cache, path.v_cache, output[:n].view(n, self.num_heads, self.head_size), metadata.query_start_loc,
            metadata.seq_lens, self.scale, metadata.causal, self.alibi_slopes, self.sliding_window,
            metadata.block_table, self.logits_soft_cap, metadata.scheduler_metadata, self.sinks,
            metadata.dynamic_causal, attention._k_scale_float, attention._v_scale_float, self.kv_cache_dtype)
        return output


class HalyardAttentionBackend(CPUAttentionBackend):
    @staticmethod
    def get_impl_cls() -> type[CPUAttentionBackendImpl]:
        return HalyardAttentionImpl


def _attend(qkv: Tensor, positions: Tensor, name: str, columns: int) -> Tensor:
    metadata, attention, kv_cache, slots = get_attention_context(name)
    return attention.impl.attend(attention, qkv, positions, kv_cache, metadata, slots)


_library = torch.library.Library("halyard", "FRAGMENT")
_library.define("vllm_attend(Tensor qkv, Tensor positions, str name, int columns) -> Tensor",
                tags=[torch.Tag.pt2_compliant_tag])
_library.impl("vllm_attend", _attend, "CPU")
torch.library.register_fake("halyard::vllm_attend",
                            lambda qkv, positions, name, columns: qkv.new_empty((qkv.shape[0], columns)), lib=_library)


def _replace(kind: Any) -> None:
    """Replaces __init__ and forward of a vLLM attention class, so that each layer decides whether Halyard serves it."""
    stock_init, stock_forward = kind.__init__, kind.__dict__["forward"]

    def init(self: Any, *args: Any, **others: Any) -> None:
        stock_init(self, *args, **others)
        # Leave a subclass alone that has its own forward. If the subclass is in KNOWN as well, this call comes from the
        # subclass's replaced init, which then decides whether Halyard serves the layer.
        if type(self).forward is not forward:
            return
        impl = getattr(self.attn, "impl", None)
        if reason := _why_not(self):
            leave_to_vllm(type(self).__name__, reason)
        else:
            counts[type(self).__name__, "fused"] += 1
            self.halyard = True
            impl.module = self
        if isinstance(impl, HalyardAttentionImpl):
            impl.is_known = True

    @functools.wraps(stock_forward)
    def forward(self: Any, positions: Tensor, hidden_states: Tensor, **others: Any) -> Tensor:
        if not self.halyard:
            return stock_forward(self, positions, hidden_states, **others)
        qkv, _ = self.qkv_proj(hidden_states)
        attend = torch.ops.halyard.vllm_attend if torch.compiler.is_compiling() else _attend
        output, _ = self.o_proj(attend(qkv, positions, self.attn.layer_name, self.q_size))
        return output

    kind.halyard = False
    kind.__init__, kind.forward = init, forward


def _compare(kinds: list[Any]) -> None:
    """Raises ImportError if this vLLM differs from the one that the plug-in was written for: in the names that the
    replaced forwards use, in the parameters of its attention function, or in its cache layouts."""
    for kind in kinds:
        names = set(inspect.unwrap(kind.__dict__["forward"]).__code__.co_names)
        if odd := (_USED - names) | (names - _USED - _USED_BY_SOME):
            raise ImportError(f"{kind.__name__}.forward differs in {', '.join(sorted(odd))}")
    if (names := [*inspect.signature(_custom_ops.cpu_attention_with_kv_cache).parameters]) != _ATTENTION:
        raise ImportError(f"cpu_attention_with_kv_cache takes {', '.join(names)}")
    qkv, slots = torch.arange(3 * 6 * 64).remainder(251).view(3, 6, 64).bfloat16(), torch.tensor([40, 5, 33])
    table = torch.tensor([[1.0, 0.0]]).repeat_interleave(32, 1).bfloat16()  # cos 1, sin 0: rotates by 0
    module = SimpleNamespace(num_heads=2, num_kv_heads=2, head_dim=64,
                             rotary_emb=SimpleNamespace(cos_sin_cache=table, is_neox_style=True))
    for isa in ("vec", "vec16", *["amx"] * torch.cpu._is_amx_tile_supported()):
        ours, theirs = torch.zeros(2, 2, 2, 32, 2 * 64).bfloat16()
        q, k, v = qkv.chunk(3, 1)
        KvPath(module, ours, isa).run(qkv.view(3, -1), 0 * slots, slots, torch.empty_like(q).view(3, -1))
        _custom_ops.cpu_attn_reshape_and_cache(k, v, *theirs.view(2, 2, 64, 64).chunk(2, 2), slots, isa)
        if not torch.equal(ours, theirs):
            raise ImportError(f"its caches for {isa} have another layout")


def install() -> None:
    kinds = [getattr(importlib.import_module(f"vllm.model_executor.models.{file}"), name)
             for name, file in KNOWN.items()]
    if hasattr(kinds[0], "halyard"):
        return
    _compare(kinds)
    register_backend(AttentionBackendEnum.CPU_ATTN, f"{__name__}.{HalyardAttentionBackend.__qualname__}")
    for kind in kinds:
        _replace(kind)
    log_once("Halyard serves the attention of " + ", ".join(KNOWN), level=logging.INFO)

"""The bytes of vLLM's cache, in every layout, and how sequences share it: prefixes, chunked prompts, preemption."""

import ctypes
from types import SimpleNamespace
from unittest.mock import Mock

import models
import pytest
import test_fused
import torch
from test_fused import check


@pytest.mark.parametrize("model", ["llama", "qwen2"])
def test_caches_of_a_model(pair, model):
    theirs, ours = pair(model)
    prompts = models.prompts(3, 64, 45)
    for engine in theirs, ours:
        models.generate(engine, prompts)
    for x, y in zip(models.caches_of(theirs), models.caches_of(ours)):
        assert torch.equal(x, y) and x.any()


N_Q, N_KV, HEAD_DIM, BLOCK = 4, 2, 64, 32


def run_path(fused, table, isa, qkv, slots):
    """Runs a KvPath on qkv, with token i at position i, and returns (the cache, the rotated q)."""
    rotary = SimpleNamespace(cos_sin_cache=table, is_neox_style=True)
    module = SimpleNamespace(num_heads=N_Q, num_kv_heads=N_KV, head_dim=HEAD_DIM, rotary_emb=rotary)
    cache = torch.zeros(32, N_KV, BLOCK, 2 * HEAD_DIM, dtype=qkv.dtype)
    q = torch.empty(len(qkv), N_Q * HEAD_DIM, dtype=qkv.dtype)
    fused.KvPath(module, cache, isa).run(qkv, torch.arange(len(qkv)), slots, q)
    return cache, q


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("isa", ["amx", "vec", "vec16"])
def test_layouts(fused, isa, dtype):
    """vLLM's operator and a KvPath that rotates by 0 fill a cache with the same bytes; some tokens have no slot."""
    if isa == "amx" and (dtype != torch.bfloat16 or not torch.cpu._is_amx_tile_supported()):
        pytest.skip("AMX is for bfloat16, on machines that have it")
    random = torch.Generator().manual_seed(1)
    n = 77
    table = torch.cat((torch.ones(n, HEAD_DIM // 2), torch.zeros(n, HEAD_DIM // 2)), dim=1).to(dtype)
    qkv = torch.randn(n, (N_Q + 2 * N_KV) * HEAD_DIM, generator=random).to(dtype)
    slots = torch.randperm(6 * BLOCK, generator=random)[:n]
    slots[::9] = -1
    ours, q = run_path(fused, table, isa, qkv, slots)
    theirs = torch.zeros_like(ours)
    k_cache, v_cache = theirs.view(-1, N_KV, 2 * BLOCK, HEAD_DIM).chunk(2, dim=2)
    own_q, k, v = qkv.view(n, -1, HEAD_DIM).split((N_Q, N_KV, N_KV), dim=1)
    torch.ops._C.cpu_attn_reshape_and_cache(k, v, k_cache, v_cache, slots, isa, 1.0, 1.0, "auto")
    assert torch.equal(ours, theirs) and torch.equal(q.view_as(own_q), own_q)


def test_openmps_threads(fused):
    """One and two OpenMP threads give the same bits for a prompt that is large enough for several tasks."""
    n = 1024
    table, qkv = torch.randn(n, HEAD_DIM), torch.randn(n, (N_Q + 2 * N_KV) * HEAD_DIM)
    openmp = ctypes.CDLL(None)
    results = []
    for n_threads in 1, 2:
        openmp.omp_set_num_threads(n_threads)
        results.append(run_path(fused, table, "vec", qkv, torch.arange(n)))
    openmp.omp_set_num_threads(1)
    assert all(map(torch.equal, *results))


@pytest.mark.parametrize("model", ["llama", "gemma3_text"])
def test_a_prefix_that_is_cached(pair, model):
    theirs, ours = pair(model, enable_prefix_caching=True)
    begin = models.prompts(160)[0]
    for _ in range(2):
        check(theirs, ours, [begin + more for more in models.prompts(5, 40)], test_fused.BOUNDS.get(model, 0))


def test_a_prompt_in_chunks(pair):
    check(*pair("llama", max_num_batched_tokens=64, enable_chunked_prefill=True), models.prompts(200, 7, 130), 0)


def test_preemption(pair):
    """When the cache is full, vLLM preempts sequences and later computes them again; the results stay the same."""
    engines = pair("llama", num_gpu_blocks_override=8, max_model_len=160, block_size=32)
    schedulers = [engine.llm_engine.engine_core.engine_core.scheduler for engine in engines]
    for scheduler in schedulers:
        scheduler._preempt_request = Mock(wraps=scheduler._preempt_request)
    expected, found = (models.generate(engine, models.prompts(60, 61, 62, 63), 60) for engine in engines)
    assert expected == found
    assert all(scheduler._preempt_request.called for scheduler in schedulers)

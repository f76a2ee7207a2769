"""What lies in vLLM's cache, and the ways by which sequences come to share it."""

import models
import pytest
import test_fused
import torch
from test_fused import check

ISAS = ["amx", "vec", "vec16"]


@pytest.mark.parametrize("model", ["llama", "qwen2"])
def test_caches_of_a_model(pair, model):
    theirs, ours = pair(model)
    prompts = models.prompts(3, 64, 45)
    for engine in theirs, ours:
        models.generate(engine, prompts)
    for x, y in zip(models.caches_of(theirs), models.caches_of(ours)):
        assert torch.equal(x, y) and x.any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("isa", ISAS)
def test_layouts(fused, isa, dtype):
    """Each layout, filled by vLLM's own operator and by a rotation by nothing, some tokens without a slot."""
    from types import SimpleNamespace
    if isa == "amx" and (dtype != torch.bfloat16 or not torch.cpu._is_amx_tile_supported()):
        pytest.skip("AMX is for bfloat16, on machines that have it")
    random = torch.Generator().manual_seed(1)
    n, n_q, n_kv, head_dim, block = 77, 4, 2, 64, 32
    table = torch.cat((torch.ones(n, head_dim // 2), torch.zeros(n, head_dim // 2)), dim=1).to(dtype)
    rotary = SimpleNamespace(cos_sin_cache=table, is_neox_style=True)
    module = SimpleNamespace(num_heads=n_q, num_kv_heads=n_kv, head_dim=head_dim, rotary_emb=rotary)
    qkv = torch.randn(n, (n_q + 2 * n_kv) * head_dim, generator=random).to(dtype)
    slots = torch.randperm(6 * block, generator=random)[:n]
    slots[::9] = -1
    caches = [torch.zeros(6, n_kv, block, 2 * head_dim, dtype=dtype) for _ in range(2)]
    road = fused.Road(module, caches[0], isa)
    q = torch.empty(n, n_q * head_dim, dtype=dtype)
    road.run(qkv, torch.arange(n), slots, q)
    k_cache, v_cache = caches[1].view(6, n_kv, 2 * block, head_dim).chunk(2, dim=2)
    own_q, k, v = qkv.view(n, -1, head_dim).split((n_q, n_kv, n_kv), dim=1)
    torch.ops._C.cpu_attn_reshape_and_cache(k, v, k_cache, v_cache, slots, isa, 1.0, 1.0, "auto")
    assert torch.equal(caches[0], caches[1]) and torch.equal(q.view_as(own_q), own_q)


@pytest.mark.parametrize("model", ["llama", "gemma3_text"])
def test_a_prefix_that_is_cached(pair, model):
    theirs, ours = pair(model, enable_prefix_caching=True)
    begin = models.prompts(160)[0]
    for _ in range(2):
        check(theirs, ours, [begin + more for more in models.prompts(5, 40)], test_fused.BOUNDS.get(model, 0))


def test_a_prompt_in_chunks(pair):
    check(*pair("llama", max_num_batched_tokens=64, enable_chunked_prefill=True), models.prompts(200, 7, 130), 0)


def test_preemption(pair):
    """Sequences that find no room are thrown out, and come again."""
    theirs, ours = pair("llama", num_gpu_blocks_override=8, max_model_len=160, block_size=32)
    prompts = models.prompts(60, 61, 62, 63)
    seen = [models.count_preemptions(engine) for engine in (theirs, ours)]
    expected, found = (models.generate(engine, prompts, 60) for engine in (theirs, ours))
    assert expected == found
    assert all(count() > 0 for count in seen)

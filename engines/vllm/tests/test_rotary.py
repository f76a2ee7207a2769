"""Every rotary class of vLLM's that is replaced, against its own operator to the bit, and against forward_native."""

import models
import pytest
import torch

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 256}
# What get_rope makes each class of: rope_parameters.
CLASSES = {
    "RotaryEmbedding": {"rope_type": "default"},
    "LinearScalingRotaryEmbedding": {"rope_type": "linear", "factor": 4.0},
    "NTKScalingRotaryEmbedding": {"rope_type": "ntk", "factor": 4.0},
    "DynamicNTKScalingRotaryEmbedding": {"rope_type": "dynamic", "factor": 2.0},
    "DynamicNTKAlphaRotaryEmbedding": {"rope_type": "dynamic", "alpha": 1000.0},
    "YaRNScalingRotaryEmbedding": YARN,
    "Llama3RotaryEmbedding": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                              "original_max_position_embeddings": 256},
    "Gemma4RotaryEmbedding": {"rope_type": "proportional", "partial_rotary_factor": 0.25},
}
N_TOKENS, HEADS, KV_HEADS = 37, 4, 2
EPS = {torch.float32: 2.0 ** -23, torch.float16: 2.0 ** -10, torch.bfloat16: 2.0 ** -7}


def are_vllms_bits(found, expected):
    """Also where vLLM cuts off: to the next number towards zero, whose bits count one less, or to the same."""
    if found.dtype != torch.bfloat16 or models.ROUNDS_BFLOAT16:
        return torch.equal(found, expected)
    less = found.view(torch.int16) - expected.view(torch.int16)
    return bool(((less == 0) | (less == 1)).all())


@pytest.fixture(scope="module")
def rotary():
    from halyard.vllm import rotary
    return rotary


@pytest.fixture
def make(rotary):
    """get_rope of a class, vLLM's and ours."""
    from vllm.config import CompilationConfig, VllmConfig, set_current_vllm_config
    from vllm.model_executor import custom_op
    from vllm.model_executor.layers import rotary_embedding

    def make(name, dtype, head_dim, is_neox):
        made = []
        for ours in False, True:
            custom_op.op_registry_oot.clear()
            if ours:
                rotary.install()
            rotary_embedding._ROPE_DICT.clear()
            config = VllmConfig(compilation_config=CompilationConfig(custom_ops=["all"]))
            with set_current_vllm_config(config):
                made.append(rotary_embedding.get_rope(head_dim, 1024, is_neox, {"rope_theta": 1e4, **CLASSES[name]},
                                                      dtype))
        custom_op.op_registry_oot.clear()
        rotary_embedding._ROPE_DICT.clear()
        return made
    return make


def test_all_that_are_known_are_tested(rotary):
    assert {kind.__name__ for kind in rotary.OURS} == set(CLASSES)


@pytest.mark.parametrize("dtype", list(EPS))
@pytest.mark.parametrize("name", CLASSES)
def test_class(make, name, dtype):
    random = torch.Generator().manual_seed(1)
    for head_dim, is_neox, packed in ((64, True, True), (128, False, True), (96, True, False), (128, True, False)):
        theirs, ours = make(name, dtype, head_dim, is_neox)
        assert type(theirs).__name__ == name and type(ours).__name__ == f"Halyard{name}"
        positions = torch.randint(0, 256, (N_TOKENS,), generator=random)
        columns = (HEADS * head_dim, KV_HEADS * head_dim, KV_HEADS * head_dim)
        x = torch.randn(N_TOKENS, sum(columns), generator=random).to(dtype)
        parts = [x.clone().split(columns, dim=1)[:2] for _ in range(3)]
        if not packed:  # in two dimensions, of which vLLM's own takes the heads from
            parts = [[part.contiguous() for part in each] for each in parts]
        native = theirs.forward_native(positions, *parts[0])
        expected = theirs.forward(positions, *parts[1])
        found = ours.forward(positions, *parts[2])
        for i in range(2):
            assert found[i].data_ptr() == parts[2][i].data_ptr()
            # forward_native rounds products, and a pair may cancel: of its length 3 roundings at most.
            length = parts[2][i].float().reshape(N_TOKENS, -1, head_dim).norm(dim=-1, keepdim=True)
            off = (found[i].float() - native[i].float()).abs().reshape(N_TOKENS, -1, head_dim)
            assert (off <= 3 * EPS[dtype] * length).all()
            if dtype == torch.float32:  # one of them adds products by fma
                assert ((found[i] - expected[i]).abs().reshape(N_TOKENS, -1, head_dim) <= 2 * EPS[dtype] * length).all()
            else:
                assert are_vllms_bits(found[i], expected[i])


@pytest.mark.parametrize("rotary_dim", [24, 120])
def test_widths_that_end_vllms_own(make, rotary, rotary_dim):
    table = torch.randn(16, rotary_dim).bfloat16()
    q = torch.randn(5, 2 * 128).bfloat16()
    turned = q.clone()
    rotary._rotate(torch.arange(5), turned, None, table, 128, True)
    x, y = q.float().view(5, 2, 128)[..., :rotary_dim].chunk(2, dim=-1)
    cos, sin = table[:5, None].float().chunk(2, dim=-1)
    expected = torch.cat((x * cos - y * sin, x * sin + y * cos), dim=-1)
    assert torch.allclose(turned.view(5, 2, 128)[..., :rotary_dim].float(), expected, rtol=2 ** -8, atol=1e-2)
    assert torch.equal(turned.view(5, 2, 128)[..., rotary_dim:], q.view(5, 2, 128)[..., rotary_dim:])


def test_q_alone(make):
    theirs, ours = make("RotaryEmbedding", torch.bfloat16, 64, True)
    q = torch.randn(3, 128).bfloat16()
    positions = torch.tensor([4, 0, 9])
    expected, none = theirs.forward(positions, q.clone())
    found, own_none = ours.forward(positions, q.clone())
    assert none is None and own_none is None and are_vllms_bits(found, expected)

"""Patched models give the logits, tokens, gradients and compiled graphs of stock ones; other models are refused."""

import copy
import sys
import warnings

import pytest

import halyard

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
import small_models  # noqa: E402
from halyard.transformers import _rotary_embeddings, patch, unpatch  # noqa: E402

EPS = 2.0 ** -23
N_BATCH, N_TOKENS = 2, 12


def logits_bound(model, logits):
    """The largest allowed difference of logits. A rotated pair is wrong by 2 eps in Halyard and by about 3 eps in
    stock; such errors add up over the layers."""
    n_layers = sum(name.endswith(("self_attn", ".attention")) for name, _ in model.named_modules())
    return 16 * max(n_layers, 2) * EPS * logits.abs().max()


@pytest.fixture(scope="module", params=list(small_models.MODELS))
def named(request):
    return request.param, small_models.make(request.param)


@pytest.fixture
def ids():
    return torch.randint(3, 100, (N_BATCH, N_TOKENS), generator=torch.Generator().manual_seed(3))


def positions_for(name):
    """Positions for a model: different ones on each axis for models of images, else two sequences with any start."""
    if name.endswith("_vl"):
        return torch.randint(0, 300, (3, N_BATCH, N_TOKENS), generator=torch.Generator().manual_seed(4))
    return torch.arange(N_TOKENS) + torch.tensor([[0], [0]] if name in small_models.CHANGING else [[7], [300]])


@torch.no_grad()
@pytest.mark.parametrize("reference", ["exact", "hf_f32"])
def test_logits(named, ids, reference):
    name, model = named
    positions = positions_for(name)
    stock = model(ids, position_ids=positions).logits
    assert patch(model, reference=reference) is model
    patched, implied = model(ids, position_ids=positions).logits, model(ids).logits
    unpatch(model)
    assert torch.equal(model(ids, position_ids=positions).logits, stock)
    assert (model(ids).logits - implied).abs().max() <= logits_bound(model, implied)
    elsewhere = model(ids, position_ids=3 * positions).logits
    assert (stock - elsewhere).abs().max() > 1000 * logits_bound(model, stock)  # logits do depend on positions
    # At position 300 stock angles are wrong by 300 * 2**-24 and more.
    assert 0 < (stock - patched).abs().max() <= logits_bound(model, stock) * (1 if reference == "hf_f32" else 30)


def test_training_step(named, ids):
    """Pairs differ by up to 5 eps. A stock model with weights off by 4 eps shows how such errors change gradients."""
    def gradients(model):
        model(ids, labels=ids).loss.backward()
        return {key: value.grad for key, value in model.named_parameters() if value.grad is not None}

    models = [copy.deepcopy(named[1]).train() for _ in range(3)]
    for dropout in (module for model in models for module in model.modules() if isinstance(module, torch.nn.Dropout)):
        dropout.p = 0.0
    with torch.no_grad():
        for weights in models[1].parameters():
            weights.mul_(1 + 4 * EPS * (2 * torch.rand(weights.shape, generator=torch.Generator().manual_seed(5)) - 1))
    stock, other, patched = map(gradients, (*models[:2], patch(models[2], reference="hf_f32")))
    assert stock.keys() == patched.keys()
    for key, right in stock.items():
        allowed = 2 * (other[key] - right).abs().max() + 16 * EPS * max(right.abs().max(), 1e-2)
        assert (patched[key] - right).abs().max() <= allowed, key


@torch.no_grad()
def test_compiled_in_one_graph(named, ids):
    name, model = named
    if name in small_models.CHANGING:
        pytest.skip("the frequencies depend on the positions, whose values a graph does not know")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        stock = model(ids).logits
        model = patch(copy.deepcopy(model), reference="hf_f32")
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager")(ids).logits
        torch._dynamo.reset()
    assert (stock - compiled).abs().max() <= logits_bound(model, stock)


@torch.no_grad()
def test_what_stays_stock(ids):
    """Patching does not change image encoders that call the same rotating function, or other models. And unpatch does
    not change a patched model's copies."""
    from transformers.models.gemma4 import modeling_gemma4
    x, cos, sin = torch.randn(2, 5, 3, 8), torch.randn(2, 5, 8), torch.randn(2, 5, 8)
    given = dict(cos=cos, sin=sin, unsqueeze_dim=2)
    stock = modeling_gemma4.apply_rotary_pos_emb(x, **given)
    patch(small_models.make("gemma4"))
    assert hasattr(modeling_gemma4.apply_rotary_pos_emb, "_halyard_original")
    assert torch.equal(modeling_gemma4.apply_rotary_pos_emb(x=x, **given), stock)
    other = small_models.make("llama, llama3")
    stock, model = other(ids).logits, patch(small_models.make("llama"))
    assert torch.equal(other(ids).logits, stock)
    twin, patched = copy.deepcopy(model), model(ids).logits
    unpatch(model)
    assert torch.equal(twin(ids).logits, patched)


@torch.no_grad()
@pytest.mark.parametrize("name", small_models.CHANGING)
def test_frequencies_that_change_with_the_length(name):
    """Patched models follow stock ones while sequences grow and become short again."""
    stock, patched = small_models.make(name), patch(small_models.make(name), reference="hf_f32")
    for n_tokens in (4, 8, 9, 40, 20, 5, 30):
        ids = torch.arange(n_tokens)[None] + 3
        expected = stock(ids).logits
        assert (expected - patched(ids).logits).abs().max() <= logits_bound(stock, expected), n_tokens


@torch.no_grad()
def test_far_positions(ids):
    """Near position 131,071 stock float32 angles are wrong by thousandths. "hf_f32" repeats that, "exact" does not."""
    model = small_models.make("llama, linear")
    model.config.max_position_embeddings = 200_000
    near = torch.arange(N_TOKENS)[None]
    stock, same, exact = (each(ids, position_ids=near + 131_060).logits for each in (
        copy.deepcopy(model), patch(copy.deepcopy(model), reference="hf_f32"), patch(model)))
    at_start = model(ids, position_ids=near).logits  # with exact angles only differences of positions matter
    assert (stock - same).abs().max() <= 4 * logits_bound(model, stock)
    assert (exact - at_start).abs().max() <= 4 * logits_bound(model, stock)
    assert (stock - at_start).abs().max() > 20 * (exact - at_start).abs().max()


def test_half_precision_padding_and_checkpoints(ids):
    for dtype in (torch.bfloat16, torch.float16):
        model = small_models.make("qwen3").to(dtype)
        with torch.no_grad():
            stock, patched = model(ids).logits.float(), patch(model)(ids).logits.float()
        assert (stock - patched).abs().max() <= 16 * torch.finfo(dtype).eps * stock.abs().max()
    model, mask = small_models.make("qwen3"), torch.ones_like(ids)
    mask[0, :4] = 0
    options = dict(attention_mask=mask, max_new_tokens=20, do_sample=False)
    stock = model.generate(ids, **options)
    assert torch.equal(patch(model).generate(ids, **options), stock)
    model.train()(ids, labels=ids).loss.backward()
    gradients = [value.grad.clone() for value in model.parameters()]
    model.gradient_checkpointing_enable()
    model.zero_grad()
    model(ids, labels=ids).loss.backward()
    assert all(torch.equal(value.grad, kept) for value, kept in zip(model.parameters(), gradients))


# ---- Models that patch refuses --------------------------------------------------------------------------------------

def refused(model, message):
    with pytest.raises(halyard.Error, match=message):
        patch(model)
    assert not any("_halyard" in module.__dict__ or "forward" in module.__dict__ for module in model.modules())


def test_models_of_no_list(monkeypatch, ids):
    """patch compares behaviour, so it serves Falcon, for which it has no code. It refuses modules without RoPE."""
    model = transformers.FalconForCausalLM(transformers.FalconConfig(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=4, vocab_size=101, initializer_range=0.2)).eval()
    with torch.no_grad():
        stock = model(ids).logits
        patched = patch(model, reference="hf_f32")(ids).logits
        assert 0 < (stock - patched).abs().max() <= logits_bound(model, stock)
    refused(torch.nn.Linear(2, 2), "Linear has no rotary embedding")
    monkeypatch.setattr(halyard.transformers, "_SCALING_Q", ())
    refused(small_models.make("ministral3"), "Ministral3RotaryEmbedding of ministral3 multiplies q by position")


def test_models_that_are_not_what_they_say_are_refused(monkeypatch):
    model = small_models.make("qwen3")
    model.model.rotary_emb.original_inv_freq[5] *= 1.001
    refused(model, "Qwen3RotaryEmbedding of qwen3 holds other frequencies")
    model = small_models.make("qwen3")
    module = sys.modules[type(model).__module__]
    stock = getattr(module.apply_rotary_pos_emb, "_halyard_original", module.apply_rotary_pos_emb)
    with monkeypatch.context() as context:
        context.setattr(module, "apply_rotary_pos_emb", lambda q, k, cos, sin, **more: stock(q, k, cos, -sin, **more))
        refused(model, "Qwen3RotaryEmbedding of qwen3 does not turn")
    with monkeypatch.context() as context:
        context.delattr(module, "apply_rotary_pos_emb")
        refused(model, "lacks apply_rotary_pos_emb")
    model.model.rotary_emb.to("meta")
    refused(model, "does not lie on the CPU")
    model = small_models.make("qwen2_vl")
    (rotary,) = _rotary_embeddings(model)
    rotary.mrope_section = [3, 2, 3]
    refused(model, "does not turn")


@pytest.mark.parametrize("name", ["llama", "llama, llama3", "llama, dynamic", "qwen3", "gemma3", "llama4", "phi",
                                  "qwen2_vl"])
def test_models_that_turn_by_other_frequencies_now_are_refused(name):
    """But frequencies that are rounded to the model's dtype pass: test_half_precision_padding_and_checkpoints."""
    for change in (lambda x: 4 * x, lambda x: 1.01 * x, lambda x: x ** 1.1, lambda x: x.flip(0),
                   lambda x: x.half() if x.dtype == torch.float32 else x + 0.01):
        for dtype in (torch.float32, torch.bfloat16):
            model = small_models.make(name).to(dtype)
            rotary = _rotary_embeddings(model)[0]
            held = next(key for key in rotary._buffers if key.endswith("inv_freq") and "original" not in key)
            rotary._buffers[held] = change(rotary._buffers[held]).to(dtype)
            refused(model, "RotaryEmbedding of .* (holds other frequencies|does not turn)")

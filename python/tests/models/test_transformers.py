"""Patched models beside stock ones: logits, greedy tokens, gradients, graphs; and what is refused."""

import copy
import sys
import warnings

import pytest

import halyard

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
import halyard.transformers  # noqa: E402
import small_models  # noqa: E402

EPS = 2.0 ** -23
N_BATCH, N_TOKENS = 2, 12


def bound(model, logits):
    """A turned pair is off by 2 eps here and by some 3 eps there, and so are the sums that it goes into, in each
    layer."""
    n_layers = sum(name.endswith(("self_attn", ".attention")) for name, _ in model.named_modules())
    return 16 * max(n_layers, 2) * EPS * logits.abs().max()


@pytest.fixture(scope="module", params=list(small_models.MODELS))
def named(request):
    return request.param, small_models.make(request.param)


@pytest.fixture
def ids():
    return torch.randint(3, 100, (N_BATCH, N_TOKENS), generator=torch.Generator().manual_seed(3))


def positions_for(name):
    """Of models with axes, time, height and width that differ; else some that begin anywhere."""
    random = torch.Generator().manual_seed(4)
    if name.endswith("_vl"):
        return torch.randint(0, 300, (3, N_BATCH, N_TOKENS), generator=random)
    if name in small_models.CHANGING:
        return torch.arange(N_TOKENS).expand(N_BATCH, -1)
    return torch.arange(N_TOKENS) + torch.tensor([[7], [300]])


@pytest.mark.parametrize("reference", ["exact", "hf_f32"])
def test_logits(named, ids, reference):
    name, model = named
    positions = positions_for(name)
    with torch.no_grad():
        stock = model(ids, position_ids=positions).logits
        assert halyard.transformers.patch(model, reference=reference) is model
        patched = model(ids, position_ids=positions).logits
        implied = model(ids).logits
        halyard.transformers.unpatch(model)
        assert torch.equal(model(ids, position_ids=positions).logits, stock)
        assert (model(ids).logits - implied).abs().max() <= bound(model, implied)
        elsewhere = model(ids, position_ids=3 * positions).logits
    assert (stock - elsewhere).abs().max() > 1000 * bound(model, stock)  # else nothing would be noticed
    # At position 300 stock angles are off by 300 * 2**-24 and more.
    allowed = bound(model, stock) * (1 if reference == "hf_f32" else 30)
    assert 0 < (stock - patched).abs().max() <= allowed


def greedy(model, ids, n_steps):
    """The logits of each step, a token at a time, with a cache."""
    rows = []
    with torch.no_grad():
        out = model(ids, use_cache=True)
        for _ in range(n_steps):
            rows.append(out.logits[:, -1])
            out = model(rows[-1].argmax(-1, keepdim=True), past_key_values=out.past_key_values, use_cache=True)
    return rows


def test_greedy_tokens(named, ids):
    name, model = named
    # Copies, because dynamic frequencies depend on what a model has seen.
    stock = greedy(copy.deepcopy(model), ids, 64)
    patched = greedy(halyard.transformers.patch(copy.deepcopy(model), reference="hf_f32"), ids, 64)
    alive = torch.ones(N_BATCH, dtype=torch.bool)
    n_compared = 0
    for a, b in zip(stock, patched):
        top = a.topk(2).values
        apart = (top[:, 0] - top[:, 1]) > 2 * bound(model, a)
        equal = a.argmax(-1) == b.argmax(-1)
        assert (equal | ~apart | ~alive).all()
        alive &= equal
        n_compared += int(alive.sum())
    assert n_compared > 64  # of 128


def test_training_step(named, ids):
    name, model = named
    model = copy.deepcopy(model).train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    patched = halyard.transformers.patch(copy.deepcopy(model), reference="hf_f32")
    small_models.check_gradients(model, patched, ids)


def test_compiled_in_one_graph(named, ids):
    name, model = named
    if name in small_models.CHANGING:
        pytest.skip("which frequencies hold depends on the positions, which a graph does not know")
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        stock = model(ids).logits
        model = halyard.transformers.patch(copy.deepcopy(model), reference="hf_f32")
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager")(ids).logits
        torch._dynamo.reset()
    assert (stock - compiled).abs().max() <= bound(model, stock)


def test_every_known_kind_has_a_small_model():
    made = (small_models.make(name) for name in small_models.MODELS)
    modules = [module for model in made for module in halyard.transformers._rotary_embeddings(model)]
    assert {module.config.model_type for module in modules} == set(halyard.transformers._FUNCTIONS)


def test_images_of_a_patched_model_stay_stock():
    """Gemma 4 turns its text and its images by one function."""
    from transformers.models.gemma4 import modeling_gemma4
    x, cos, sin = torch.randn(2, 5, 3, 8), torch.randn(2, 5, 8), torch.randn(2, 5, 8)
    given = dict(cos=cos, sin=sin, unsqueeze_dim=2)
    stock = modeling_gemma4.apply_rotary_pos_emb(x, **given)
    halyard.transformers.patch(small_models.make("gemma4"))
    assert hasattr(modeling_gemma4.apply_rotary_pos_emb, "_halyard_original")
    assert torch.equal(modeling_gemma4.apply_rotary_pos_emb(x=x, **given), stock)


def test_copies_of_patched_models(ids):
    model = halyard.transformers.patch(small_models.make("llama"))
    twin = copy.deepcopy(model)
    with torch.no_grad():
        expected = model(ids).logits
        halyard.transformers.unpatch(model)
        assert torch.equal(twin(ids).logits, expected)


def test_other_models_stay_stock(ids):
    one, other = small_models.make("llama"), small_models.make("llama, llama3")
    with torch.no_grad():
        stock = other(ids).logits
        halyard.transformers.patch(one)
        assert torch.equal(other(ids).logits, stock)


@pytest.mark.parametrize("name", small_models.CHANGING)
def test_frequencies_that_change_with_the_length(name):
    """Growing and short again, step by step as stock goes."""
    stock, patched = small_models.make(name), halyard.transformers.patch(small_models.make(name), reference="hf_f32")
    with torch.no_grad():
        for n_tokens in (4, 8, 9, 40, 20, 5, 30):
            ids = torch.arange(n_tokens)[None] + 3
            expected = stock(ids).logits
            assert (expected - patched(ids).logits).abs().max() <= bound(stock, expected), n_tokens


def test_far_positions(ids):
    """At 131,071 stock float32 angles are off by thousandths; hf_f32 has them, exact has not."""
    model = small_models.make("llama, linear")
    model.config.max_position_embeddings = 200_000
    positions = torch.arange(N_TOKENS)[None] + 131_060
    shifted = torch.arange(N_TOKENS)[None]
    with torch.no_grad():
        stock = model(ids, position_ids=positions).logits
        same = halyard.transformers.patch(model, reference="hf_f32")(ids, position_ids=positions).logits
        exact = halyard.transformers.patch(model)(ids, position_ids=positions).logits
        # Attention depends on distances alone, so exact angles give what they give at 0.
        at_start = model(ids, position_ids=shifted).logits
    assert (stock - same).abs().max() <= 4 * bound(model, stock)
    assert (exact - at_start).abs().max() <= 4 * bound(model, stock)
    assert (stock - at_start).abs().max() > 20 * (exact - at_start).abs().max()


def test_half_precision(ids):
    for dtype in (torch.bfloat16, torch.float16):
        model = small_models.make("qwen3").to(dtype)
        with torch.no_grad():
            stock = model(ids).logits.float()
            patched = halyard.transformers.patch(model)(ids).logits.float()
        assert (stock - patched).abs().max() <= 16 * torch.finfo(dtype).eps * stock.abs().max()


def test_generate_with_padding(ids):
    model = small_models.make("qwen3")
    mask = torch.ones_like(ids)
    mask[0, :4] = 0
    options = dict(attention_mask=mask, max_new_tokens=20, do_sample=False)
    stock = model.generate(ids, **options)
    assert torch.equal(halyard.transformers.patch(model).generate(ids, **options), stock)


def test_gradient_checkpointing(ids):
    model = halyard.transformers.patch(small_models.make("llama")).train()
    model(ids, labels=ids).loss.backward()
    gradients = [value.grad.clone() for value in model.parameters()]
    model.gradient_checkpointing_enable()
    model.zero_grad()
    model(ids, labels=ids).loss.backward()
    assert all(torch.equal(value.grad, kept) for value, kept in zip(model.parameters(), gradients))


def refused(model, sentence):
    state = {name: id(module.forward) for name, module in model.named_modules() if "forward" in module.__dict__}
    with pytest.raises(halyard.Error, match=sentence):
        halyard.transformers.patch(model)
    assert not any("_halyard" in module.__dict__ or "forward" in module.__dict__ for module in model.modules()), state


def test_models_that_are_not_known_are_refused_by_name():
    falcon = transformers.FalconForCausalLM(transformers.FalconConfig(hidden_size=64, num_hidden_layers=1,
                                                                      num_attention_heads=4, vocab_size=101))
    refused(falcon, "model type falcon is not known")
    refused(torch.nn.Linear(2, 2), "Linear has no rotary embedding")


def test_models_that_are_not_what_they_say_are_refused(monkeypatch, ids):
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


@pytest.mark.parametrize("name", ["llama", "llama, llama3", "llama, dynamic", "qwen3", "gemma3", "llama4", "phi",
                                  "qwen2_vl"])
def test_models_that_turn_by_other_frequencies_now_are_refused(name):
    """What a model has rounded to its dtype passes, see test_half_precision."""
    for change in (lambda x: 4 * x, lambda x: 1.01 * x, lambda x: x ** 1.1, lambda x: x.flip(0),
                   lambda x: x.half() if x.dtype == torch.float32 else x + 0.01):
        for dtype in (torch.float32, torch.bfloat16):
            model = small_models.make(name).to(dtype)
            rotary = halyard.transformers._rotary_embeddings(model)[0]
            held = next(key for key in rotary._buffers if key.endswith("inv_freq") and "original" not in key)
            rotary._buffers[held] = change(rotary._buffers[held]).to(dtype)
            refused(model, "RotaryEmbedding of .* (holds other frequencies|does not turn)")


def test_forward_mode_of_a_patched_model_is_refused(ids):
    model = halyard.transformers.patch(small_models.make("llama"))
    embedded = model.get_input_embeddings()(ids).detach()
    with pytest.raises(halyard.Error, match="forward-mode"):
        torch.func.jvp(lambda x: model(inputs_embeds=x).logits, (embedded,), (torch.ones_like(embedded),))


def test_axes_that_are_mixed_up_are_refused():
    model = small_models.make("qwen2_vl")
    rotary = next(module for module in model.modules() if type(module).__name__ == "Qwen2VLRotaryEmbedding")
    rotary.mrope_section = [3, 2, 3]
    refused(model, "does not turn")

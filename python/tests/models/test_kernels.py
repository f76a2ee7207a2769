"""Halyard as a layer of the package `kernels`: q and k turned by given rows, alone and in models."""

import importlib
import pathlib

import pytest

import halyard

torch = pytest.importorskip("torch")
import exact  # noqa: E402
import halyard.kernels  # noqa: E402

EPS = exact.EPS
OTHERS = ["modeling_nanochat", "modeling_openai_privacy_filter"]  # turn the other way, and by interleaved pairs
HALF_AS_WIDE = ["modeling_gpt_oss", "modeling_openai_privacy_filter"]  # elsewhere cos and sin repeat themselves


def inputs(n_batch, width, dtype=torch.float32):
    """q, k, cos and sin."""
    random = torch.Generator().manual_seed(20261122)
    q, k = (torch.randn(2, heads, 5, 16, generator=random).to(dtype) for heads in (3, 1))
    theta = 100 * torch.randn(n_batch, 5, 8, generator=random)
    return q, k, *(f(theta).repeat(1, 1, width // 8) for f in (torch.cos, torch.sin))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("n_batch, width, heads_first", [(1, 16, True), (2, 16, False), (2, 8, True)])
def test_the_layer(n_batch, width, heads_first, dtype):
    *given, cos, sin = inputs(n_batch, width, dtype)
    q, k = given if heads_first else (x.transpose(1, 2) for x in given)
    layer = halyard.kernels.RotaryPositionEmbedding()
    for x, y in zip((q, k), layer(q, k, cos, sin, 1 if heads_first else 2)):
        assert y.dtype == dtype and y.shape == x.shape
        x, y = (exact.as_numpy(each.transpose(1, 2) if heads_first else each) for each in (x, y))
        right, length = exact.turn(x, *(rows[:, :, None, :8].numpy() for rows in (cos, sin)))
        exact.check_near(y, right, length, y.dtype)


def test_gradients_turn_back():
    q, k, cos, sin = inputs(2, 16)
    q.requires_grad_(), k.requires_grad_()
    turned = halyard.kernels.RotaryPositionEmbedding()(q, k, cos, sin)
    torch.autograd.backward(turned, [x.detach() for x in turned])
    for x in (q, k):
        assert (x.grad - x).abs().max() <= 8 * EPS * x.abs().max()
    torch.library.opcheck(torch.ops.halyard.rotate_given, (q, k, cos, sin))


def test_bad_input():
    q, k, cos, sin = inputs(2, 16)
    layer = halyard.kernels.RotaryPositionEmbedding()
    for bad in ((cos[..., :12], sin[..., :12]), (cos[:, :4], sin[:, :4]), (cos.repeat(2, 1, 1), sin.repeat(2, 1, 1)),
                (cos, sin[:1]), (cos[0], sin[0]), (cos.double(), sin.double())):
        with pytest.raises(halyard.Error, match="cos"):
            layer(q, k, *bad)
    with pytest.raises(halyard.Error, match="gradient"):
        layer(q, k, cos.requires_grad_(), sin)


def test_models(run_python):
    """In a process of its own, see below."""
    pytest.importorskip("transformers")
    pytest.importorskip("kernels")
    done = run_python(__file__)
    assert done.returncode == 0 and "all is well" in done.stdout, done.stderr


def let_transformers_take_kernels():
    """transformers takes only the versions of `kernels` that it knows, of which the Python package index may have none.
    Before any model is imported, it is told that the one that is installed is one of these."""
    from transformers.utils import import_utils
    find_package = import_utils._is_package_available

    def find_kernels(name, return_version=False):
        found = find_package(name, return_version=True)
        if name == "kernels":
            found = (found[0], import_utils.KERNELS_MIN_VERSION)
        return found if return_version else found[:1]

    import_utils._is_package_available = find_kernels
    import_utils.is_kernels_available.cache_clear()


def marked_functions():
    """(file, function) of all that transformers would have exchanged, whatever the model."""
    import transformers
    for path in sorted(pathlib.Path(transformers.__file__).parent.glob("models/*/modeling_*.py")):
        if 'use_kernel_forward_from_hub("rotary_pos_emb")' in path.read_text():
            module = importlib.import_module(f"transformers.models.{path.parent.name}.{path.stem}")
            yield from ((path.stem, value) for value in vars(module).values()
                        if getattr(type(value), "kernel_layer_name", None) == "rotary_pos_emb")


def check_all_functions():
    refused, n = [], 0
    for name, function in marked_functions():
        n += 1
        try:
            halyard.kernels._check(type(function), name not in HALF_AS_WIDE)
        except halyard.Error as error:
            assert name in str(error), error
            refused.append(name)
    assert refused == OTHERS and n > 100, (refused, n)


def check_model(name):
    import kernels
    import halyard.transformers
    import small_models
    stock, model = small_models.make(name), small_models.make(name)  # no copies: those have functions of their own
    ids = torch.randint(3, 100, (2, 12), generator=torch.Generator().manual_seed(3))
    calls = []
    forward = halyard.kernels.RotaryPositionEmbedding.forward

    def counted(self, q, k, cos, sin, unsqueeze_dim=1):
        calls.append(q.shape)
        return forward(self, q, k, cos, sin, unsqueeze_dim)

    halyard.kernels.RotaryPositionEmbedding.forward = counted
    model.set_use_kernels(True)
    model.train()(ids, labels=ids)
    assert len(calls) == model.config.num_hidden_layers, calls
    halyard.kernels.RotaryPositionEmbedding.forward = forward
    logits = [x.detach() for x in (model.eval()(ids).logits, torch.compile(model, fullgraph=True, backend="aot_eager")(
        ids).logits, model(ids, position_ids=torch.arange(12)[None] + torch.tensor([[0], [7]])).logits)]
    kernels.kernelize(stock, mode=kernels.Mode.INFERENCE, device="neuron")  # which has no layers: back to stock
    expected = stock(ids).logits
    bound = 32 * EPS * expected.abs().max()
    assert all((x - expected).abs().max() <= bound for x in logits[:2])
    placed = stock(ids, position_ids=torch.arange(12)[None] + torch.tensor([[0], [7]])).logits
    assert 0 < (logits[2] - placed).abs().max() <= bound
    small_models.check_gradients(stock.train(), model.train(), ids)
    # patch() knows these models too, whichever function stands in its place.
    patched = halyard.transformers.patch(stock.eval())
    assert (patched(ids).logits - expected).abs().max() <= 30 * bound


def check_models():
    let_transformers_take_kernels()
    import kernels
    kernels.register_kernel_mapping(halyard.kernels.MAPPING)
    check_all_functions()
    for family in ("llama", "qwen3", "gemma2", "phi"):
        check_model(family)
    print("all is well")


if __name__ == "__main__":
    check_models()

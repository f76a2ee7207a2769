"""Run by test_kernels.py in a process of its own: models of transformers with Halyard as a layer of `kernels`.

transformers takes only the versions of `kernels` that it knows, of which the Python package index may have none. Before
it is imported, it is told that the one that is installed is one of these.
"""

import importlib
import pathlib

import transformers.utils.import_utils as import_utils

find_package = import_utils._is_package_available


def find_kernels(name, return_version=False):
    found = find_package(name, return_version=True)
    if name == "kernels":
        found = (found[0], import_utils.KERNELS_MIN_VERSION)
    return found if return_version else found[:1]


import_utils._is_package_available = find_kernels
import_utils.is_kernels_available.cache_clear()

import kernels  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402

import halyard.kernels  # noqa: E402
import halyard.transformers  # noqa: E402
import small_models  # noqa: E402

EPS = 2.0 ** -23
OTHERS = ["modeling_nanochat", "modeling_openai_privacy_filter"]  # turn the other way, and by interleaved pairs
HALF_AS_WIDE = ["modeling_gpt_oss", "modeling_openai_privacy_filter"]  # elsewhere cos and sin repeat themselves


def marked_functions():
    """(file, function) of all that transformers would have exchanged, whatever the model."""
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
    stock, model = small_models.make(name), small_models.make(name)  # no copies: those have functions of their own
    ids = torch.randint(3, 100, (2, 12), generator=torch.Generator().manual_seed(3))
    calls = []
    forward = halyard.kernels.RotaryPositionEmbedding.forward

    def counted(self, q, k, cos, sin, unsqueeze_dim=1):
        calls.append(q.shape)
        return forward(self, q, k, cos, sin, unsqueeze_dim)

    halyard.kernels.RotaryPositionEmbedding.forward = counted
    model.set_use_kernels(True)
    model.train()(ids, labels=ids).loss.backward()
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
    stock.train()(ids, labels=ids).loss.backward()
    for ours, theirs in zip(model.parameters(), stock.parameters()):
        assert (ours.grad - theirs.grad).abs().max() <= 512 * EPS * max(theirs.grad.abs().max(), 1e-2)
    # patch() knows these models too, whichever function stands in its place.
    patched = halyard.transformers.patch(stock.eval())
    assert (patched(ids).logits - expected).abs().max() <= 30 * bound


kernels.register_kernel_mapping(halyard.kernels.MAPPING)
check_all_functions()
for family in ("llama", "qwen3", "gemma2", "phi"):
    check_model(family)
print("all is well")

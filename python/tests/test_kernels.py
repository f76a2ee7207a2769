"""Halyard as a layer of the package `kernels`: q and k turned by given rows, alone and in models."""

import os
import pathlib
import subprocess
import sys

import pytest

import halyard

torch = pytest.importorskip("torch")
import halyard.kernels  # noqa: E402

HERE = pathlib.Path(__file__).parent
EPS = 2.0 ** -23


def inputs(n_batch, width, dtype=torch.float32, heads_first=True):
    """q, k, cos, sin and, in double, what comes of them."""
    random = torch.Generator().manual_seed(20261122)
    q, k = (torch.randn(2, heads, 5, 16, generator=random).to(dtype) for heads in (3, 1))
    theta = 100 * torch.randn(n_batch, 5, 8, generator=random)
    rows = [f(theta).repeat(1, 1, width // 8) for f in (torch.cos, torch.sin)]
    cos, sin = (x[..., :8].double()[:, None] for x in rows)
    turned = []
    for x in (q, k):
        a, b = x.double().chunk(2, -1)
        turned.append(torch.cat([a * cos - b * sin, a * sin + b * cos], -1))
    if not heads_first:
        q, k, *turned = (x.transpose(1, 2) for x in (q, k, *turned))
    return q, k, *rows, turned


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("n_batch, width, heads_first", [(1, 16, True), (2, 16, False), (2, 8, True)])
def test_the_layer(n_batch, width, heads_first, dtype):
    q, k, cos, sin, exact = inputs(n_batch, width, dtype, heads_first)
    layer = halyard.kernels.RotaryPositionEmbedding()
    for x, y, z in zip((q, k), exact, layer(q, k, cos, sin, 1 if heads_first else 2)):
        length = torch.hypot(*x.double().chunk(2, -1)).repeat(1, 1, 1, 2)
        stored = 0 if dtype == torch.float32 else torch.finfo(dtype).eps / 2
        assert z.dtype == dtype and z.shape == x.shape
        assert ((z.double() - y).abs() <= (2 * EPS + stored) * length * (1 + EPS)).all()


def test_gradients_turn_back():
    q, k, cos, sin, _ = inputs(2, 16)
    q.requires_grad_(), k.requires_grad_()
    turned = halyard.kernels.RotaryPositionEmbedding()(q, k, cos, sin)
    torch.autograd.backward(turned, [x.detach() for x in turned])
    for x in (q, k):
        assert (x.grad - x).abs().max() <= 8 * EPS * x.abs().max()
    torch.library.opcheck(torch.ops.halyard.rotate_given, (q, k, cos, sin))


def test_bad_input():
    q, k, cos, sin, _ = inputs(2, 16)
    layer = halyard.kernels.RotaryPositionEmbedding()
    for bad in ((cos[..., :12], sin[..., :12]), (cos[:, :4], sin[:, :4]), (cos.repeat(2, 1, 1), sin.repeat(2, 1, 1)),
                (cos, sin[:1]), (cos[0], sin[0]), (cos.double(), sin.double())):
        with pytest.raises(halyard.Error, match="cos"):
            layer(q, k, *bad)
    with pytest.raises(halyard.Error, match="gradient"):
        layer(q, k, cos.requires_grad_(), sin)


def test_models():
    pytest.importorskip("transformers")
    pytest.importorskip("kernels")
    package = str(pathlib.Path(halyard.__file__).parents[1])
    done = subprocess.run([sys.executable, HERE / "kernels_in_models.py"], text=True, capture_output=True, timeout=500,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(
                              [package, str(HERE), os.environ.get("PYTHONPATH", "")])})
    assert done.returncode == 0 and "all is well" in done.stdout, done.stderr

"""torch.ops.halyard: results, gradients, compiled graphs."""

import numpy as np
import pytest

import exact
import halyard

torch = pytest.importorskip("torch")
import halyard.torch  # noqa: E402

BASE, DIM, FACTOR = 10000.0, 32, 1.25
FREQUENCIES = exact.inv_freq(BASE, DIM)


@pytest.fixture(scope="module")
def angles():
    return halyard.AngleSource(halyard.Frequencies.from_list(FREQUENCIES.astype(np.float64), FACTOR))


LISTED = FREQUENCIES.astype(np.float64).astype(np.longdouble)  # what the source was made of


def tensors(rng, dtype, *heads):
    return [torch.from_numpy(rng.standard_normal((2, 5, n, DIM + 4))).to(dtype) for n in heads]


def as_numpy(tensor):
    if tensor.dtype == torch.bfloat16:
        return tensor.detach().view(torch.int16).numpy().view(exact.BF16)
    return tensor.detach().numpy()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("out_pairing", ["half", "interleaved"])
def test_gradients_are_the_inverse(rng, angles, dtype, out_pairing):
    q, k, q_gradient, k_gradient = tensors(rng, dtype, 4, 2, 4, 2)
    positions = torch.tensor([[0, 3, 1, 9, 131_071], [5, 6, 7, 8, 9]])
    q.requires_grad_(), k.requires_grad_()
    turned = halyard.torch.rotate(q, k, angles=angles, positions=positions, pairing="half", out_pairing=out_pairing,
                                  rotary_offset=2)
    torch.autograd.backward(turned, (q_gradient, k_gradient))
    for x, y, gradient in zip((q, k), turned, (q_gradient, k_gradient)):
        exact.check(as_numpy(y), as_numpy(x), positions.numpy(), LISTED, pairing="half", out_pairing=out_pairing,
                    offset=2, factor=FACTOR)
        exact.check(as_numpy(x.grad), as_numpy(gradient), positions.numpy(), LISTED, pairing=out_pairing,
                    out_pairing="half", offset=2, factor=FACTOR, inverse=True)


def test_q_alone_start_and_layout(rng, angles):
    (q,) = tensors(rng, torch.float32, 3)
    q.requires_grad_()
    y = halyard.torch.rotate(q.transpose(1, 2), angles=angles, positions=7, layout="bhsd")
    y.square().sum().backward()
    expected = halyard.rotate(q.detach(), angles=angles, positions=7)
    assert torch.equal(y.transpose(1, 2), expected)
    back = halyard.rotate(2 * expected, angles=angles, positions=7, inverse=True)
    assert torch.equal(q.grad, back)


def test_gradient_of_one_output(rng, angles):
    q, k = tensors(rng, torch.float32, 3, 3)
    q.requires_grad_()
    halyard.torch.rotate(q, k, angles=angles, positions=0)[0].sum().backward()
    assert torch.equal(q.grad, halyard.rotate(torch.ones_like(q), angles=angles, positions=0, inverse=True))


def test_second_derivatives(rng, angles):
    (q,) = tensors(rng, torch.float32, 1)
    q.requires_grad_()
    turned = halyard.torch.rotate(q, angles=angles, positions=0)
    (gradient,) = torch.autograd.grad(turned.pow(3).sum(), q, create_graph=True)
    (second,) = torch.autograd.grad(gradient.sum(), q)
    assert torch.isfinite(second).all() and second.abs().max() > 0


def test_opcheck(rng, angles):
    q, k = tensors(rng, torch.float32, 3, 1)
    positions = torch.arange(5)
    for op, inputs in ((torch.ops.halyard.rotate, (q,)), (torch.ops.halyard.rotate_qk, (q, k))):
        inputs = tuple(x.clone().requires_grad_() for x in inputs)
        torch.library.opcheck(op, (*inputs, positions, angles._number), dict(k_offset=2, inverse=True))


def test_compiled_in_one_graph(rng, angles):
    weight = torch.randn(DIM + 4, DIM + 4)

    def layer(q, k, positions):
        q, k = halyard.torch.rotate(q @ weight, k, angles=angles, positions=positions)
        return (q * 2).sum((-1, -2)) + k.sum((-1, -2))

    compiled = torch.compile(layer, fullgraph=True, dynamic=True, backend="aot_eager")
    for n_tokens in (5, 3):
        q, k = (x[:, :n_tokens].clone().requires_grad_() for x in tensors(rng, torch.float32, 3, 1))
        positions = torch.arange(n_tokens) + 11
        expected = layer(q, k, positions)
        assert torch.equal(compiled(q, k, positions), expected)
        wanted = torch.autograd.grad(expected.sum(), (q, k))
        got = torch.autograd.grad(compiled(q, k, positions).sum(), (q, k))
        assert all(torch.allclose(a, b, rtol=1e-6) for a, b in zip(got, wanted))


def test_bad_input(rng, angles):
    (q,) = tensors(rng, torch.float32, 3)
    for bad in (dict(positions=torch.zeros(5)), dict(positions=torch.zeros(6, dtype=torch.long)),
                dict(layout="tbhd"), dict(pairing="neox"), dict(rotary_offset=5)):
        with pytest.raises(halyard.Error):
            halyard.torch.rotate(q, angles=angles, **bad)
    with pytest.raises(halyard.Error):
        halyard.torch.rotate(q.double(), angles=angles)
    with pytest.raises(halyard.Error, match="AngleSource"):
        torch.ops.halyard.rotate(q, None, 10**6)
    with pytest.raises(Exception):
        torch.compile(lambda x: halyard.torch.rotate(x, angles=angles), fullgraph=True, backend="eager")(q.double())

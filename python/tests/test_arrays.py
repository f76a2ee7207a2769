"""Arrays of several libraries, in and out, without a copy."""

import numpy as np
import pytest

import exact
import halyard

BASE, DIM = 1e4, 64


class OnlyDlpack:
    """An array of which nothing is known but DLPack; versioned or from before versions."""

    def __init__(self, array, versioned=True):
        self.array, self.versioned, self.n_exports = array, versioned, 0

    def __dlpack__(self, **options):
        if not self.versioned and options:
            raise TypeError("unexpected keyword")
        self.n_exports += 1
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("versioned", [True, False])
def test_any_dlpack(rng, angles, versioned):
    x = rng.standard_normal((4, 2, DIM)).astype(np.float32)
    expected = halyard.rotate(x, angles=angles)
    made = halyard.rotate(OnlyDlpack(x, versioned), angles=angles)
    assert np.array_equal(made, expected)
    out = OnlyDlpack(np.empty_like(x), versioned)
    assert halyard.rotate(halyard.Tensor(OnlyDlpack(x), out=out), angles=angles) is out
    assert np.array_equal(out.array, expected)


def test_capsules_are_used_up(rng, angles):
    x = rng.standard_normal((4, 2, DIM)).astype(np.float32)
    for capsule in (x.__dlpack__(), x.__dlpack__(max_version=(1, 0))):
        y = halyard.rotate(halyard.Tensor(capsule, out=np.empty_like(x)), angles=angles)
        assert np.array_equal(y, halyard.rotate(x, angles=angles))
        out = np.zeros_like(x)
        with pytest.raises(halyard.Error, match="used_dltensor"):
            halyard.rotate(halyard.Tensor(capsule, out=out), angles=angles)
        assert not out.any()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_torch(rng, angles, dtype):
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(rng.standard_normal((2, 3, 4, DIM)).astype(np.float32)).to(getattr(torch, dtype))
    expected = halyard.rotate(exact.as_numpy(x), angles=angles, positions=5)
    y = halyard.rotate(x, angles=angles, positions=torch.arange(5, 8))
    assert y.dtype == x.dtype and np.array_equal(y.float().numpy(), expected.astype(np.float32))
    heads_first = x.transpose(1, 2)
    z = halyard.rotate(heads_first, angles=angles, positions=5, layout="bhsd")
    assert z.shape == heads_first.shape and torch.equal(z, y.transpose(1, 2))
    assert halyard.rotate(x, angles=angles, positions=5, in_place=True) is x and torch.equal(x, y)
    eight = halyard.rotate(halyard.Tensor(y, dtype="e4m3"), angles=angles, positions=0)
    assert eight.dtype == torch.float8_e4m3fn


def test_torch_tensors_that_have_no_memory(angles):
    torch = pytest.importorskip("torch")
    with pytest.raises(halyard.Error, match="gradient"):
        halyard.rotate(torch.zeros(1, 1, DIM, requires_grad=True), angles=angles)
    for bad in (torch.zeros(1, 1, DIM, device="meta"), torch.zeros(1, 1, DIM).to_sparse()):
        for given in bad, halyard.Tensor(torch.zeros(1, 1, DIM), out=bad):
            with pytest.raises(halyard.Error, match=r"\A(q|out of q) cannot be read by DLPack: [^\n]*\Z"):
                halyard.rotate(given, angles=angles, positions=0)
    from torch._subclasses.fake_tensor import FakeTensorMode
    with FakeTensorMode() as mode, pytest.raises(Exception):
        halyard.rotate(mode.from_tensor(torch.zeros(1, 1, DIM)), angles=angles)


def test_torch_tensors_with_a_negative_bit(angles):
    torch = pytest.importorskip("torch")
    import halyard.torch
    z = torch.arange(2.0 * DIM).reshape(2, 1, DIM) + 1j
    z = torch.view_as_complex(torch.stack([z.real, z.real], -1))
    negated, good, cache = z.conj().imag, z.real.clone(), torch.zeros(2, 1, DIM)
    assert negated.is_neg() and torch.equal(
        halyard.torch.rotate(negated, angles=angles, positions=0), halyard.rotate(-z.imag, angles=angles, positions=0))
    marked = torch._neg_view
    for stages, more in (
            (dict(array=negated), {}), (dict(out=negated), {}), ({}, dict(positions=marked(torch.tensor([1, 2])))),
            (dict(cache=marked(cache)), dict(slots=0)), (dict(cache=cache), dict(slots=marked(torch.zeros(2).int()))),
            (dict(norm=halyard.Norm(marked(torch.ones(DIM)))), {}), (dict(scale=marked(torch.ones(1))), {})):
        with pytest.raises(halyard.Error, match="has PyTorch's negative bit"):
            halyard.rotate(halyard.Tensor(**{"array": good, **stages}), **{"angles": angles, "positions": 0, **more})
    with pytest.raises(halyard.Error, match="negative bit"):
        halyard.rerotate(negated, angles=angles, from_positions=0, positions=1)
    with pytest.raises(halyard.Error, match="complex64"):
        halyard.rotate(z.conj(), angles=angles, positions=0)
    with torch.no_grad():  # a view, whose tensor holds the negated result then
        torch.ops.halyard.rotate_(negated, halyard.torch.describe(angles))
    assert torch.equal(-z.imag, halyard.rotate(-good, angles=angles, positions=0))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_jax(rng, angles, dtype):
    jax = pytest.importorskip("jax")
    x = jax.numpy.asarray(rng.standard_normal((4, 2, DIM)), dtype)
    y = halyard.rotate(x, angles=angles, positions=jax.numpy.arange(3, 7))
    assert isinstance(y, np.ndarray) and y.dtype == x.dtype
    assert np.array_equal(y, halyard.rotate(np.asarray(x), angles=angles, positions=3))
    q, k = halyard.rotate(halyard.Tensor(x, dtype="e4m3"), x[:, :1], angles=angles)
    assert q.dtype == jax.numpy.float8_e4m3fn and isinstance(k, np.ndarray)
    before = np.asarray(x).copy()
    with pytest.raises(halyard.Error, match="JAX"):
        halyard.rotate(x, angles=angles, in_place=True)
    assert np.array_equal(np.asarray(x), before)


def test_the_package_s_own_example():
    import doctest
    assert doctest.testmod(halyard) == doctest.TestResults(failed=0, attempted=4)

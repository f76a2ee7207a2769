"""Arrays of several libraries as inputs and outputs, without copies."""

import doctest

import numpy as np
import pytest

import halyard
from halyard import Tensor

DIM = 64


class OnlyDlpack:
    """An array that has nothing but __dlpack__, with DLPack's versions or without."""

    def __init__(self, array, versioned=True):
        self.array, self.versioned = array, versioned

    def __dlpack__(self, **options):
        if not self.versioned and options:
            raise TypeError("unexpected keyword")
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("versioned", [True, False])
def test_any_dlpack(rng, angles, versioned):
    x = rng.standard_normal((4, 2, DIM)).astype(np.float32)
    expected, out = halyard.rotate(x, angles=angles), OnlyDlpack(np.empty_like(x), versioned)
    assert np.array_equal(halyard.rotate(OnlyDlpack(x, versioned), angles=angles), expected)
    assert halyard.rotate(Tensor(OnlyDlpack(x), out=out), angles=angles) is out
    assert np.array_equal(out.array, expected)
    capsule, out = x.__dlpack__(**(dict(max_version=(1, 0)) if versioned else {})), np.zeros_like(x)
    assert np.array_equal(halyard.rotate(Tensor(capsule, out=np.empty_like(x)), angles=angles), expected)
    with pytest.raises(halyard.Error, match="used_dltensor"):
        halyard.rotate(Tensor(capsule, out=out), angles=angles)
    assert not out.any()


def is_before_2_10(torch):
    """Older versions of PyTorch export tensors by Python alone, and fewer of them."""
    return not hasattr(torch.Tensor, "__dlpack_c_exchange_api__")


@pytest.mark.parametrize("library", ["torch", "jax"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_torch_and_jax(rng, angles, library, dtype):
    """New outputs are PyTorch tensors for PyTorch inputs, and NumPy arrays for JAX inputs."""
    source = pytest.importorskip("torch" if library == "torch" else "jax.numpy")
    x = source.asarray(rng.standard_normal((2, 3, 4, DIM)), dtype=getattr(source, dtype))
    kind = type(x) if library == "torch" else np.ndarray
    y = halyard.rotate(x, angles=angles, positions=source.arange(5, 8))
    assert type(y) is kind and y.dtype == x.dtype
    wide, made = (np.asarray(each.float() if library == "torch" else each).astype(np.float32) for each in (x, y))
    expected = halyard.rotate(Tensor(wide, dtype=dtype), angles=angles, positions=5)
    assert np.array_equal(made, expected.astype(np.float32))
    heads_first = halyard.rotate(x.swapaxes(1, 2), angles=angles, positions=5, layout="bhsd")
    assert heads_first.shape == (2, 4, 3, DIM) and (heads_first.swapaxes(1, 2) == y).all()
    both = Tensor(x, dtype="e4m3"), x[:, :, :1]
    if library == "torch" and is_before_2_10(source):
        with pytest.raises(halyard.Error, match="float8 types are not supported by dlpack"):
            halyard.rotate(*both, angles=angles, positions=0)
    else:
        eight, k = halyard.rotate(*both, angles=angles, positions=0)
        assert eight.dtype == source.float8_e4m3fn and type(eight) is type(k) is kind
    records = (halyard.convert(each, groups="vllm_int8") for each in (x, wide))
    assert all(type(made) is kind and np.array_equal(made, wanted) for made, wanted in zip(*records))
    if library == "torch":
        assert halyard.rotate(x, angles=angles, positions=5, in_place=True) is x and (x == y).all()
    else:
        with pytest.raises(halyard.Error, match="JAX"):
            halyard.rotate(x, angles=angles, positions=5, in_place=True)
        assert (np.asarray(x).astype(np.float32) == wide).all()


def test_torch_tensors_that_have_no_memory(angles):
    torch = pytest.importorskip("torch")
    from torch._subclasses.fake_tensor import FakeTensorMode
    good = torch.zeros(1, 1, DIM)
    with pytest.raises(halyard.Error, match="gradient"):
        halyard.rotate(good.clone().requires_grad_(), angles=angles)
    for bad in good.to("meta"), good.to_sparse():
        for given in bad, Tensor(good, out=bad):
            with pytest.raises(halyard.Error, match=r"\A(q|out of q) cannot be read by DLPack: [^\n]*\Z"):
                halyard.rotate(given, angles=angles, positions=0)
    with FakeTensorMode() as mode, pytest.raises(Exception):
        halyard.rotate(mode.from_tensor(good), angles=angles)


def test_torch_tensors_with_a_negative_bit(angles):
    torch = pytest.importorskip("torch")
    import halyard.torch
    z = torch.arange(2.0 * DIM).reshape(2, 1, DIM) + 1j
    z = torch.view_as_complex(torch.stack([z.real, z.real], -1))
    negated = z.conj().imag
    assert negated.is_neg() and torch.equal(
        halyard.torch.rotate(negated, angles=angles, positions=0), halyard.rotate(-z.imag, angles=angles, positions=0))
    for given in negated, Tensor(z.real.clone(), out=negated):
        with pytest.raises(halyard.Error, match="has PyTorch's negative bit"):
            halyard.rotate(given, angles=angles, positions=0)
    with pytest.raises(halyard.Error, match="conjugate bit" if is_before_2_10(torch) else "complex64"):
        halyard.rotate(z.conj(), angles=angles, positions=0)
    with torch.no_grad(), pytest.raises(halyard.Error, match="negative bit"):
        torch.ops.halyard.rotate_(negated, halyard.torch.describe(angles))


def test_the_package_s_own_example():
    assert doctest.testmod(halyard) == doctest.TestResults(failed=0, attempted=4)

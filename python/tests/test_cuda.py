"""Tensors on the emulated CUDA device of the host build (checks/cuda/driver.h): rotate enqueues its work on the stream
of the arrays' library without waiting, gives the bits of the CPU, and refuses mixed devices."""

import ctypes
import os
import pathlib
import subprocess
import sys
from unittest import mock

import ml_dtypes
import numpy as np
import pytest

import halyard
from halyard import AngleSource, Norm, Tensor

DRIVER = pathlib.Path(__file__).parents[2] / "build" / "host" / "emulated_cuda"
DIM = 64
STREAM = ctypes.c_void_p()  # the current stream of the arrays' library; Device creates it
pointer, number = ctypes.c_void_p, ctypes.c_int32


class DLTensor(ctypes.Structure):
    _fields_ = [("data", pointer), ("device", number), ("device_id", number), ("n_dims", number),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", pointer), ("byte_offset", ctypes.c_uint64)]


@ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(DLTensor))
def to_tensor(array, out):
    dtype = np.dtype(array.dtype)
    array.kept = (ctypes.c_int64 * len(array.shape))(*array.shape)
    out[0] = DLTensor(array.address, 2, array.device, len(array.shape), {"f": 2, "i": 0, "V": 4}[dtype.kind],
                      8 * dtype.itemsize, 1, array.kept, None, 0)
    return 0


@ctypes.PYFUNCTYPE(ctypes.c_int, number, number, ctypes.POINTER(pointer))
def current_stream(device, device_id, out):
    out[0] = STREAM.value
    return 0


class ExchangeApi(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("unused", pointer * 4),
                ("to_tensor", type(to_tensor)), ("current_stream", type(current_stream))]


NAME, API = b"dlpack_exchange_api", ExchangeApi(1, 2, (pointer * 4)(), to_tensor, current_stream)  # the capsule's
make_capsule = ctypes.pythonapi.PyCapsule_New
make_capsule.restype, make_capsule.argtypes = ctypes.py_object, (pointer, ctypes.c_char_p, pointer)


class OnDevice:
    """An array in device memory, of a library that has DLPack's C functions."""

    __dlpack_c_exchange_api__ = make_capsule(ctypes.addressof(API), NAME, None)

    def __init__(self, shape, dtype="f4", device=0, address=1 << 20):
        self.shape, self.dtype, self.device, self.address = shape, dtype, device, address


def test_one_place_for_all(angles):
    """Arrays on different devices are refused, in builds with and without CUDA, without a driver."""
    far, near = OnDevice((3, 2, DIM)), np.ones((3, 2, DIM), np.float32)
    out = near.copy()
    for stages, more, name in ((dict(out=far), {}, "out of q"), ({}, dict(k=Tensor(far, out=far)), "k"),
                               ({}, dict(positions=OnDevice((3,), "i8")), "positions"),
                               (dict(scale=OnDevice((1,))), {}, "scale of q")):
        with pytest.raises(halyard.Error, match=f"{name} lies on CUDA device 0"):
            halyard.rotate(Tensor(near, **{"out": out, **stages}), angles=angles, **more)
        assert np.array_equal(out, near)
    with pytest.raises(halyard.Error, match="keys lies on CUDA device 0"):
        halyard.rerotate(far, angles=angles, from_positions=0, positions=1)
    with pytest.raises(halyard.Error, match="cos lies on CUDA device 0"):
        AngleSource.given(OnDevice((3, 32)), OnDevice((3, 32)))
    if not halyard._core.has_cuda:
        with pytest.raises(halyard.Error, match="q lies on CUDA device 0, but this build of Halyard is for CPUs alone"):
            halyard.rotate(far, angles=angles, in_place=True)


@pytest.mark.skipif(not halyard._core.has_cuda, reason="the package was built without the GPU's part")
def test_on_a_device():
    """Runs this file as a program, in a new process whose LD_LIBRARY_PATH has the emulated driver."""
    if not (DRIVER / "libcuda.so.1").exists():
        pytest.skip(f"there is no {DRIVER}/libcuda.so.1, which the host build's target halyard_emulated_cuda makes")
    done = subprocess.run([sys.executable, __file__], text=True, capture_output=True, timeout=500, check=False,
                          env={**os.environ, "LD_LIBRARY_PATH": str(DRIVER)})
    assert done.returncode == 0 and "all is well" in done.stdout, done.stderr


class Device:
    """The CUDA driver with a context and a stream; copies arrays to and from the device."""

    def __init__(self):
        self.driver, context = ctypes.CDLL("libcuda.so.1"), pointer()
        self.call("cuInit", 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.call("cuCtxPushCurrent_v2", context)
        self.call("cuStreamCreate", ctypes.byref(STREAM), 1)

    def call(self, name, *arguments):
        status = getattr(self.driver, name)(*arguments)
        assert status == 0, f"{name} returns {status}"

    def put(self, values):
        """Copies an array to the device. Returns the copy, whose attribute `before` keeps the values."""
        address = ctypes.c_ulonglong()
        self.call("cuMemAlloc_v2", ctypes.byref(address), values.nbytes)
        self.call("cuMemcpyHtoD_v2", address, values.ctypes.data_as(pointer), ctypes.c_size_t(values.nbytes))
        self.call("cuStreamSynchronize", None)  # waits for the copy, because STREAM does not
        array = OnDevice(values.shape, values.dtype, address=address.value)
        array.before = values.copy()
        return array

    def read(self, array):
        """The values of an array now. Waits for the default stream, but not for STREAM."""
        values = np.empty(array.shape, array.dtype)
        self.call("cuMemcpyDtoH_v2", values.ctypes.data_as(pointer), ctypes.c_ulonglong(array.address),
                  ctypes.c_size_t(values.nbytes))
        return values

    def get(self, *arrays):
        """Checks that the work on STREAM has not changed the arrays yet, waits for it, and returns the new values."""
        assert all(self.read(array).tobytes() == array.before.tobytes() for array in arrays)
        self.call("cuStreamSynchronize", STREAM)
        return [self.read(array) for array in arrays]


def check_refusals(device, source, q):
    near, rows, at = np.zeros(q.shape, np.float32), np.ones((9, DIM // 2), np.float32), device.put(np.arange(9))
    for message, x, more in (
            ("out of q lies on the CPU", Tensor(q, out=near), {}), ("k lies on the CPU", q, dict(k=near)),
            ("device 1", Tensor(q, out=OnDevice(q.shape, device=1, address=q.address)), {}),
            ("positions is a number", q, dict(positions=3)),
            ("angles are given", q, dict(angles=AngleSource.given(rows, rows), positions=at)),
            ("target", q, dict(target="x86_avx2"))):
        with pytest.raises(halyard.Error, match=message):
            halyard.rotate(x, **{"angles": source, "in_place": True, **more})


def check_pytorch(device, source, q):
    """For PyTorch tensors, halyard.rotate makes q's device current, and puts an int position into an array on it."""
    try:
        import torch
    except ImportError:
        return
    q.is_cuda = True
    with mock.patch("torch.cuda.device") as on_device, mock.patch(
            "torch.full", side_effect=lambda shape, start, **_: device.put(np.full(shape, start))) as full:
        halyard.rotate(q, angles=source, positions=7, in_place=True)
    on_device.assert_called_once_with(0)
    full.assert_called_once_with((1, 1), 7, dtype=torch.int64, device=0)
    (rotated,) = device.get(q)
    assert rotated.tobytes() == halyard.rotate(q.before, angles=source, positions=7).tobytes()


def check_results(device, source, rng):
    def draw(shape, dtype):
        return rng.standard_normal(shape).astype(dtype)

    def compare(tensors, caches=3 * [None], weights=3 * [None], *, in_place=False, on_both={}, **more):
        """The device gives the bytes of the CPU. on_both: rotate's other arrays, by name; each place gets a copy."""
        def rotate(place):
            inputs, outputs = [], []
            for x, cache, weight in zip(tensors, caches, weights):
                x, cache, weight = (None if each is None else place(each) for each in (x, cache, weight))
                out = None if cache is not None else x if in_place else place(np.zeros(x.shape, x.dtype))
                norm = None if weight is None else Norm(weight, 1e-5)
                inputs.append(Tensor(x, norm=norm, cache=cache, out=out))
                outputs.append(cache if out is None else out)
            given = {name: place(x) for name, x in on_both.items()}
            halyard.rotate(*inputs, angles=source, **more, **given)
            return outputs

        for result, expected in zip(device.get(*rotate(device.put)), rotate(np.copy)):
            assert result.tobytes() == expected.tobytes()

    given = dict(positions=rng.integers(0, 100000, 9))
    for dtype in (np.float32, np.float16, ml_dtypes.bfloat16):
        q, k, v, cache = (draw((n, heads, DIM), dtype) for n, heads in ((9, 4), (9, 2), (9, 2), (16, 2)))
        for in_place in (False, True):
            for positions in {}, given, dict(positions=np.full((1, 1), 77)):
                compare([q, k], in_place=in_place, on_both=positions)
        compare([q], on_both=given, pairing="interleaved", inverse=True)
        stored = dict(given, slots=rng.permutation(16)[:9].astype(np.int32))
        stored["slots"][4] = -1
        weights = [rng.standard_normal(DIM).astype(dtype) for _ in range(2)]  # GPUs have kernels for this dtype
        compare([q, k], weights=weights, on_both=given)
        compare([q, k, v], [None, cache, cache], on_both=stored, duplicate_slots="last")
        compare([q, k], [None, cache], weights, on_both=stored, duplicate_slots="last")


if __name__ == "__main__":
    the_device, the_source = Device(), AngleSource(halyard.Frequencies.from_base(1e4, DIM))
    check_results(the_device, the_source, np.random.default_rng(20261121))
    check_refusals(the_device, the_source, the_device.put(np.ones((9, 4, DIM), np.float32)))
    check_pytorch(the_device, the_source, the_device.put(np.ones((6, 4, DIM), np.float32)))
    print("all is well")

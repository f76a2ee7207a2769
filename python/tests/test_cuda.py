"""Tensors on a CUDA device, which is the emulated one of the host build (checks/cuda/driver.h): what is enqueued, and
where; that results are the CPU's; and what is refused."""

import contextlib
import ctypes
import os
import pathlib
import shutil
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

import halyard
from halyard import Tensor

ROOT = pathlib.Path(__file__).parents[2]
DRIVER = ROOT / "build" / "host" / "emulated_cuda"
COUNTERS = r"""
#include "checks/cuda/driver.h"
struct Question { const char *name; void *stream; int count; };
extern "C" __attribute__((visibility("default"))) int count_calls(const char *name, void *stream) {
    Question question = {name, stream, 0};
    emulated_cuda_access([](emulated_cuda::Driver &driver, void *argument) {
        auto &asked = *static_cast<Question *>(argument);
        for (const auto &call : driver.calls) {
            asked.count += call.name == asked.name && call.stream == asked.stream;
        }
    }, &question);
    return question.count;
}
"""
BASE, DIM = 1e4, 64
STREAM = ctypes.c_void_p()  # the one that arrays' library works on; made with the first device


class DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("n_dims", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


TO_TENSOR = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(DLTensor))
CURRENT_STREAM = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))


class ExchangeApi(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("previous", ctypes.c_void_p),
                ("unused", ctypes.c_void_p * 3), ("to_tensor", TO_TENSOR), ("current_stream", CURRENT_STREAM)]


@TO_TENSOR
def to_tensor(array, out):
    code, bits = {"f": 2, "i": 0, "V": 4}[np.dtype(array.dtype).kind], 8 * np.dtype(array.dtype).itemsize
    array.kept = (ctypes.c_int64 * len(array.shape))(*array.shape)
    out[0] = DLTensor(array.address, 2, array.device, len(array.shape), code, bits, 1, array.kept, None, 0)
    return 0


@CURRENT_STREAM
def current_stream(device, device_id, out):
    out[0] = STREAM.value
    return 0


NAME = b"dlpack_exchange_api"  # a capsule points to its name
API = ExchangeApi(1, 2, None, (ctypes.c_void_p * 3)(), to_tensor, current_stream)
ctypes.pythonapi.PyCapsule_New.restype = ctypes.py_object
ctypes.pythonapi.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class OnDevice:
    """An array in a device's memory, as a library with DLPack's C functions has it."""

    __dlpack_c_exchange_api__ = ctypes.pythonapi.PyCapsule_New(ctypes.addressof(API), NAME, None)

    def __init__(self, shape, dtype="f4", device=0, address=1 << 20):
        self.shape, self.dtype, self.device, self.address = shape, dtype, device, address


def test_one_place_for_all(angles):
    """Whatever the build: nothing is read, and no driver asked."""
    far, near = OnDevice((3, 2, DIM)), np.ones((3, 2, DIM), np.float32)
    for stages, more, sentence in ((dict(out=far), {}, "out of q lies on CUDA device 0"),
                                   ({}, dict(k=Tensor(far, out=far)), "k lies on CUDA device 0"),
                                   ({}, dict(positions=OnDevice((3,), "i8")), "positions lies on CUDA device 0"),
                                   (dict(scale=OnDevice((1,))), {}, "scale of q lies on CUDA device 0")):
        out = near.copy()
        with pytest.raises(halyard.Error, match=sentence):
            halyard.rotate(Tensor(near, **{"out": out, **stages}), angles=angles, **more)
        assert np.array_equal(out, near)
    with pytest.raises(halyard.Error, match="CUDA device 0"):
        halyard.rerotate(far, angles=angles, from_positions=0, positions=1)
    with pytest.raises(halyard.Error, match="cos lies on CUDA device 0"):
        halyard.AngleSource.given(OnDevice((3, 32)), OnDevice((3, 32)))
    if not halyard._core.has_cuda:
        with pytest.raises(halyard.Error, match="q lies on CUDA device 0, but this build of Halyard is for CPUs alone"):
            halyard.rotate(far, angles=angles, in_place=True)


@pytest.mark.skipif(not halyard._core.has_cuda, reason="the package was built without the GPU's part")
@pytest.mark.parametrize("check", ["enqueued", "results"])
def test_on_a_device(tmp_path, run_python, check):
    """In a process of its own, with a driver of its own."""
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        pytest.skip("there is no compiler")
    if not (DRIVER / "libcuda.so.1").exists():
        pytest.skip(f"there is no {DRIVER}/libcuda.so.1, which the host build's target halyard_emulated_cuda makes")
    (tmp_path / "counters.cpp").write_text(COUNTERS)
    subprocess.run([compiler, "-std=c++20", "-shared", "-fPIC", "-I", ROOT, tmp_path / "counters.cpp",
                    DRIVER / "libcuda.so.1", "-o", tmp_path / "libcounters.so"], check=True)
    done = run_python(__file__, check, library_path=[DRIVER, tmp_path])
    assert done.returncode == 0 and "all is well" in done.stdout, done.stderr


class Device:
    """The driver, with a context and a stream, and memory of it."""

    def __init__(self):
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.counters = ctypes.CDLL("libcounters.so")
        context = ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.call("cuCtxPushCurrent_v2", context)
        self.call("cuStreamCreate", ctypes.byref(STREAM), 1)

    def call(self, name, *arguments):
        status = getattr(self.driver, name)(*arguments)
        assert status == 0, f"{name} returns {status}"

    def put(self, values):
        """A copy of an array on the device."""
        address = ctypes.c_ulonglong()
        self.call("cuMemAlloc_v2", ctypes.byref(address), values.nbytes)
        self.call("cuMemcpyHtoD_v2", address, values.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(values.nbytes))
        self.call("cuStreamSynchronize", None)  # the copy may be on its way yet, and STREAM does not wait for it
        return OnDevice(values.shape, values.dtype, address=address.value)

    def get(self, array):
        values = np.empty(array.shape, array.dtype)
        self.call("cuStreamSynchronize", STREAM)
        self.call("cuMemcpyDtoH_v2", values.ctypes.data_as(ctypes.c_void_p), ctypes.c_ulonglong(array.address),
                  ctypes.c_size_t(values.nbytes))
        return values

    def count(self, name, stream=None):
        return self.counters.count_calls(name.encode(), STREAM if stream is None else ctypes.c_void_p(stream))

    def launches(self, call):
        call()  # the first one makes a plan, which loads the kernels by launches of nothing
        before = self.count("cuLaunchKernel")
        call()
        return self.count("cuLaunchKernel") - before


def check_pytorch(device, source, q):
    """What is asked of PyTorch for its tensors: to work on q's device, and for a first position that lies there."""
    try:
        import torch
    except ImportError:
        return
    devices, numbers = [], []

    @contextlib.contextmanager
    def on_device(device):
        devices.append(device)
        yield

    def full(shape, number, **options):
        numbers.append((shape, number, options))
        return device.put(np.full(shape, number))

    q.is_cuda = True
    real = torch.cuda.device, torch.full
    torch.cuda.device, torch.full = on_device, full
    try:
        assert device.launches(lambda: halyard.rotate(q, angles=source, positions=7, in_place=True)) == 1
    finally:
        torch.cuda.device, torch.full = real
        del q.is_cuda
    assert devices == [0, 0] and numbers == 2 * [((1, 1), 7, dict(dtype=torch.int64, device=0))]


def check_enqueued():
    device = Device()
    count, launches = device.count, device.launches
    source = halyard.AngleSource(halyard.Frequencies.from_base(1e4, DIM))
    q, k, out, cache = (device.put(np.ones((6, heads, DIM), np.float32)) for heads in (4, 2, 4, 2))
    positions, starts, slots = (device.put(values) for values in
                                (np.arange(6), np.full((1, 1), 3), np.arange(6, dtype=np.int32)))
    assert launches(lambda: halyard.rotate(q, k, angles=source, positions=positions, in_place=True)) == 2
    loaded, waited = count("cuModuleLoadData", 0), count("cuStreamSynchronize")
    for arguments in (dict(positions=positions), dict(positions=starts), dict()):
        assert launches(lambda: halyard.rotate(q, k, angles=source, in_place=True, **arguments)) == 2
    assert count("cuModuleLoadData", 0) == loaded and count("cuStreamSynchronize") == waited
    assert launches(lambda: halyard.rotate(Tensor(q, out=out), angles=source)) == 1
    norm = halyard.Norm(device.put(np.ones(DIM, np.float32)))
    assert launches(lambda: halyard.rotate(
        Tensor(q, norm=norm, out=q), Tensor(k, norm=norm, cache=cache), angles=source, positions=positions, slots=slots,
        duplicate_slots="last")) == 1
    assert count("cuLaunchKernel", 0) == 0  # on no other stream

    check_pytorch(device, source, q)
    near = np.zeros((6, 4, DIM), np.float32)
    rows = np.ones((9, DIM // 2), np.float32)
    given = halyard.AngleSource.given(rows, rows)
    for sentence, call in (
            ("out of q lies on the CPU", lambda: halyard.rotate(Tensor(q, out=near), angles=source)),
            ("k lies on the CPU", lambda: halyard.rotate(q, near, angles=source, in_place=True)),
            ("device 1", lambda: halyard.rotate(
                Tensor(q, out=OnDevice(q.shape, device=1, address=q.address)), angles=source)),
            ("positions is a number", lambda: halyard.rotate(q, angles=source, positions=3, in_place=True)),
            ("positions lies on the CPU",
             lambda: halyard.rotate(q, angles=source, positions=np.arange(6), in_place=True)),
            ("angles are given", lambda: halyard.rotate(q, angles=given, positions=positions, in_place=True)),
            ("target", lambda: halyard.rotate(q, angles=source, target="x86_avx2", in_place=True)),
            ("out of q", lambda: halyard.rotate(Tensor(q, out=OnDevice(q.shape, address=q.address + 4)), angles=source))):
        with pytest.raises(halyard.Error, match=sentence):
            call()
    del source


def assert_bits(result, expected):
    """Any NaN equals any other."""
    words = f"u{expected.itemsize}"
    same = result.view(words) == expected.view(words)
    assert (same | (np.isnan(result) & np.isnan(expected))).all()


def rotate_on_both(device, source, tensors, caches=None, weights=None, in_place=False, on_device=None,
                   rotary_offset=0, **options):
    """Rotates arrays on the device and on the CPU; options of on_device are arrays that both take. Compares results."""
    def rotate(place, take):
        inputs = [place(x) for x in tensors]
        stores = [None if cache is None else place(cache) for cache in caches or len(tensors) * [None]]
        outputs = inputs if in_place else [place(np.zeros_like(x)) for x in tensors]
        more = {name: place(values) for name, values in (on_device or {}).items()}
        norms = [halyard.Norm(place(weight), 1e-5) for weight in weights] if weights else len(inputs) * [None]
        halyard.rotate(*(Tensor(x, rotary_offset=rotary_offset, norm=norm, cache=store, out=None if store is not None else output)
                         for x, norm, store, output in zip(inputs, norms, stores, outputs)),
                       angles=source, **more, **options)
        return [take(output if store is None else store) for store, output in zip(stores, outputs)]

    for result, expected in zip(rotate(device.put, device.get), rotate(np.copy, lambda values: values)):
        assert_bits(result, expected)


def check_results():
    device = Device()
    rng = np.random.default_rng(20261121)
    source = halyard.AngleSource(halyard.Frequencies.from_base(1e4, DIM))

    def draw(shape, dtype=np.float32):
        """Numbers, and some that are none."""
        values = rng.standard_normal(shape).astype(dtype)
        special = rng.random(shape) < 0.01
        values[special] = rng.choice([np.nan, np.inf, -np.inf, -0.0], special.sum())
        return values

    given = dict(positions=rng.integers(0, 100000, 9))
    for dtype in (np.float32, np.float16, ml_dtypes.bfloat16):
        q, k = draw((9, 4, DIM), dtype), draw((9, 2, DIM), dtype)
        for in_place in (False, True):
            rotate_on_both(device, source, [q, k], in_place=in_place)
            rotate_on_both(device, source, [q, k], in_place=in_place, on_device=given)
            rotate_on_both(device, source, [q, k], in_place=in_place, on_device=dict(positions=np.full((1, 1), 77)))
        rotate_on_both(device, source, [q], pairing="interleaved", on_device=given, inverse=True)
        rotate_on_both(device, source, [draw((9, 4, 96), dtype)], rotary_offset=32, on_device=given)
        # One token of each sequence.
        decoded, at = [draw((9, 1, heads, DIM), dtype) for heads in (4, 2)], given["positions"].astype(np.int32)
        rotate_on_both(device, source, decoded, in_place=True, on_device=dict(positions=at.reshape(9, 1)))

        v, cache = draw((9, 2, DIM), dtype), draw((16, 2, DIM), dtype)
        stored = dict(**given, slots=rng.permutation(16)[:9].astype(np.int32))
        stored["slots"][4] = -1
        weights = [rng.standard_normal(DIM).astype(dtype) for _ in range(2)]  # of what a device has a kernel for
        rotate_on_both(device, source, [q, k], weights=weights, on_device=given)
        rotate_on_both(device, source, [q, k, v], [None, cache, cache], on_device=stored, duplicate_slots="last")
        rotate_on_both(device, source, [q, k], [None, cache], weights, on_device=stored, duplicate_slots="last")
    del source


if __name__ == "__main__":
    {"enqueued": check_enqueued, "results": check_results}[sys.argv[1]]()
    print("all is well")

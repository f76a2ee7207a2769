"""Tensors on a CUDA device: what is enqueued, and where, on a driver that only records (tests/gpu/fake_cuda.h); and what
is refused. Whether the kernels are right is for the tests of the library."""

import contextlib
import ctypes
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest

import halyard

FAKE = pathlib.Path(__file__).parents[2] / "tests" / "gpu"
COUNTERS = r"""
#include "fake_cuda.h"
#include <string>
struct Question { const char *name; void *stream; int count; };
extern "C" __attribute__((visibility("default"))) int count_calls(const char *name, void *stream) {
    Question question = {name, stream, 0};
    fake_cuda_access([](fake_cuda::Driver &driver, void *argument) {
        auto &asked = *static_cast<Question *>(argument);
        for (const auto &call : driver.calls) {
            asked.count += call.name == asked.name && call.stream == asked.stream;
        }
    }, &question);
    return question.count;
}
"""
DIM, STREAM = 64, 0x5000


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
    code, bits = {"f": 2, "i": 0}[np.dtype(array.dtype).kind], 8 * np.dtype(array.dtype).itemsize
    array.kept = (ctypes.c_int64 * len(array.shape))(*array.shape)
    out[0] = DLTensor(array.address, 2, array.device, len(array.shape), code, bits, 1, array.kept, None, 0)
    return 0


@CURRENT_STREAM
def current_stream(device, device_id, out):
    out[0] = STREAM + device_id
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


@pytest.fixture(scope="module")
def angles():
    return halyard.AngleSource(halyard.Frequencies.from_base(1e4, DIM))


def test_one_place_for_all(angles):
    """Whatever the build: nothing is read, and no driver asked."""
    far, near = OnDevice((3, 2, DIM)), np.ones((3, 2, DIM), np.float32)
    for q, more, sentence in ((near, dict(out=far), "out of q lies on CUDA device 0"),
                              (near, dict(k=far, out=(near.copy(), far)), "k lies on CUDA device 0"),
                              (near, dict(positions=OnDevice((3,), "i8")), "positions lies on CUDA device 0"),
                              (near, dict(scale=OnDevice((1,))), "scale of q lies on CUDA device 0")):
        out = near.copy()
        with pytest.raises(halyard.Error, match=sentence):
            halyard.rotate(q, angles=angles, **{"out": out, **more})
        assert np.array_equal(out, near)
    with pytest.raises(halyard.Error, match="CUDA device 0"):
        halyard.rerotate(far, angles=angles, from_positions=0, positions=1)
    with pytest.raises(halyard.Error, match="cos lies on CUDA device 0"):
        halyard.AngleSource.given(OnDevice((3, 32)), OnDevice((3, 32)))
    if not halyard._core.has_gpu:
        with pytest.raises(halyard.Error, match="q lies on CUDA device 0, but this build of Halyard is for CPUs alone"):
            halyard.rotate(far, angles=angles, out=far)


@pytest.mark.skipif(not halyard._core.has_gpu, reason="the package was built without the GPU's part")
def test_what_is_enqueued(tmp_path):
    """In a process of its own, with a driver of its own."""
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        pytest.skip("there is no compiler")
    (tmp_path / "counters.cpp").write_text(COUNTERS)
    subprocess.run([compiler, "-std=c++20", "-shared", "-fPIC", "-I", FAKE, FAKE / "fake_cuda.cpp",
                    tmp_path / "counters.cpp", "-o", tmp_path / "libcuda.so.1", "-Wl,-soname,libcuda.so.1"], check=True)
    package = str(pathlib.Path(halyard.__file__).parents[1])
    done = subprocess.run([sys.executable, __file__], text=True, capture_output=True, timeout=100, env={
        **os.environ, "LD_LIBRARY_PATH": str(tmp_path),
        "PYTHONPATH": os.pathsep.join([package, os.environ.get("PYTHONPATH", "")])})
    assert done.returncode == 0 and "all is well" in done.stdout, done.stderr


def check_pytorch(source, q, allocate, launches):
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
        return allocate(shape, "i8")

    q.is_cuda = True
    real = torch.cuda.device, torch.full
    torch.cuda.device, torch.full = on_device, full
    try:
        assert launches(lambda: halyard.rotate(q, angles=source, positions=7, out=q)) == 1
    finally:
        torch.cuda.device, torch.full = real
        del q.is_cuda
    assert devices == [0, 0] and numbers == 2 * [((1, 1), 7, dict(dtype=torch.int64, device=0))]


def check_what_is_enqueued():
    driver = ctypes.CDLL("libcuda.so.1")
    context = ctypes.c_void_p()
    for status in (driver.cuInit(0), driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0),
                   driver.cuCtxPushCurrent_v2(context)):
        assert status == 0

    def allocate(shape, dtype="f4"):
        address = ctypes.c_ulonglong()
        assert driver.cuMemAlloc_v2(ctypes.byref(address), int(np.prod(shape)) * np.dtype(dtype).itemsize) == 0
        return OnDevice(shape, dtype, address=address.value)

    def count(name, stream=STREAM):
        return driver.count_calls(name.encode(), ctypes.c_void_p(stream))

    def launches(call):
        call()  # the first one makes a plan, which loads the kernels by launches of nothing
        before = count("cuLaunchKernel")
        call()
        return count("cuLaunchKernel") - before

    source = halyard.AngleSource(halyard.Frequencies.from_base(1e4, DIM))
    q, k, out, cache = (allocate((6, heads, DIM)) for heads in (4, 2, 4, 2))
    positions, starts, slots = allocate((6,), "i8"), allocate((1, 1), "i8"), allocate((6,), "i4")
    assert launches(lambda: halyard.rotate(q, k, angles=source, positions=positions, out=(q, k))) == 2
    loaded, waited = count("cuModuleLoadData", 0), count("cuStreamSynchronize")
    for arguments in (dict(positions=positions), dict(positions=starts), dict()):
        assert launches(lambda: halyard.rotate(q, k, angles=source, out=(q, k), **arguments)) == 2
    assert count("cuModuleLoadData", 0) == loaded and count("cuStreamSynchronize") == waited
    assert launches(lambda: halyard.rotate(q, angles=source, out=out)) == 1
    weight = allocate((DIM,))
    assert launches(lambda: halyard.rotate(
        q, k, angles=source, positions=positions, out=(q,), cache=(None, cache), slots=slots, duplicate_slots="last",
        norm=(halyard.Norm(weight), halyard.Norm(weight)))) == 1  # all of the road
    assert count("cuLaunchKernel", 0) == 0  # on no other stream

    check_pytorch(source, q, allocate, launches)
    near = np.zeros((6, 4, DIM), np.float32)
    rows = np.ones((9, DIM // 2), np.float32)
    given = halyard.AngleSource.given(rows, rows)
    joined = halyard.AngleSource.joined([source, source], np.zeros(1, np.int32))
    for sentence, call in (
            ("out of q lies on the CPU", lambda: halyard.rotate(q, angles=source, out=near)),
            ("k lies on the CPU", lambda: halyard.rotate(q, near, angles=source, out=(q, near))),
            ("device 1", lambda: halyard.rotate(q, angles=source, out=OnDevice(q.shape, device=1, address=q.address))),
            ("positions is a number", lambda: halyard.rotate(q, angles=source, positions=3, out=q)),
            ("positions lies on the CPU", lambda: halyard.rotate(q, angles=source, positions=np.arange(6), out=q)),
            ("given or joined", lambda: halyard.rotate(q, angles=given, positions=positions, out=q)),
            ("given or joined", lambda: halyard.rotate(q, angles=joined, positions=positions, out=q)),
            ("target", lambda: halyard.rotate(q, angles=source, target="x86_avx2", out=q)),
            ("y", lambda: halyard.rotate(q, angles=source, out=OnDevice(q.shape, address=q.address + 4)))):
        with pytest.raises(halyard.Error, match=sentence):
            call()
    del source
    print("all is well")


if __name__ == "__main__":
    check_what_is_enqueued()

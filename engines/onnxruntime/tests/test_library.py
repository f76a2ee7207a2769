"""What loads the library, and what does not."""

import ctypes
import pathlib
import subprocess

import nodes
import numpy as np
import onnxruntime
import pytest


def test_it_may_be_registered_many_times():
    for _ in range(3):
        options = onnxruntime.SessionOptions()
        options.register_custom_ops_library(nodes.LIBRARY)
        options.register_custom_ops_library(str(pathlib.Path(nodes.LIBRARY).resolve()))


@pytest.mark.parametrize("path", ["/nonexistent/libhalyard_onnxruntime.so", __file__])
def test_what_is_no_library_is_refused(path):
    with pytest.raises(onnxruntime.capi.onnxruntime_pybind11_state.Fail, match=pathlib.Path(path).name):
        onnxruntime.SessionOptions().register_custom_ops_library(path)


def test_an_older_onnxruntime_gets_a_sentence():
    """One that has not got the API: it serves versions up to 20, whose first function is CreateStatus."""
    create_status_type = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)
    sentences = []

    def create_status(code, sentence):
        sentences.append((code, sentence.decode()))
        return 4711

    class OrtApi(ctypes.Structure):
        _fields_ = [("CreateStatus", create_status_type)]

    class OrtApiBase(ctypes.Structure):
        _fields_ = [("GetApi", ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)),
                    ("GetVersionString", ctypes.CFUNCTYPE(ctypes.c_char_p))]

    api = OrtApi(create_status_type(create_status))
    asked = []

    def get_api(version):
        asked.append(version)
        return ctypes.addressof(api) if version <= 20 else None

    version = ctypes.create_string_buffer(b"1.20.1")
    version_type = ctypes.CFUNCTYPE(ctypes.c_void_p)
    base = OrtApiBase(OrtApiBase._fields_[0][1](get_api),
                      ctypes.cast(version_type(lambda: ctypes.addressof(version)), OrtApiBase._fields_[1][1]))
    register = ctypes.CDLL(nodes.LIBRARY).RegisterCustomOps
    register.restype = ctypes.c_void_p
    assert register(None, ctypes.byref(base)) == 4711
    assert asked[0] == 21
    assert sentences == [(9, "halyard: this library needs ONNX Runtime's API 21, and this is ONNX Runtime 1.20.1")]


def test_a_session_without_the_library_is_as_before():
    inputs = {"x": np.zeros((1, 2, 16), np.float32), "cos": np.ones((4, 4), np.float32),
              "sin": np.zeros((4, 4), np.float32), "ids": np.array([[0, 1]])}
    stock = nodes.make_session(nodes.make_model("RotaryEmbedding", inputs, domain="", num_heads=2), library=False)
    assert (stock.run(None, inputs)[0] == 0).all()
    with pytest.raises(Exception, match="halyard"):
        nodes.make_session(nodes.make_model("RotaryEmbedding", inputs, num_heads=2), library=False)


def test_it_exports_one_function_and_needs_no_onnxruntime():
    exported = subprocess.run(["nm", "-D", "--defined-only", "--format=posix", nodes.LIBRARY], check=True,
                              capture_output=True, text=True).stdout
    assert [line.split()[0] for line in exported.splitlines()] == ["RegisterCustomOps"]
    maps = pathlib.Path(nodes.LIBRARY).read_bytes()
    assert b"libonnxruntime.so" not in maps

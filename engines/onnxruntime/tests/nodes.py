"""Models of one node, sessions with Halyard's library, and what is exact."""

import pathlib
import sys

import ml_dtypes
import numpy as np
import onnxruntime
from onnx import TensorProto, helper

sys.path.append(str(pathlib.Path(__file__).resolve().parents[3] / "python" / "tests"))
import exact  # noqa: E402

LIBRARY = None  # the path; set by conftest.py or times.py

TYPES = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.float16): TensorProto.FLOAT16,
         np.dtype(ml_dtypes.bfloat16): TensorProto.BFLOAT16, np.dtype(np.float64): TensorProto.DOUBLE,
         np.dtype(np.int64): TensorProto.INT64, np.dtype(np.int32): TensorProto.INT32}
DTYPES = [np.float32, np.float16, ml_dtypes.bfloat16]


def opsets(onnx_version=23):
    return [helper.make_opsetid("", onnx_version), helper.make_opsetid("com.microsoft", 1),
            helper.make_opsetid("halyard", 1)]


def make_session(model, n_threads=2, library=True, **settings):
    """A session of a ModelProto or a path; library: whether it may use Halyard's operators."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = n_threads
    options.log_severity_level = 4
    for name, value in settings.items():
        setattr(options, name, value)
    if library:
        options.register_custom_ops_library(LIBRARY)
    return onnxruntime.InferenceSession(model if isinstance(model, str) else model.SerializeToString(), options,
                                        providers=["CPUExecutionProvider"])


def make_model(op, inputs, n_outputs=1, domain="halyard", **attributes):
    """One node. inputs: name -> array or None, in order. ONNX Runtime's Python has no arrays of bf16, so a model with
    such casts from and to f32, which is exact."""
    bf16 = np.dtype(ml_dtypes.bfloat16)
    names = [name if array is not None else "" for name, array in inputs.items()]
    while names and not names[-1]:
        names.pop()
    infos, graph_nodes = [], []
    for name, array in inputs.items():
        if array is None:
            continue
        is_bf16 = array.dtype == bf16
        infos.append(helper.make_tensor_value_info(name + "_f32" if is_bf16 else name,
                                                   TensorProto.FLOAT if is_bf16 else TYPES[array.dtype],
                                                   [None] * array.ndim))
        if is_bf16:
            graph_nodes.append(helper.make_node("Cast", [name + "_f32"], [name], to=TensorProto.BFLOAT16))
    dtype = next(iter(inputs.values())).dtype
    outputs = [f"out{i}" for i in range(n_outputs)]
    graph_nodes.append(helper.make_node(op, names, outputs, domain=domain, **attributes))
    if dtype == bf16:
        graph_nodes += [helper.make_node("Cast", [o], [o + "_f32"], to=TensorProto.FLOAT) for o in outputs]
        outputs = [o + "_f32" for o in outputs]
    out_type = TensorProto.FLOAT if dtype == bf16 else TYPES[dtype]
    graph = helper.make_graph(graph_nodes, "node", infos,
                              [helper.make_tensor_value_info(o, out_type, None) for o in outputs])
    return helper.make_model(graph, opset_imports=opsets(), ir_version=10)


def feeds_of(inputs):
    bf16 = np.dtype(ml_dtypes.bfloat16)
    return {name + "_f32" if array.dtype == bf16 else name: array.astype(np.float32) if array.dtype == bf16 else array
            for name, array in inputs.items() if array is not None}


def run_node(op, inputs, n_outputs=1, domain="halyard", n_threads=2, **attributes):
    """The outputs; those of a node of bf16 as f32."""
    session = make_session(make_model(op, inputs, n_outputs, domain, **attributes), n_threads)
    feeds = feeds_of(inputs)
    before = {name: array.tobytes() for name, array in feeds.items()}
    outputs = session.run(None, feeds)
    assert all(before[name] == array.tobytes() for name, array in feeds.items()), "an input was written to"
    return outputs[0] if n_outputs == 1 else outputs


def rotate_exactly(x, cos, sin, interleaved=False):
    """(result, pairs' lengths times the rows'): x [batch, tokens, heads, head_dim], rows [batch, tokens, 1,
    rotary_dim / 2]."""
    return exact.turn(x, cos, sin, pairing="interleaved" if interleaved else "half")


def check(y, result, length, dtype, n_eps=2.0):
    exact.check_near(y, result, length, dtype, n_eps * exact.EPS)

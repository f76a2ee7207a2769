"""The peers of the bench: other libraries' RoPE, timed in the bench's process on the memory that Halyard uses.

A peer computes angles in its own way. A peer that takes tables of cos and sin gets Hugging Face's, computed in float32,
as exporters write them. What a peer makes once per model or once for all layers (tables, rows of cos and sin, compiled
graphs) is made beforehand, untimed.
"""

import contextlib
import ctypes
import functools
import importlib
import mmap
import os
import pathlib
import sys
import time
import types
import typing

ENVIRONMENT = pathlib.Path(sys.prefix)
# Compiled graphs are kept in the environment, so that the next run need not compile them again.
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(ENVIRONMENT / "torchinductor"))
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # no other processes that compile while a call is timed

import ml_dtypes
import numpy as np

from peers.kv_path import ready_kv_path
from rounds import Subject, make_timer

NAMES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}  # torch's and NumPy's
BASE, MAX_POSITION = 10000.0, 32768


class Refused(Exception):
    """A peer cannot do this case; the text says why."""


class Placed(types.SimpleNamespace):
    """A rotation with its arrays: x and y of each copy are dense [tokens, heads, head_dim]. Functions that are passed
    to `done` are called when the peer is no longer needed."""

    def __init__(self, case, prepared, done):
        super().__init__(done=done, **case.about())
        self.heads, self.type = case.model.heads, np.dtype(getattr(ml_dtypes, NAMES[self.dtype], NAMES[self.dtype]))
        self.shape = self.tokens, self.heads, self.head_dim
        array = lambda what, copy, dtype, shape: np.frombuffer(
            prepared.memory(what, int(np.prod(shape)) * dtype.itemsize, copy), dtype).reshape(shape)
        self.positions = array("positions", 0, np.dtype(np.int64), (self.tokens,)).copy()
        self.copies = [tuple(array(what, i, self.type, self.shape) for what in "xy")
                       for i in range(prepared.n_copies)]

    def own_outputs(self):
        """The outputs of a peer that cannot rotate in place: y; for cases in place one extra tensor for all copies."""
        own = np.frombuffer(mmap.mmap(-1, self.copies[0][0].nbytes), self.type).reshape(self.shape)
        return [own if self.in_place else y for x, y in self.copies]


@functools.lru_cache(maxsize=4)
def float32_rows(positions, rotary_dim):
    """cos and sin, float32 [positions, rotary_dim / 2], by Hugging Face's recipe; positions as bytes of int64."""
    positions = np.frombuffer(positions, np.int64).astype(np.float32)
    exponents = np.arange(0, rotary_dim, 2).astype(np.float32) / np.float32(rotary_dim)
    angles = positions[:, None] * (np.float32(1) / np.float32(BASE) ** exponents)
    return np.cos(angles), np.sin(angles)


# ---- Rotations: each function returns its calls, one for each copy, and the array that the first call writes ---------
# (None: the call returns a PyTorch tensor).


def onnx_runtime(case):
    """Its RotaryEmbedding operator with cos_cache and sin_cache. It cannot rotate in place: see own_outputs."""
    import onnxruntime
    from onnx import TensorProto, helper
    kind = helper.np_dtype_to_tensor_dtype(case.type)
    x_shape, rows = [1, case.tokens, case.heads * case.head_dim], [MAX_POSITION, case.rotary_dim // 2]
    inputs = {"x": (kind, x_shape), "position_ids": (TensorProto.INT64, [1, case.tokens]),
              "cos_cache": (kind, rows), "sin_cache": (kind, rows)}
    partial = {} if case.rotary_dim == case.head_dim else {"rotary_embedding_dim": case.rotary_dim}
    node = helper.make_node("RotaryEmbedding", list(inputs), ["y"], domain="com.microsoft", num_heads=case.heads,
                            interleaved=int(case.pairing == "interleaved"), **partial)
    infos = [helper.make_tensor_value_info(name, *of) for name, of in inputs.items()]
    graph = helper.make_graph([node], "rope", infos, [helper.make_tensor_value_info("y", kind, x_shape)])
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        helper.make_model(graph, ir_version=10, opset_imports=opsets).SerializeToString(), options,
        ["CPUExecutionProvider"])
    value = onnxruntime.OrtValue.ortvalue_from_numpy
    caches = (rows.astype(case.type) for rows in float32_rows(np.arange(MAX_POSITION).tobytes(), case.rotary_dim))
    constants = dict(zip(("cos_cache", "sin_cache"), map(value, caches)))
    constants["position_ids"], outputs, calls = value(case.positions[None]), case.own_outputs(), []
    for (x, _), y in zip(case.copies, outputs):
        binding = session.io_binding()
        for name, bound in {**constants, "x": value(x.reshape(x_shape))}.items():
            binding.bind_ortvalue_input(name, bound)
        binding.bind_ortvalue_output("y", value(y.reshape(x_shape)))
        calls.append(functools.partial(session.run_with_iobinding, binding))
    return calls, outputs[0]


def transformers(case, is_compiled=False):
    """PyTorch, eager or compiled: apply_rotary_pos_emb of Llama (half) and of GPT-J (interleaved), into new memory,
    with rows of cos and sin as a Llama model makes them once for all layers."""
    import torch
    from transformers.models.gptj.modeling_gptj import apply_rotary_pos_emb as interleaved
    from transformers.models.llama import modeling_llama
    dtype, n = getattr(torch, NAMES[case.dtype]), case.rotary_dim
    config = modeling_llama.LlamaConfig(head_dim=n, max_position_embeddings=MAX_POSITION,
                                        rope_parameters={"rope_type": "default", "rope_theta": BASE})
    cos, sin = modeling_llama.LlamaRotaryEmbedding(config)(torch.empty(0, dtype=dtype),
                                                           torch.from_numpy(case.positions)[None])
    if case.pairing == "interleaved":
        cos, sin = (rows[..., : n // 2].contiguous() for rows in (cos, sin))
        whole = lambda x: interleaved(x, sin, cos)
    else:  # the function takes q and k: here q has all heads, and k none
        whole = lambda x: modeling_llama.apply_rotary_pos_emb(x.transpose(1, 2), x.transpose(1, 2)[:, :0], cos,
                                                              sin)[0].transpose(1, 2)
    rotate = whole if n == case.head_dim else lambda x: torch.cat((whole(x[..., :n]), x[..., n:]), -1)
    if is_compiled:
        rotate = compiled(rotate)
        rotate(torch.zeros(1, *case.shape, dtype=dtype))
    return [functools.partial(rotate, torch.from_numpy(x.view(np.uint8)).view(dtype)[None])
            for x, _ in case.copies], None


def compiled(function):
    """torch.compile for one thread. Each case is compiled by itself; without raised limits PyTorch would silently go
    back to eager calls."""
    import torch
    import torch._dynamo
    import torch._inductor.config
    torch._inductor.config.cpp.threads = 1
    torch._dynamo.config.recompile_limit = torch._dynamo.config.accumulated_recompile_limit = 100_000
    return torch.compile(function, dynamic=False)


def openvino(case):
    """The graph as it is exported from Llama models, but with the tokens as the batch, so that x is dense. OpenVINO's
    CPU plugin fuses this graph into its RoPE operation. Rows of cos and sin in f32 were made beforehand."""
    import openvino
    from openvino import opset13 as op
    kind, n, shape = getattr(openvino.Type, case.dtype), case.rotary_dim, [case.tokens, case.heads, 1, case.head_dim]
    if case.pairing != "half":
        raise Refused("fuses no interleaved pairs into its RoPE operation")
    columns = lambda x, *bounds: op.slice(x, *(op.constant(np.array([value], np.int64)) for value in (*bounds, 1, 3)))
    x, *rows = op.parameter(shape, kind), *(op.parameter([case.tokens, 1, 1, n], np.float32) for _ in ("cos", "sin"))
    cos, sin, minus_one = (one if case.dtype == "f32" else op.convert(one, kind.get_type_name())
                           for one in (*rows, op.constant(np.float32(-1))))
    window = x if n == case.head_dim else columns(x, 0, n)
    first, second = columns(window, 0, n // 2), columns(window, n // 2, 2**31 - 1)
    rotate_half = op.concat([op.multiply(second, minus_one), first], -1)
    y = op.add(op.multiply(window, cos), op.multiply(rotate_half, sin))
    graph = y if n == case.head_dim else op.concat([y, columns(x, n, 2**31 - 1)], -1)
    model = openvino.Core().compile_model(openvino.Model([graph], [x, *rows]), "CPU", {
        "INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": kind, "ENABLE_CPU_PINNING": False})
    if "RoPE" not in (node.get_rt_info()["layerType"].astype(str) for node in model.get_runtime_model().get_ops()):
        raise Refused("does not fuse this into its RoPE operation")

    def tensor(array):
        if case.dtype == "bf16":
            return openvino.Tensor(array.view(np.uint16).reshape(shape), shape, kind)
        return openvino.Tensor(array.reshape(shape), shared_memory=True)

    arrays = [np.concatenate((r, r), -1).reshape(case.tokens, 1, 1, -1)
              for r in float32_rows(case.positions.tobytes(), n)]
    case.done(arrays.clear)  # keeps them alive, which OpenVINO's tensors do not
    outputs, calls = case.own_outputs(), []
    for (x, _), y in zip(case.copies, outputs):
        request = model.create_infer_request()
        for i, one in enumerate([tensor(x), *(openvino.Tensor(r, shared_memory=True) for r in arrays)]):
            request.set_input_tensor(i, one)
        request.set_output_tensor(tensor(y))
        calls.append(functools.partial(request.infer, share_outputs=True))
    return calls, outputs[0]


class Pointer(ctypes.c_void_p):
    """The result type of functions that return a pointer. (ctypes converts plain c_void_p results to integers.)"""


@functools.cache
def ggml_function(name, result=Pointer):
    for library in "libggml-base.so.0", "libggml-cpu.so.0":
        loaded = ctypes.CDLL(ENVIRONMENT / "ggml" / library, ctypes.RTLD_GLOBAL)
        if hasattr(loaded, f"ggml_{name}"):
            function = getattr(loaded, f"ggml_{name}")
            function.restype = result
            return function
    raise Refused(f"ggml has no ggml_{name}")


class GgmlParams(ctypes.Structure):
    _fields_ = [("mem_size", ctypes.c_size_t), ("mem_buffer", ctypes.c_void_p), ("no_alloc", ctypes.c_bool)]


def ggml(case):
    """ggml's ROPE node, which computes cos and sin in each call."""
    types, size, real = {"f32": 0, "f16": 1, "i32": 26}, ctypes.c_size_t, ctypes.c_float
    if case.dtype not in types:
        raise Refused(f"no {case.dtype}")

    def call(name, *arguments, result=Pointer):
        return ggml_function(name, result)(*arguments)

    def owned(made, free):
        case.done(lambda: call(free, made))
        return made

    params = ctypes.create_string_buffer(4096)
    call("threadpool_params_init", params, 1)
    pool = owned(call("threadpool_new", params), "threadpool_free")
    backend = owned(call("backend_cpu_init"), "backend_free")
    call("backend_cpu_set_n_threads", backend, 1)
    call("backend_cpu_set_threadpool", backend, pool)
    n_bytes = 3 * call("tensor_overhead", result=size)
    n_bytes += call("graph_overhead_custom", size(8), False, result=size)
    context = owned(call("init", GgmlParams(n_bytes * len(case.copies) + 4096, None, True)), "free")

    def buffer(at, end):
        return owned(call("backend_cpu_buffer_from_ptr", ctypes.c_void_p(at), size(end - at)), "backend_buffer_free")

    def place(buffer, tensor, at):
        call("backend_tensor_alloc", buffer, tensor, ctypes.c_void_p(at))
        return tensor

    memory = mmap.mmap(-1, 4 * case.tokens)
    numbers = np.frombuffer(memory, np.int32)
    numbers[:] = case.positions
    places = [(array.ctypes.data, array.ctypes.data + array.nbytes) for array in (numbers, *sum(case.copies, ()))]
    positions = place(buffer(*places[0]), call("new_tensor_1d", context, types["i32"], ctypes.c_int64(case.tokens)),
                      places[0][0])
    tensors, calls = buffer(min(at for at, _ in places[1:]), max(end for _, end in places[1:])), []
    for x_at, y_at in case.copies:
        shape = map(ctypes.c_int64, (case.head_dim, case.heads, case.tokens))
        x = place(tensors, call("new_tensor_3d", context, types[case.dtype], *shape), x_at.ctypes.data)
        y = call("rope_ext_inplace" if case.in_place else "rope_ext", context, x, positions, None, case.rotary_dim,
                 2 if case.pairing == "half" else 0, 0, *map(real, (BASE, 1, 0, 1, 0, 0)))
        if not case.in_place:
            place(tensors, y, y_at.ctypes.data)
        graph = call("new_graph_custom", context, size(8), False)
        call("build_forward_expand", graph, y)
        calls.append(functools.partial(ggml_function("backend_graph_compute", ctypes.c_int), backend, graph))
    case.done(lambda: numbers is None)  # keeps numbers alive as long as the peer is used
    return calls, case.copies[0][1]


def rotation(make):
    """Peer.ready for a rotation: (its calls, a function that copies the first call's result to y). make(placed) returns
    the calls and their output."""
    def ready(case, prepared, done):
        placed = Placed(case, prepared, done)
        calls, output = make(placed)
        y = placed.copies[0][1]
        done(lambda: output)  # keeps it alive, which OpenVINO's tensors do not

        def leave(result):
            if output is None:
                import torch
                result = result[0].contiguous().view(torch.uint8).numpy()
            made, y_bytes = result if output is None else output, y.view(np.uint8)
            y_bytes[:] = made.view(np.uint8).reshape(y_bytes.shape)
        return calls, leave
    return ready


# ---- All of them -----------------------------------------------------------------------------------------------------


def versions(*names):
    """Imports these modules; returns the versions of the last one and of PyTorch."""
    modules = [importlib.import_module(name) for name in names]
    if "torch" in names:
        modules[0].set_num_threads(1)
        modules[0].set_grad_enabled(False)
    return ", torch ".join(dict.fromkeys(module.__version__.split("-")[0] for module in (modules[-1], *modules[:-1])
                                         if module is modules[-1] or module.__name__ == "torch"))


class Peer(typing.NamedTuple):
    name: str
    package: str  # the section of peers.txt
    version: typing.Callable  # raises if the library is missing
    ready: typing.Callable  # (case, prepared, done) -> (calls, function that copies the first result to y)


with_torch = functools.partial(versions, "torch", "transformers")
PEERS = {
    "rotation": (
        Peer("onnxruntime", "onnxruntime", lambda: versions("onnx", "onnxruntime"), rotation(onnx_runtime)),
        Peer("transformers", "transformers", with_torch, rotation(transformers)),
        Peer("transformers-compiled", "transformers", with_torch,
             rotation(functools.partial(transformers, is_compiled=True))),
        Peer("openvino", "openvino", lambda: versions("openvino"), rotation(openvino)),
        Peer("ggml", "ggml", lambda: ggml_function("version", ctypes.c_char_p)().decode(), rotation(ggml))),
    "kv_path": (
        Peer("torch", "transformers", lambda: versions("torch"), functools.partial(ready_kv_path, lambda call: call)),
        Peer("torch-compiled", "transformers", lambda: versions("torch"), functools.partial(ready_kv_path, compiled))),
}


def one_sentence(error):
    """The first line of an error's text that is not empty."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:300]


class Peers:
    """The peers of rotations ("rotation") or of the KV path ("kv_path"). `list` is what --json writes: "peers" with
    their versions, "absent" peers with the reason, and "refused": why a peer could not do some cases."""

    def __init__(self, kind):
        self.list, self.peers, self.stack = {"peers": [], "absent": [], "refused": []}, [], contextlib.ExitStack()
        for peer in PEERS[kind]:
            try:
                self.list["peers"].append({"name": peer.name, "version": peer.version()})
                self.peers.append(peer)
            except Exception as error:
                why = ENVIRONMENT / f"{peer.package}.why"  # ./run writes it if the package cannot be installed
                self.list["absent"].append({"name": peer.name,
                                            "why": why.read_text() if why.exists() else one_sentence(error)})

    def subjects(self, case, prepared, judge):
        """A Subject for each peer that can do the case, its result compared. Ends the subjects of the previous case."""
        self.stack.close()
        found = []
        for peer in self.peers:
            try:
                calls, leave = peer.ready(case, prepared, self.stack.callback)
                prepared.reset()
                leave(calls[0]())
                about = {"kind": "peer", **judge(prepared.difference(), case.tolerance)}
            except Exception as error:
                refusal = {"name": peer.name, "why": one_sentence(error)}
                if refusal not in self.list["refused"]:
                    self.list["refused"].append(refusal)
                continue
            # CPU time of the process, because a peer may work on other threads; Halyard's is that of its thread.
            found.append(Subject(peer.name, make_timer(*calls, clock=time.process_time), about=about))
        return found

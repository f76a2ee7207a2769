"""The peers of the bench: other libraries' RoPE, timed in the bench's process on the memory that Halyard works on.

A peer makes its angles by its own recipe. A peer that takes caches gets what exporters put there: angles by Hugging
Face's recipe in float32. What a peer makes once per model or once for all layers (caches, rows of cos and sin, compiled
graphs) is made beforehand, untimed.
"""

import ctypes
import functools
import mmap
import os
import pathlib
import sys
import time
import types

ENVIRONMENT = pathlib.Path(sys.prefix)
# Compiled graphs are kept in the environment, so that the next run need not compile them again.
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(ENVIRONMENT / "torchinductor"))
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # no other processes that compile while a call is timed

import ml_dtypes
import numpy as np

from native import Prepared
from peers import kv_path
from rounds import Subject, timer_of
from works import Model, Work

DTYPES = {"f32": np.dtype(np.float32), "f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}
BASE = 10000.0


class Refused(Exception):
    """A peer can't do this work, and says why."""


class Placed(types.SimpleNamespace):
    """A rotation with its arrays: x and y of each copy are dense [tokens, heads, head_dim]."""

    def __init__(self, work, prepared):
        super().__init__(base=BASE, max_position=32768, prepared=prepared, **work.about())
        self.heads, dtype = work.model.heads, DTYPES[self.dtype]
        self.shape = self.tokens, self.heads, self.head_dim
        array = lambda what, copy, dtype, shape: np.frombuffer(
            prepared.memory(what, int(np.prod(shape)) * dtype.itemsize, copy), dtype).reshape(shape)
        self.positions = array("positions", 0, np.dtype(np.int64), (self.tokens,)).copy()
        self.copies = [tuple(array(what, i, dtype, self.shape) for what in "xy") for i in range(prepared.n_copies)]

    def own_outputs(self):
        """Where a peer that can't work in place writes: y, or one tensor of its own for all copies."""
        own = aligned_bytes(self.copies[0][0].nbytes).view(DTYPES[self.dtype]).reshape(self.shape)
        return [own if self.in_place else y for x, y in self.copies]


def aligned_bytes(size):
    return np.frombuffer(mmap.mmap(-1, max(size, 1)), np.uint8, size)


@functools.lru_cache(maxsize=4)
def float32_rows(positions, rotary_dim, base):
    """cos and sin, float32 [positions, rotary_dim / 2], by Hugging Face's recipe; positions as bytes of int64."""
    positions = np.frombuffer(positions, np.int64).astype(np.float32)
    exponents = np.arange(0, rotary_dim, 2).astype(np.float32) / np.float32(rotary_dim)
    inv_freq = np.float32(1) / np.float32(base) ** exponents
    angles = positions[:, None] * inv_freq
    return np.cos(angles), np.sin(angles)


class Peer:
    """One library. An object of it is ready for one work: calls[i]() rotates copy i."""

    def __init__(self, work, prepared):
        self.work = Placed(work, prepared)
        self.ready(self.work)

    def output(self, result):
        """What a call on copy 0 returned, as an array like x; None where the call wrote to y itself."""
        return result

    def leave_result(self):
        """Calls the peer on copy 0 as it is now, and leaves the result in y of it."""
        y = self.work.copies[0][1]
        result = self.output(self.calls[0]())
        if result is not None and result is not y:
            y.view(np.uint8)[:] = np.ascontiguousarray(result).view(np.uint8).reshape(*self.work.shape[:2], -1)


class OnnxRuntime(Peer):
    """Its own operator, which takes rows from caches by position; into memory of its own where the work is in place."""

    name = "onnxruntime"
    package = "onnxruntime"

    @staticmethod
    def load():
        import onnx
        import onnxruntime
        return onnxruntime.__version__

    def ready(self, work):
        import onnx
        import onnxruntime
        from onnx import helper
        kind = {"f32": onnx.TensorProto.FLOAT, "f16": onnx.TensorProto.FLOAT16, "bf16": onnx.TensorProto.BFLOAT16}
        hidden = work.heads * work.head_dim
        rows = [work.max_position, work.rotary_dim // 2]
        shapes = {"x": [1, work.tokens, hidden], "position_ids": [1, work.tokens], "cos_cache": rows, "sin_cache": rows}
        types = {name: kind[work.dtype] for name in shapes} | {"position_ids": onnx.TensorProto.INT64}
        partial = {} if work.rotary_dim == work.head_dim else {"rotary_embedding_dim": work.rotary_dim}
        node = helper.make_node("RotaryEmbedding", list(shapes), ["y"], domain="com.microsoft", num_heads=work.heads,
                                interleaved=int(work.pairing == "interleaved"), **partial)
        graph = helper.make_graph([node], "rope",
                                  [helper.make_tensor_value_info(name, types[name], shapes[name]) for name in shapes],
                                  [helper.make_tensor_value_info("y", kind[work.dtype], shapes["x"])])
        opsets = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, ir_version=10, opset_imports=opsets)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
        self.caches = [rows.astype(DTYPES[work.dtype]) for rows in float32_rows(
            np.arange(work.max_position).tobytes(), work.rotary_dim, work.base)]

        def value(array):
            return onnxruntime.OrtValue.ortvalue_from_numpy(array)

        constants = {"position_ids": value(work.positions[None]),
                     "cos_cache": value(self.caches[0]), "sin_cache": value(self.caches[1])}
        self.outputs = work.own_outputs()
        self.calls = []
        for (x, _), y in zip(work.copies, self.outputs):
            binding = session.io_binding()
            for name, constant in constants.items():
                binding.bind_ortvalue_input(name, constant)
            binding.bind_ortvalue_input("x", value(x.reshape(shapes["x"])))
            binding.bind_ortvalue_output("y", value(y.reshape(shapes["x"])))
            self.calls.append(functools.partial(session.run_with_iobinding, binding))

    def output(self, result):
        return self.outputs[0]


class Transformers(Peer):
    """PyTorch, eager: apply_rotary_pos_emb of Llama (half) and of GPT-J (interleaved), into new memory, with rows of
    cos and sin that were made beforehand."""

    name = "transformers"
    package = "transformers"

    @staticmethod
    def load():
        import torch
        import transformers
        from transformers.models.gptj import modeling_gptj
        from transformers.models.llama import modeling_llama
        torch.set_grad_enabled(False)
        return f"{transformers.__version__}, torch {torch.__version__}"

    def ready(self, work):
        import torch
        torch.set_num_threads(1)
        dtype = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[work.dtype]
        tensors = [torch.from_numpy(x.view(np.uint8)).view(dtype)[None] for x, _ in work.copies]
        rotate = self.ready_to_call((self.half if work.pairing == "half" else self.interleaved)(work, dtype), work)
        self.calls = [functools.partial(rotate, x) for x in tensors]

    def ready_to_call(self, rotate, work):
        return rotate

    @staticmethod
    def rows(work, dtype):
        """cos and sin, [1, tokens, rotary_dim], as a Llama model makes them once for all layers."""
        import torch
        from transformers.models.llama import modeling_llama
        config = modeling_llama.LlamaConfig(head_dim=work.rotary_dim, max_position_embeddings=work.max_position,
                                            rope_parameters={"rope_type": "default", "rope_theta": work.base})
        make = modeling_llama.LlamaRotaryEmbedding(config)
        return make(torch.empty(0, dtype=dtype), torch.from_numpy(work.positions)[None])

    def half(self, work, dtype):
        import torch
        from transformers.models.llama.modeling_llama import apply_rotary_pos_emb
        n, (cos, sin) = work.rotary_dim, self.rows(work, dtype)

        def rotate(x):
            # The function takes q and k: here q has all heads, and k none.
            x = x.transpose(1, 2)
            if n == x.shape[-1]:
                return apply_rotary_pos_emb(x, x[:, :0], cos, sin)[0].transpose(1, 2)
            y, _ = apply_rotary_pos_emb(x[..., :n], x[:, :0, :, :n], cos, sin)
            return torch.cat((y, x[..., n:]), -1).transpose(1, 2)

        return rotate

    def interleaved(self, work, dtype):
        import torch
        from transformers.models.gptj.modeling_gptj import apply_rotary_pos_emb
        n = work.rotary_dim
        cos, sin = (rows[..., : n // 2].contiguous() for rows in self.rows(work, dtype))

        def rotate(x):
            if n == x.shape[-1]:
                return apply_rotary_pos_emb(x, sin, cos)
            return torch.cat((apply_rotary_pos_emb(x[..., :n], sin, cos), x[..., n:]), -1)

        return rotate

    def output(self, result):
        import torch
        return result[0].contiguous().view(torch.uint8).numpy()


class TransformersCompiled(Transformers):
    name = "transformers-compiled"

    def ready_to_call(self, rotate, work):
        import torch
        import torch._dynamo
        import torch._inductor.config
        torch._inductor.config.cpp.threads = 1
        # Each work is compiled apart; at these limits PyTorch would silently go back to eager calls.
        torch._dynamo.config.recompile_limit = torch._dynamo.config.accumulated_recompile_limit = 100_000
        compiled = torch.compile(rotate, dynamic=False)
        dtype = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[work.dtype]
        compiled(torch.zeros(1, *work.shape, dtype=dtype))
        return compiled


class OpenVino(Peer):
    """Graphs that its CPU plugin fuses into its RoPE operation; rows of cos and sin in f32 were made beforehand."""

    name = "openvino"
    package = "openvino"

    @staticmethod
    def load():
        import openvino
        return openvino.__version__.split("-")[0]

    def ready(self, work):
        import openvino
        from openvino import opset13 as op
        types = {"f32": openvino.Type.f32, "f16": openvino.Type.f16, "bf16": openvino.Type.bf16}
        self.op, self.type = op, types[work.dtype]
        if work.pairing != "half":
            raise Refused("fuses no interleaved pairs into its RoPE operation")
        shape = [work.tokens, work.heads, 1, work.head_dim]
        compiled = openvino.Core().compile_model(self.graph(work), "CPU", {
            "INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": self.type,
            "ENABLE_CPU_PINNING": False})
        kinds = [node.get_rt_info()["layerType"].astype(str) for node in compiled.get_runtime_model().get_ordered_ops()]
        kinds = [kind for kind in kinds if kind not in ("Input", "Output", "Const")]
        if "RoPE" not in kinds:
            raise Refused("does not fuse this into its RoPE operation")
        self.outputs = work.own_outputs()
        rows = float32_rows(work.positions.tobytes(), work.rotary_dim, work.base)
        # OpenVINO's tensors do not keep them.
        self.arrays = [np.concatenate((r, r), -1).reshape(work.tokens, 1, 1, -1) for r in rows]
        rows = [openvino.Tensor(r, shared_memory=True) for r in self.arrays]
        self.calls = []
        for (x, _), y in zip(work.copies, self.outputs):
            request = compiled.create_infer_request()
            for i, tensor in enumerate([self.tensor(x, shape), *rows]):
                request.set_input_tensor(i, tensor)
            request.set_output_tensor(self.tensor(y, shape))
            self.calls.append(functools.partial(request.infer, share_outputs=True))

    def tensor(self, array, shape):
        import openvino
        if self.type == openvino.Type.bf16:
            return openvino.Tensor(array.view(np.uint16).reshape(shape), shape, self.type)
        return openvino.Tensor(array.reshape(shape), shared_memory=True)

    def columns(self, x, begin, end):
        return self.op.slice(x, *(self.op.constant(np.array([value], np.int64)) for value in (begin, end, 1, 3)))

    def graph(self, work):
        """The graph that is exported from Llama models, but with the tokens as the batch, so that x is dense."""
        import openvino
        op, n = self.op, work.rotary_dim
        x = op.parameter([work.tokens, work.heads, 1, work.head_dim], self.type)
        rows = [op.parameter([work.tokens, 1, 1, n], np.float32) for _ in ("cos", "sin")]
        cos, sin, minus_one = (r if self.type == openvino.Type.f32 else op.convert(r, self.type.get_type_name())
                               for r in (*rows, op.constant(np.float32(-1))))
        rotated = x if n == work.head_dim else self.columns(x, 0, n)
        first, second = self.columns(rotated, 0, n // 2), self.columns(rotated, n // 2, 2**31 - 1)
        turned = op.concat([op.multiply(second, minus_one), first], -1)
        y = op.add(op.multiply(rotated, cos), op.multiply(turned, sin))
        if n < work.head_dim:
            y = op.concat([y, self.columns(x, n, 2**31 - 1)], -1)
        return openvino.Model([y], [x, *rows])

    def output(self, result):
        return self.outputs[0]


class Ggml(Peer):
    """cos and sin are made in the call."""

    name = "ggml"
    package = "ggml"

    class InitParams(ctypes.Structure):
        _fields_ = [("mem_size", ctypes.c_size_t), ("mem_buffer", ctypes.c_void_p), ("no_alloc", ctypes.c_bool)]

    @classmethod
    def load(cls):
        names = ("libggml-base.so.0", "libggml-cpu.so.0")
        cls.base, cls.cpu = (ctypes.CDLL(ENVIRONMENT / "ggml" / name, ctypes.RTLD_GLOBAL) for name in names)
        pointer, size, number, real = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_float
        rope = [pointer] * 4 + [number] * 3 + [real] * 6
        for library, name, result, arguments in (
                (cls.base, "ggml_version", ctypes.c_char_p, []),
                (cls.base, "ggml_tensor_overhead", size, []),
                (cls.base, "ggml_graph_overhead_custom", size, [size, ctypes.c_bool]),
                (cls.base, "ggml_init", pointer, [cls.InitParams]),
                (cls.base, "ggml_free", None, [pointer]),
                (cls.base, "ggml_new_tensor_1d", pointer, [pointer, number, ctypes.c_int64]),
                (cls.base, "ggml_new_tensor_3d", pointer, [pointer, number] + [ctypes.c_int64] * 3),
                (cls.base, "ggml_new_graph_custom", pointer, [pointer, size, ctypes.c_bool]),
                (cls.base, "ggml_build_forward_expand", None, [pointer] * 2),
                (cls.base, "ggml_rope_ext", pointer, rope),
                (cls.base, "ggml_rope_ext_inplace", pointer, rope),
                (cls.base, "ggml_threadpool_params_init", None, [pointer, number]),
                (cls.base, "ggml_backend_cpu_buffer_from_ptr", pointer, [pointer, size]),
                (cls.base, "ggml_backend_buffer_free", None, [pointer]),
                (cls.base, "ggml_backend_tensor_alloc", number, [pointer] * 3),
                (cls.base, "ggml_backend_graph_compute", number, [pointer] * 2),
                (cls.base, "ggml_backend_free", None, [pointer]),
                (cls.cpu, "ggml_threadpool_new", pointer, [pointer]),
                (cls.cpu, "ggml_threadpool_free", None, [pointer]),
                (cls.cpu, "ggml_backend_cpu_init", pointer, []),
                (cls.cpu, "ggml_backend_cpu_set_n_threads", None, [pointer, number]),
                (cls.cpu, "ggml_backend_cpu_set_threadpool", None, [pointer] * 2)):
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
        return cls.base.ggml_version().decode()

    def ready(self, work):
        types = {"f32": 0, "f16": 1}
        if work.dtype not in types:
            raise Refused(f"no {work.dtype}")
        base, cpu, integer = self.base, self.cpu, 26
        self.backend = cpu.ggml_backend_cpu_init()
        cpu.ggml_backend_cpu_set_n_threads(self.backend, 1)
        params = ctypes.create_string_buffer(4096)
        base.ggml_threadpool_params_init(params, 1)
        self.pool = cpu.ggml_threadpool_new(params)
        cpu.ggml_backend_cpu_set_threadpool(self.backend, self.pool)
        size = 3 * base.ggml_tensor_overhead() + base.ggml_graph_overhead_custom(8, False)
        self.context = base.ggml_init(self.InitParams(size * len(work.copies) + 4096, None, True))
        self.positions = aligned_bytes(4 * work.tokens).view(np.int32)
        self.positions[:] = work.positions
        places = [(array.ctypes.data, array.nbytes) for copy in work.copies for array in copy]
        first, end = min(at for at, _ in places), max(at + n_bytes for at, n_bytes in places)
        self.buffers = [base.ggml_backend_cpu_buffer_from_ptr(at, size) for at, size in
                        ((self.positions.ctypes.data, self.positions.nbytes), (first, end - first))]
        positions = base.ggml_new_tensor_1d(self.context, integer, work.tokens)
        base.ggml_backend_tensor_alloc(self.buffers[0], positions, self.positions.ctypes.data)
        rope = base.ggml_rope_ext_inplace if work.in_place else base.ggml_rope_ext
        mode = 2 if work.pairing == "half" else 0
        self.calls = []
        for x_at, y_at in work.copies:
            x = base.ggml_new_tensor_3d(self.context, types[work.dtype], work.head_dim, work.heads, work.tokens)
            base.ggml_backend_tensor_alloc(self.buffers[1], x, x_at.ctypes.data)
            y = rope(self.context, x, positions, None, work.rotary_dim, mode, 0, work.base, 1, 0, 1, 0, 0)
            if not work.in_place:
                base.ggml_backend_tensor_alloc(self.buffers[1], y, y_at.ctypes.data)
            graph = base.ggml_new_graph_custom(self.context, 8, False)
            base.ggml_build_forward_expand(graph, y)
            self.calls.append(functools.partial(base.ggml_backend_graph_compute, self.backend, graph))

    def __del__(self):
        if hasattr(self, "buffers"):
            for buffer in self.buffers:
                self.base.ggml_backend_buffer_free(buffer)
            self.base.ggml_free(self.context)
            self.base.ggml_backend_free(self.backend)
            self.cpu.ggml_threadpool_free(self.pool)

    def output(self, result):
        return None


ROTATIONS = (OnnxRuntime, Transformers, TransformersCompiled, OpenVino, Ggml)


def one_sentence(error):
    """The first line that says something."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:300]


def timer(*calls):
    """How long this process had a CPU, as Halyard's thread is timed."""
    return timer_of(*calls, clock=time.process_time)


class Peers:
    """Those of rotations, or of the KV path. `list` is {"peers", "absent", "refused"}: the versions of those that are
    there, why others are not, and why some could not do some of the works."""

    def __init__(self, kind):
        self.list = {"peers": [], "absent": [], "refused": []}
        self.peers, self.overheads, self.kept = [], {}, None
        for peer in ROTATIONS if kind == "rotation" else kv_path.PEERS:
            try:
                self.list["peers"].append({"name": peer.name, "version": peer.load()})
                self.peers.append(peer)
            except Exception as error:
                why = ENVIRONMENT / f"{peer.package}.why"  # left by ./run where it could not be installed
                self.list["absent"].append({"name": peer.name,
                                            "why": why.read_text() if why.exists() else one_sentence(error)})

    def overhead_of(self, peer, work):
        """The same kind of work with next to nothing to do."""
        key = peer, work.kernel
        if key not in self.overheads:
            tiny = Work(Model("tiny", 1, 0, 2, 2, work.model.pairing, work.model.out_pairing), 1, work.dtype,
                        work.in_place)
            self.overheads[key] = peer(tiny, Prepared(tiny.described()))
        return timer(self.overheads[key].calls[0])

    def subjects(self, work, prepared, judge):
        """What is timed of each that can do the work, after its result was compared."""
        found, self.kept = [], []  # the peers of the work before, and their memory, go first
        for peer in self.peers:
            try:
                ready = peer(work, prepared)
                prepared.reset()
                ready.leave_result()
                about = {"kind": "peer", **judge(prepared.difference(), work.slack)}
                if isinstance(work, Work):
                    about["overhead"] = self.overhead_of(peer, work)
            except Exception as error:
                refusal = {"name": peer.name, "why": one_sentence(error)}
                if refusal not in self.list["refused"]:
                    self.list["refused"].append(refusal)
                continue
            self.kept.append(ready)
            found.append(Subject(peer.name, timer(*ready.calls), about=about))
        return found

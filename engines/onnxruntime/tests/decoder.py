"""A small decoder of random weights, as exporters write them: norms of q and k, grouped heads, a cache that grows."""

import numpy as np
import onnx
from nodes import opsets
from onnx import TensorProto, helper, numpy_helper


class Decoder:
    """style: "onnx" has RMSNormalization, Transpose and RotaryEmbedding of opset 23 on [batch, heads, tokens,
    head_dim]; "microsoft" has com.microsoft's on [batch, tokens, heads * head_dim], without norms of q and k."""

    def __init__(self, style, n_layers=2, width=256, heads=8, kv_heads=2, head_dim=64, n_tokens=2048, vocabulary=512,
                 seed=0):
        self.style, self.n_layers, self.width = style, n_layers, width
        self.heads, self.kv_heads, self.head_dim, self.vocabulary = heads, kv_heads, head_dim, vocabulary
        self.rng = np.random.default_rng(seed)
        self.nodes, self.weights = [], []
        # As exporters make them: float32 all the way.
        self.inv_freq = 10000.0 ** (-np.arange(head_dim // 2) * 2 / head_dim)
        angles = np.arange(n_tokens, dtype=np.float32)[:, None] * self.inv_freq.astype(np.float32)
        self.constant("cos", np.cos(angles))
        self.constant("sin", np.sin(angles))
        self.model = self.build()

    def constant(self, name, array):
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def add(self, op, inputs, domain="", **attributes):
        outputs = [f"{op}_{len(self.nodes)}"]
        self.nodes.append(helper.make_node(op, inputs, outputs, domain=domain, **attributes))
        return outputs[0]

    def linear(self, x, n_in, n_out):
        weight = self.rng.standard_normal((n_in, n_out)).astype(np.float32) / np.sqrt(n_in, dtype=np.float32)
        return self.add("MatMul", [x, self.constant(f"w{len(self.weights)}", weight)])

    def norm(self, x, size):
        weight = self.rng.uniform(0.5, 1.5, size).astype(np.float32)
        return self.add("RMSNormalization", [x, self.constant(f"n{len(self.weights)}", weight)], epsilon=1e-6)

    def rotated(self, x, n_heads):
        """[batch, heads, tokens, head_dim]"""
        split = self.constant(f"s{len(self.weights)}", np.array([0, 0, n_heads, self.head_dim]))
        if self.style == "onnx":
            x = self.norm(self.add("Reshape", [x, split]), self.head_dim)
            x = self.add("Transpose", [x], perm=[0, 2, 1, 3])
            return self.add("RotaryEmbedding", [x, "cos", "sin", "position_ids"])
        x = self.add("RotaryEmbedding", [x, "position_ids", "cos", "sin"], "com.microsoft", num_heads=n_heads)
        return self.add("Transpose", [self.add("Reshape", [x, split])], perm=[0, 2, 1, 3])

    def layer(self, x, i):
        normed = self.norm(x, self.width)
        q = self.rotated(self.linear(normed, self.width, self.heads * self.head_dim), self.heads)
        k = self.rotated(self.linear(normed, self.width, self.kv_heads * self.head_dim), self.kv_heads)
        split = self.constant(f"s{len(self.weights)}", np.array([0, 0, self.kv_heads, self.head_dim]))
        v = self.add("Reshape", [self.linear(normed, self.width, self.kv_heads * self.head_dim), split])
        v = self.add("Transpose", [v], perm=[0, 2, 1, 3])
        y = f"attention_{i}"
        self.nodes.append(helper.make_node("Attention", [q, k, v, "", f"past_k{i}", f"past_v{i}"],
                                           [y, f"present_k{i}", f"present_v{i}"], is_causal=1))
        flat = self.constant(f"s{len(self.weights)}", np.array([0, 0, self.heads * self.head_dim]))
        y = self.add("Reshape", [self.add("Transpose", [y], perm=[0, 2, 1, 3]), flat])
        x = self.add("Add", [x, self.linear(y, self.heads * self.head_dim, self.width)])
        normed = self.norm(x, self.width)
        up = self.linear(normed, self.width, 3 * self.width)
        gate = self.linear(normed, self.width, 3 * self.width)
        gate = self.add("Mul", [gate, self.add("Sigmoid", [gate])])
        return self.add("Add", [x, self.linear(self.add("Mul", [up, gate]), 3 * self.width, self.width)])

    def build(self):
        table = self.rng.standard_normal((self.vocabulary, self.width)).astype(np.float32)
        x = self.add("Gather", [self.constant("embedding", table), "tokens"])
        for i in range(self.n_layers):
            x = self.layer(x, i)
        logits = self.linear(self.norm(x, self.width), self.width, self.vocabulary)
        cache = ["batch", self.kv_heads, "past", self.head_dim]
        info = helper.make_tensor_value_info
        caches = [f"{name}{i}" for i in range(self.n_layers) for name in ("past_k", "past_v")]
        inputs = [info("tokens", TensorProto.INT64, ["batch", "new"]),
                  info("position_ids", TensorProto.INT64, ["batch", "new"])]
        inputs += [info(name, TensorProto.FLOAT, cache) for name in caches]
        cache = ["batch", self.kv_heads, "all", self.head_dim]
        outputs = [info(logits, TensorProto.FLOAT, ["batch", "new", self.vocabulary])]
        outputs += [info(name.replace("past", "present"), TensorProto.FLOAT, cache) for name in caches]
        graph = helper.make_graph(self.nodes, "decoder", inputs, outputs, self.weights)
        model = helper.make_model(graph, opset_imports=[o for o in opsets(23) if o.domain != "halyard"], ir_version=10)
        onnx.checker.check_model(model)
        return model

    def start(self):
        empty = np.zeros((1, self.kv_heads, 0, self.head_dim), np.float32)
        return [empty] * (2 * self.n_layers)

    def step(self, session, tokens, first, caches):
        """The logits of these tokens, from position `first` on, and the caches after them."""
        feeds = {"tokens": np.array([tokens]), "position_ids": np.arange(first, first + len(tokens))[None]}
        names = [f"{name}{i}" for i in range(self.n_layers) for name in ("past_k", "past_v")]
        logits, *caches = session.run(None, {**feeds, **dict(zip(names, caches))})
        return logits[0], caches

    def generate(self, session, prompt, n):
        """n greedy tokens, and the logits that they were chosen by."""
        logits, caches = self.step(session, prompt, 0, self.start())
        tokens, all_logits = [], []
        for i in range(n):
            all_logits.append(logits[-1])
            tokens.append(int(logits[-1].argmax()))
            logits, caches = self.step(session, tokens[-1:], len(prompt) + i, caches)
        return tokens, np.array(all_logits)

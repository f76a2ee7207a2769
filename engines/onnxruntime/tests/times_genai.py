"""times_genai.py LIBRARY [ROUNDS]: models of onnxruntime-genai's builder before and after rewriting, in one process in
turns, with caches in place as onnxruntime-genai has them."""

import pathlib
import sys
import tempfile
import time

import nodes
import numpy as np
import onnxruntime
import times

import genai
import rewrite

PROMPT, PAST, CAPACITY, HEAD_DIM = 512, 1024, 1100, 64
SIZE = {"hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 4, "num_attention_heads": 16,
        "num_key_value_heads": 4, "max_position_embeddings": 2048, "initializer_range": 0.02}


def bind(session, n_tokens, past):
    """A binding of a call with n_tokens after `past`, whose caches are both input and output."""
    binding = session.io_binding()
    for value in session.get_inputs():
        if "key" in value.name or "value" in value.name:
            cache = np.random.default_rng(0).standard_normal((1, value.shape[1], CAPACITY, HEAD_DIM), np.float32)
            cache = onnxruntime.OrtValue.ortvalue_from_numpy(cache)
            binding.bind_ortvalue_input(value.name, cache)
            binding.bind_ortvalue_output(value.name.replace("past_key_values", "present"), cache)
    binding.bind_cpu_input("input_ids", np.arange(n_tokens)[None] % 190 + 3)
    binding.bind_cpu_input("attention_mask", np.ones((1, past + n_tokens), np.int64))
    binding.bind_output("logits")
    return binding


def main(rounds):
    for name in "llama", "qwen3":
        for precision in "fp32", "int4":
            with tempfile.TemporaryDirectory() as folder:
                head = {"head_dim": HEAD_DIM} if name == "qwen3" else {}
                built = genai.build(folder, name, precision, **SIZE, **head)
                rewrite.rewrite_file(built / "model.onnx", built / "halyard.onnx")
                for n_threads in 1, 2:
                    # Two of each: where a session's weights lie in memory makes a tenth of a token's time.
                    sessions = {}
                    for what in "stock", "Halyard", "stock again", "stock again", "Halyard", "stock":
                        path = built / ("halyard.onnx" if what == "Halyard" else "model.onnx")
                        sessions.setdefault(what, []).append(nodes.make_session(str(path), n_threads))
                    clock = time.process_time if n_threads == 1 else time.perf_counter
                    for what, new, past in ("prompt", PROMPT, 0), ("token", 1, PAST):
                        bound = {key: [(s, bind(s, new, past)) for s in pair] for key, pair in sessions.items()}
                        calls = {key: lambda pair=pair: [s.run_with_iobinding(b) for s, b in pair]
                                 for key, pair in bound.items()}
                        times.row(f"{name} {precision}, {what}, {n_threads} threads",
                                  times.in_turns(calls, rounds * (1 if new > 1 else 6), clock), 1e3 / 2)


if __name__ == "__main__":
    nodes.LIBRARY = str(pathlib.Path(sys.argv[1]).resolve())
    main(int(sys.argv[2]) if len(sys.argv) > 2 else 24)

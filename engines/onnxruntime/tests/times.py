"""times.py LIBRARY [ROUNDS]: one node by itself, and decoders before and after rewriting, in one process in turns."""

import json
import os
import pathlib
import statistics
import sys
import tempfile
import time

import nodes
import numpy as np
import onnx
from decoder import Decoder

HERE = pathlib.Path(__file__).resolve()
sys.path.insert(0, str(HERE.parents[1]))
sys.path.append(str(HERE.parents[3] / "bench"))
import rewrite  # noqa: E402
import turns  # noqa: E402

PROMPT = 512
SHAPE = {"n_layers": 4, "width": 1024, "heads": 16, "kv_heads": 4, "head_dim": 64}
ROTATES = {"RotaryEmbedding", "RMSNormalization", "SimplifiedLayerNormalization", "Transpose"}


def in_turns(calls, rounds, clock):
    """name -> seconds of each round but the first."""
    return {name: subject.seconds[1:] for name, subject in turns.time_calls(calls, rounds + 1, clock=clock).items()}


def row(what, seconds, scale=1e3, unit="ms"):
    stock = seconds["stock"]
    texts = []
    for name, some in seconds.items():
        ratios = turns.ratios(some, stock)
        first, median, third = statistics.quantiles(ratios, n=4, method="inclusive")
        texts.append(f"{name} {statistics.median(some) * scale:.3f} {unit}" + ("" if name == "stock" else
                     f", {median:.3f} of it ({first:.3f} to {third:.3f})"))
    print(f"{what}: {'; '.join(texts)}", flush=True)


def shares(session_of, decoder, rounds):
    """The share of a prompt's and of a token's time that nodes take by operator, as ONNX Runtime's profiler has it."""
    for what, new, past in ("prompt", PROMPT, 0), ("token", 1, PROMPT):
        for name in "stock", "Halyard":
            session = session_of(name, 1, enable_profiling=True, profile_file_prefix=tempfile.mktemp())
            caches = [np.zeros((1, decoder.kv_heads, past, decoder.head_dim), np.float32)] * (2 * decoder.n_layers)
            for _ in range(rounds):
                decoder.step(session, list(range(new)), past, caches)
            path = session.end_profiling()
            events = json.loads(pathlib.Path(path).read_text())
            os.unlink(path)
            times = {}
            for event in events:
                if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
                    node = event["args"]["op_name"], event["args"]["node_index"]
                    times.setdefault(node, []).append(event["dur"])
            by_operator = {}
            for (operator, _), some in times.items():  # the median: a thread that was interrupted says nothing
                by_operator[operator] = by_operator.get(operator, 0) + statistics.median(some)
            total = sum(by_operator.values())
            parts = ", ".join(f"{op} {t / total:.2%}" for op, t in by_operator.items()
                              if op in ROTATES)
            print(f"{decoder.style}, {what}, {name}: {parts}", flush=True)


def decoders(rounds):
    for style in "onnx", "microsoft":
        with tempfile.TemporaryDirectory() as folder:
            decoder = Decoder(style, **SHAPE)
            source, target = (str(pathlib.Path(folder) / name) for name in ("in.onnx", "out.onnx"))
            onnx.save(decoder.model, source)
            rewrite.rewrite_file(source, target)

            def session_of(name, n_threads, **settings):
                return nodes.make_session(target if name == "Halyard" else source, n_threads, **settings)

            shares(session_of, decoder, 10)
            for n_threads in 1, 2:
                # Two of each: where a session's weights lie in memory makes a tenth of a token's time.
                sessions = {}
                for name in "stock", "Halyard", "stock again", "stock again", "Halyard", "stock":
                    sessions.setdefault(name, []).append(session_of(name, n_threads))
                clock = time.process_time if n_threads == 1 else time.perf_counter
                for what, new, past in ("prompt", PROMPT, 0), ("token", 1, PROMPT):
                    caches = [np.zeros((1, decoder.kv_heads, past, decoder.head_dim), np.float32)] * (
                        2 * decoder.n_layers)
                    calls = {name: lambda pair=pair: [decoder.step(s, list(range(new)), past, caches) for s in pair]
                             for name, pair in sessions.items()}
                    row(f"{style}, {what}, {n_threads} threads",
                        in_turns(calls, rounds * (1 if new > 1 else 4), clock), 1e3 / 2)


def one_node(rounds, n_nodes=40, heads=32, head_dim=128):
    """A chain of rotations, so that one takes the time of a call divided by their number."""
    for dtype in np.float32, np.float16:
        for n_tokens in 1, 64, 512:
            rng = np.random.default_rng(0)
            angles = rng.standard_normal((4096, head_dim // 2))
            inputs = {"x": rng.standard_normal((1, n_tokens, heads * head_dim)).astype(dtype)}
            tables = {"cos": np.cos(angles).astype(dtype), "sin": np.sin(angles).astype(dtype)}
            ids = {"ids": np.arange(100, 100 + n_tokens)[None]}
            for n_threads in 1, 2:
                calls = {}
                for name, domain in ("stock", ""), ("Halyard", "halyard"):
                    model = nodes.make_model("RotaryEmbedding", {**inputs, **tables, **ids}, domain=domain,
                                             num_heads=heads)
                    first = model.graph.node.pop()
                    for i in range(n_nodes):
                        node = model.graph.node.add()
                        node.CopyFrom(first)
                        node.input[0] = f"y{i - 1}" if i else "x"
                        node.output[0] = f"y{i}" if i + 1 < n_nodes else "out0"
                    for table, array in tables.items():
                        model.graph.initializer.append(onnx.numpy_helper.from_array(array, table))
                        model.graph.input.remove(next(i for i in model.graph.input if i.name == table))
                    session = nodes.make_session(model, n_threads)
                    calls[name] = lambda s=session: s.run(None, {**inputs, **ids})
                clock = time.process_time if n_threads == 1 else time.perf_counter
                row(f"{np.dtype(dtype).name}, {n_tokens} tokens of {heads} heads of {head_dim}, {n_threads} threads",
                    in_turns(calls, rounds * (20 if n_tokens == 1 else 1), clock), 1e6 / n_nodes, "us")


if __name__ == "__main__":
    nodes.LIBRARY = str(pathlib.Path(sys.argv[1]).resolve())
    n_rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 24
    one_node(n_rounds)
    decoders(n_rounds)

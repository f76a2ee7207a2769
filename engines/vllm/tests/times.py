"""times.py [ROUNDS] [--widths W...] [--how eager compiled]: models of Qwen3's kind with random weights, as vLLM has them,
with rotary layers of Halyard's and fused, each in a process of its own and in turns. On one thread, by CPU time."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

MODES = ("off", "rotary", "fused")
# name: (sequences, tokens of each prompt, tokens that are generated)
WORKS = {"1 sequence, a token": (1, 16, 32), "8 sequences, a token": (8, 16, 32), "prompt of 2,048": (1, 2048, 1)}
LAYERS = {512: 8, 2048: 3}


def serve(folder, how):
    """Does works by their names, and writes the time of each."""
    import models
    import halyard.vllm
    halyard.vllm.register()
    from vllm import SamplingParams
    ops = {"custom_ops": ["none", "+rotary_embedding"]} if how == "compiled" and os.environ["HALYARD_VLLM"] == "rotary" else {}
    engine = models.make_engine(folder, eager=how == "eager", load_format="dummy", max_model_len=4096,
                                max_num_batched_tokens=4096, **({"compilation_config": ops} if ops else {}))
    print("ready", json.dumps({" ".join(key): n for key, n in halyard.vllm.counts.items()}), flush=True)
    for line in sys.stdin:
        n_sequences, n_prompt, n_tokens = WORKS[line.strip()]
        how_to = SamplingParams(temperature=0, max_tokens=n_tokens, ignore_eos=True, detokenize=False)
        given = [{"prompt_token_ids": [(7 * i + s) % 900 for i in range(n_prompt)]} for s in range(n_sequences)]
        start = time.process_time()
        engine.generate(given, how_to, use_tqdm=False)
        print("time", time.process_time() - start, flush=True)


def answer(process, word):
    for line in process.stdout:
        if line.startswith(word):
            return line[len(word):].strip()
    raise SystemExit("a process has ended; see above")


def compare(width, how, rounds):
    import models
    with tempfile.TemporaryDirectory() as folder:
        models.save(folder, "qwen3", random_weights=False, hidden_size=width, intermediate_size=2 * width, head_dim=128,
                    num_attention_heads=width // 128, num_key_value_heads=width // 256, vocab_size=1000,
                    max_position_embeddings=4096, num_hidden_layers=LAYERS[width])
        servers = {}
        for mode in MODES:
            servers[mode] = subprocess.Popen(
                [sys.executable, __file__, "--serve", folder, how], text=True, stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": "1", "HALYARD_VLLM": mode,
                                             "VLLM_LOGGING_LEVEL": "ERROR"})
        for mode, server in servers.items():
            print(f"# {width} {how} {mode}: {answer(server, 'ready')}", flush=True)
        for work in WORKS:
            seconds = {mode: [] for mode in MODES}
            for i in range(rounds + 1):
                for mode in MODES[i % 3:] + MODES[:i % 3]:
                    servers[mode].stdin.write(work + "\n")
                    servers[mode].stdin.flush()
                    seconds[mode].append(float(answer(servers[mode], "time")))
            n_tokens = WORKS[work][2]
            texts = [f"stock {statistics.median(seconds['off'][1:]) / n_tokens * 1e3:.2f} ms"]
            for mode in MODES[1:]:
                ratios = [stock / own for stock, own in zip(seconds["off"][1:], seconds[mode][1:])]
                first, median, third = statistics.quantiles(ratios, n=4, method="inclusive")
                texts.append(f"{mode} {median:.3f} ({first:.3f} to {third:.3f})")
            print(f"{how}, {width} wide, {work}: {'; '.join(texts)}", flush=True)
        for server in servers.values():
            server.stdin.close()
            server.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rounds", nargs="?", type=int, default=15)
    parser.add_argument("--widths", nargs="+", type=int, default=list(LAYERS))
    parser.add_argument("--how", nargs="+", default=["eager", "compiled"])
    parser.add_argument("--serve", nargs=2)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(*arguments.serve)
        return
    for how in arguments.how:
        for width in arguments.widths:
            compare(width, how, arguments.rounds)


if __name__ == "__main__":
    main()

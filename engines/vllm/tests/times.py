"""times.py [ROUNDS] [--widths W...] [--how eager compiled] [--threads N]: models of Qwen3's kind with random weights, as
vLLM has them and fused, in turns. By CPU time on one thread, by the clock on more.

Eager, one engine changes between both, so that its weights stay where they lie in memory, which makes some percent.
Compiled, each has two processes, and those of vLLM's own are compared with each other, too."""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time

# name: (sequences, tokens of each prompt, tokens that are generated)
WORKS = {"1 sequence, a token": (1, 16, 32), "8 sequences, a token": (8, 16, 32), "prompt of 2,048": (1, 2048, 1)}
LAYERS = {512: 8, 2048: 3}


def do_work(engine, work):
    """Seconds."""
    from vllm import SamplingParams
    n_sequences, n_prompt, n_tokens = WORKS[work]
    how = SamplingParams(temperature=0, max_tokens=n_tokens, ignore_eos=True, detokenize=False)
    given = [{"prompt_token_ids": [(7 * i + s) % 900 for i in range(n_prompt)]} for s in range(n_sequences)]
    clock = time.process_time if os.environ["OMP_NUM_THREADS"] == "1" else time.perf_counter
    start = clock()
    engine.generate(given, how, use_tqdm=False)
    return clock() - start


def switch(engine, mode):
    """Of an eager engine that was made fused."""
    import models
    for module in models.runner_of(engine).model.modules():
        if hasattr(module, "halyard"):
            module.halyard = mode == "fused"


def serve(folder, how):
    """Does works by their names, and writes the time of each: "WORK" compiled, "MODE: WORK" eager."""
    import models
    import halyard.vllm
    halyard.vllm.register()
    engine = models.make_engine(folder, eager=how == "eager", load_format="dummy", max_model_len=4096,
                                max_num_batched_tokens=4096)
    print("ready", dict(halyard.vllm.counts), flush=True)
    for line in sys.stdin:
        mode, work = line.strip().split(": ")
        if how == "eager":
            switch(engine, mode)
        print("time", do_work(engine, work), flush=True)


def answer(process, word):
    for line in process.stdout:
        if line.startswith(word):
            return line[len(word):].strip()
    raise SystemExit("a process has ended; see above")


def start(folder, how, mode, threads):
    return subprocess.Popen([sys.executable, __file__, "--serve", folder, how], text=True, stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": str(threads),
                                                         "HALYARD_VLLM": mode, "VLLM_LOGGING_LEVEL": "ERROR"})


def compare(width, how, rounds, threads):
    import models
    names = ["off", "fused"] if how == "eager" else ["off", "fused", "fused 2", "off 2"]
    with tempfile.TemporaryDirectory() as folder:
        models.save(folder, "qwen3", random_weights=False, hidden_size=width, intermediate_size=2 * width, head_dim=128,
                    num_attention_heads=width // 128, num_key_value_heads=width // 256, vocab_size=1000,
                    max_position_embeddings=4096, num_hidden_layers=LAYERS[width])
        if how == "eager":
            servers = dict.fromkeys(names, start(folder, how, "fused", threads))
        else:
            servers = {name: start(folder, how, name.split()[0], threads) for name in names}
        for server, name in {server: name for name, server in servers.items()}.items():
            print(f"# {width} {how} {name}: {answer(server, 'ready')}", flush=True)
        for work in WORKS:
            seconds = {name: [] for name in names}
            for i in range(rounds + 1):
                for name in names[i % len(names):] + names[:i % len(names)]:
                    servers[name].stdin.write(f"{name}: {work}\n")
                    servers[name].stdin.flush()
                    seconds[name].append(float(answer(servers[name], "time")))
            print(f"{how}, {width} wide, {work}: {told(seconds, WORKS[work][2])}", flush=True)
        for server in set(servers.values()):
            server.stdin.close()
            server.wait()


def told(seconds, n_tokens):
    both = {}
    for name, each in seconds.items():
        both.setdefault(name.split()[0], []).append(each[1:])
    mean = {mode: [statistics.mean(some) for some in zip(*each)] for mode, each in both.items()}
    texts = [f"stock {statistics.median(mean['off']) / n_tokens * 1e3:.2f} ms"]
    if len(both["off"]) == 2:
        texts.append(f"one process over the other {statistics.median(a / b for a, b in zip(*both['off'])):.3f}")
    ratios = [stock / own for stock, own in zip(mean["off"], mean["fused"])]
    first, median, third = statistics.quantiles(ratios, n=4, method="inclusive")
    return "; ".join([*texts, f"fused {median:.3f} ({first:.3f} to {third:.3f})"])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rounds", nargs="?", type=int, default=15)
    parser.add_argument("--widths", nargs="+", type=int, default=list(LAYERS))
    parser.add_argument("--how", nargs="+", default=["eager", "compiled"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--serve", nargs=2)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(*arguments.serve)
        return
    for how in arguments.how:
        for width in arguments.widths:
            compare(width, how, arguments.rounds, arguments.threads)


if __name__ == "__main__":
    main()

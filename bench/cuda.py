"""Times Halyard on this machine's CUDA device, beside a copy and other libraries: ./run bench cuda [--quick]

One process calls halyard.rotate, a copy and other libraries on the same tensors of PyTorch, in interleaved rounds: q, k
and v (32, 8 and 8 heads, head_dim 128) in one packed bf16 buffer, half pairing, positions scattered below 131,072. The
column "device" is the time of a call by CUDA events around a replayed CUDA graph of a hundred calls; "host" is the time
that a call takes on the host. This needs Python with PyTorch, the package halyard, and rounds.py beside this file.
"""

import argparse
import json
import math
import pathlib
import sys
import time

import torch

import halyard

sys.path.append(str(pathlib.Path(__file__).resolve().parent))
import rounds  # noqa: E402

HEADS, HEAD_DIM, PAGE, POSITIONS, BASE, CALLS = (32, 8, 8), 128, 16, 131072, 500000, 100
TOKENS = 1, 16, 256, 1024, 4096, 28520, 32768  # published figures have 1,024 and 28,520 tokens
FEW_TOKENS = 1, 4096
EPS = 1e-6
# The largest allowed errors, relative to 1 + |expected|. bf16 keeps 8 significant bits and e4m3 four. THEIRS is larger,
# because the other libraries compute in bf16 throughout.
OURS, THEIRS, E4M3 = 2**-8, 2**-5, 2**-4


def rotate_half(x):
    return torch.cat((-x[..., HEAD_DIM // 2:], x[..., :HEAD_DIM // 2]), dim=-1)


class Case:
    """The tensors of n_tokens tokens, and the expected results."""

    def __init__(self, n_tokens, device):
        draw = torch.Generator().manual_seed(20261128)
        self.packed = torch.randn(n_tokens, sum(HEADS), HEAD_DIM, generator=draw).to(device, torch.bfloat16)
        self.weight = (1 + torch.randn(HEAD_DIM, generator=draw) / 8).to(device, torch.bfloat16)
        self.positions = torch.randint(POSITIONS, (n_tokens,), generator=draw).to(device)
        n_pages = -(-n_tokens // PAGE)
        self.slots = torch.randperm(n_pages * PAGE, generator=draw)[:n_tokens].to(device, torch.int32)
        self.cache_shape = (n_pages, PAGE, HEADS[1], HEAD_DIM)
        angles = torch.outer(torch.arange(POSITIONS, dtype=torch.float64),
                             float(BASE) ** -(torch.arange(0, HEAD_DIM, 2, dtype=torch.float64) / HEAD_DIM))
        self.cos_sin = torch.cat((angles.cos(), angles.sin()), dim=-1).to(device, torch.float32)
        self.full_cos_sin = [t.repeat(1, 2).to(torch.bfloat16) for t in self.cos_sin.chunk(2, dim=-1)]  # of both halves

    def split_qkv(self, packed):
        return packed.split(HEADS, dim=1)

    def expected(self, normed):
        """The expected q and k, in float32."""
        cos, sin = (t[self.positions].repeat(1, 2)[:, None] for t in self.cos_sin.chunk(2, dim=-1))
        q_and_k = [x.float() for x in self.split_qkv(self.packed)[:2]]
        if normed:
            q_and_k = [x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS) * self.weight.float() for x in q_and_k]
        return [x * cos + rotate_half(x) * sin for x in q_and_k]


def halyard_jobs(case):
    """{name: (call, normed)}: call(q, k, v) rotates in place or into caches, and returns the rotated q and k; normed
    says whether it norms them before."""
    angles = halyard.AngleSource(halyard.Frequencies.from_base(float(BASE), HEAD_DIM), first=0, n_positions=POSITIONS)
    norm = halyard.Norm(case.weight, EPS)
    options = {"angles": angles, "positions": case.positions, "bad_position": "identity"}

    def rotate(q, k, v, norm=None):
        return halyard.rotate(*(halyard.Tensor(x, norm=norm, out=x) for x in (q, k)), **options)

    def store(dtype, scale):
        caches = [torch.zeros(case.cache_shape, dtype=dtype, device=case.packed.device) for _ in range(2)]

        def call(q, k, v):
            halyard.rotate(halyard.Tensor(q, norm=norm, out=q),
                           halyard.Tensor(k, norm=norm, scale=scale, cache=caches[0]),
                           halyard.Tensor(v, scale=scale, cache=caches[1]),
                           slots=case.slots, duplicate_slots="last", **options)
            return q, caches[0].flatten(0, 1)[case.slots.long()].float() * (scale or 1)
        return call

    return {"rotate": (rotate, False), "norm": (lambda *qkv: rotate(*qkv, norm=norm), True),
            "norm, store": (store(torch.bfloat16, None), True),
            "norm, store e4m3": (store(torch.float8_e4m3fn, 0.25), True)}


def peers(case):
    """{name: a function that imports the library and returns its call}; call(q, k, v) returns the rotated q and k."""
    def eager(q, k, v):
        c, s = (t[case.positions][:, None] for t in case.full_cos_sin)
        return q * c + rotate_half(q) * s, k * c + rotate_half(k) * s

    def flashinfer():
        from flashinfer.rope import apply_rope_with_cos_sin_cache_inplace as op

        def call(q, k, v):
            op(case.positions, q.flatten(1), k.flatten(1), HEAD_DIM, case.cos_sin, True)
            return q, k
        return call

    def vllm():
        import vllm._C  # registers the operator
        table = case.cos_sin.to(torch.bfloat16)

        def call(q, k, v):
            torch.ops._C.rotary_embedding(case.positions, q, k, HEAD_DIM, table, True)
            return q, k
        return call

    return {"torch.compile": lambda: torch.compile(eager, dynamic=False), "flashinfer": flashinfer, "vllm": vllm}


def timers_of(call):
    """{"device" or "host": a function that makes n calls and returns the seconds that they take there}."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            call()

    def on_device(n):
        seconds, n_replays = 0.0, -(-n // CALLS)
        for _ in range(n_replays):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            graph.replay()
            end.record()
            end.synchronize()
            seconds += start.elapsed_time(end) * 1e-3
        return seconds * n / (n_replays * CALLS)

    def on_host(n):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(n):
            call()
        return time.perf_counter() - start

    return {"device": on_device, "host": on_host}


def find_fault(call, case, normed, tolerances):
    """The reason why the call's results are wrong; empty if they are right."""
    results = call(*case.split_qkv(case.packed.clone()))
    for name, result, right, tolerance in zip("qk", results, case.expected(normed), tolerances):
        worst = float(((result.float() - right).abs() / (1 + right.abs())).max())
        if not worst <= tolerance:
            return f"{name} is up to {worst:.3g} off"
    return ""


def measure(case, effort):
    """({(job, library, "device" or "host"): Timing}, whether all of Halyard's results are right)."""
    times = {}

    def add(job, name, make, normed, tolerances):
        try:
            call = make()
            if fault := find_fault(call, case, normed, tolerances):
                raise ValueError(fault)
            own = case.split_qkv(case.packed.clone())
            times[job, name] = timers_of(lambda: call(*own))
        except Exception as why:  # the failure of one library must not end the run
            print(f"{job}: {name}: {type(why).__name__}: {str(why).strip().partition(chr(10))[0]}", flush=True)
            return name != "halyard"
        return True

    source = case.packed[:, :sum(HEADS[:2])].contiguous()
    target = torch.empty_like(source)
    times["rotate", "copy"] = timers_of(lambda: target.copy_(source))
    is_right = all([add(job, "halyard", lambda call=call: call, normed, (OURS, E4M3 if "e4m3" in job else OURS))
                    for job, (call, normed) in halyard_jobs(case).items()])
    for name, make in peers(case).items():
        add("rotate", name, make, False, (THEIRS, THEIRS))
    subjects = {(*key, where): rounds.Subject("/".join(key), timer) for key, timers in times.items()
                for where, timer in timers.items()}
    rounds.measure(list(subjects.values()), effort)
    return {key: subject.timing() for key, subject in subjects.items()}, is_right


def main():
    parser = argparse.ArgumentParser(prog="./run bench cuda", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rows and rounds")
    parser.add_argument("--json", metavar="FILE", help="also write the rows to this file")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("bench cuda: PyTorch finds no CUDA device")
    about = (f"{torch.cuda.get_device_name()}, CUDA {torch.version.cuda}, PyTorch {torch.__version__}, "
             f"{time.strftime('%Y-%m-%d', time.gmtime())}")
    print(f"{about}\nMicroseconds per call; x copy: a copy's time (of q and k, on the device) divided by the row's.\n\n"
          f"{'tokens':>6} {'job':17} {'by':14} {'device':>9} {'host':>8} {'x copy':>7} {'spread':>7}")
    rows, is_right = [], True
    for n_tokens in FEW_TOKENS if options.quick else TOKENS:
        found, are_right = measure(Case(n_tokens, "cuda"), rounds.QUICK if options.quick else rounds.THOROUGH)
        is_right &= are_right
        copy = found["rotate", "copy", "device"].median
        for job, name in dict.fromkeys(key[:2] for key in found):
            device, host = (found[job, name, where] for where in ("device", "host"))
            rows.append({"tokens": n_tokens, "job": job, "by": name, "x_copy": copy / device.median,
                         **{f"{where}_{key}": value for where, timing in (("device", device), ("host", host))
                            for key, value in timing.json().items()}})
            print(f"{n_tokens:6} {job:17} {name:14} {device.median * 1e6:9.2f} {host.median * 1e6:8.2f} "
                  f"{copy / device.median:7.2f} {100 * device.relative_spread:5.0f} %", flush=True)
    ours = {row["tokens"]: row["x_copy"] for row in rows if (row["job"], row["by"]) == ("rotate", "halyard")}
    for row in rows:
        times = row["x_copy"] / ours.get(row["tokens"], math.inf)
        if row["job"] == "rotate" and row["by"] not in ("halyard", "copy") and times > 1:
            print(f"lost: {row['by']} is {times:.2f} times as fast at {row['tokens']} tokens")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps({"about": about, "rows": rows}, indent=1) + "\n")
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())

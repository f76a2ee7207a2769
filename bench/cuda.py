"""Times Halyard on this machine's CUDA device, beside a copy and beside others: ./run bench cuda [--quick]

One process calls halyard.rotate and the others on the same tensors of PyTorch, in interleaved rounds: 32 + 8 + 8
heads of 128 in one packed buffer of bf16, half pairing, positions scattered below 131,072. Device: replays of a graph
of a hundred calls, microseconds by its events. Host: what a call takes the host, by its clock. This takes Python with
PyTorch, the package halyard, and rounds.py beside this file.
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
TOKENS = 1, 16, 256, 1024, 4096, 28520, 32768  # 1,024 and 28,520 are those of published figures
FEW_TOKENS = 1, 4096
EPS = 1e-6
# By how much a result may be off, in parts of 1 + |what it should be|. bf16 keeps 8 bits and e4m3 four; others compute
# in bf16 throughout.
OURS, THEIRS, E4M3 = 2**-8, 2**-5, 2**-4


def rotate_half(x):
    return torch.cat((-x[..., HEAD_DIM // 2:], x[..., :HEAD_DIM // 2]), dim=-1)


class Case:
    """Tensors of so many tokens, and what they should become."""

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
        self.wide = [t.repeat(1, 2).to(torch.bfloat16) for t in self.cos_sin.chunk(2, dim=-1)]

    def parts(self, packed):
        return packed.split(HEADS, dim=1)

    def expected(self, normed):
        """q and k, in float32."""
        cos, sin = (t[self.positions].repeat(1, 2)[:, None] for t in self.cos_sin.chunk(2, dim=-1))
        parts = [part.float() for part in self.parts(self.packed)[:2]]
        if normed:
            parts = [x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS) * self.weight.float() for x in parts]
        return [x * cos + rotate_half(x) * sin for x in parts]


def halyard_jobs(case):
    """Name -> a function of q, k and v that returns what they become, in place or in caches; and whether it norms."""
    angles = halyard.AngleSource(halyard.Frequencies.from_base(float(BASE), HEAD_DIM), first=0, n_positions=POSITIONS)
    norm = halyard.Norm(case.weight, EPS)
    how = {"angles": angles, "positions": case.positions, "bad_position": "identity"}

    def rotate(q, k, v, norm=None):
        return halyard.rotate(*(halyard.Tensor(x, norm=norm, out=x) for x in (q, k)), **how)

    def store(dtype, scale):
        caches = [torch.zeros(case.cache_shape, dtype=dtype, device=case.packed.device) for _ in range(2)]

        def call(q, k, v):
            halyard.rotate(halyard.Tensor(q, norm=norm, out=q),
                           halyard.Tensor(k, norm=norm, scale=scale, cache=caches[0]),
                           halyard.Tensor(v, scale=scale, cache=caches[1]),
                           slots=case.slots, duplicate_slots="last", **how)
            return q, caches[0].flatten(0, 1)[case.slots.long()].float() * (scale or 1)
        return call

    return {"rotate": (rotate, False), "norm": (lambda *qkv: rotate(*qkv, norm=norm), True),
            "norm, store": (store(torch.bfloat16, None), True),
            "norm, store e4m3": (store(torch.float8_e4m3fn, 0.25), True)}


def peers(case):
    """What rotates q and k, too. Each is a function that makes such a function as above."""
    def eager(q, k, v):
        c, s = (t[case.positions][:, None] for t in case.wide)
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


def ways_to_time(call):
    """Name -> a function of n that returns the seconds of n calls."""
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
    results = call(*case.parts(case.packed.clone()))
    for name, result, right, tolerance in zip("qk", results, case.expected(normed), tolerances):
        worst = float(((result.float() - right).abs() / (1 + right.abs())).max())
        if not worst <= tolerance:
            return f"{name} is up to {worst:.3g} off"
    return ""


def measure(case, effort):
    """The seconds of each call, by job, name and way."""
    times = {}

    def add(job, name, make, normed, tolerances):
        try:
            call = make()
            if fault := find_fault(call, case, normed, tolerances):
                raise ValueError(fault)
            own = case.parts(case.packed.clone())
            times[job, name] = ways_to_time(lambda: call(*own))
        except Exception as why:  # whatever one does must not end the others
            print(f"{job}: {name}: {type(why).__name__}: {str(why).strip().partition(chr(10))[0]}", flush=True)
            return name != "halyard"
        return True

    source = case.packed[:, :sum(HEADS[:2])].contiguous()
    target = torch.empty_like(source)
    times["rotate", "copy"] = ways_to_time(lambda: target.copy_(source))
    is_right = all([add(job, "halyard", lambda call=call: call, normed, (OURS, E4M3 if "e4m3" in job else OURS))
                    for job, (call, normed) in halyard_jobs(case).items()])
    for name, make in peers(case).items():
        add("rotate", name, make, False, (THEIRS, THEIRS))
    subjects = {(*key, way): rounds.Subject("/".join(key), time) for key, ways in times.items()
                for way, time in ways.items()}
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
    print(f"{about}\nMicroseconds; x copy: a copy of q and k takes so many times as long on the device.\n\n"
          f"{'tokens':>6} {'job':17} {'by':14} {'device':>9} {'host':>8} {'x copy':>7} {'spread':>7}")
    rows, is_right = [], True
    for n_tokens in FEW_TOKENS if options.quick else TOKENS:
        found, are_right = measure(Case(n_tokens, "cuda"), rounds.QUICK if options.quick else rounds.THOROUGH)
        is_right &= are_right
        copy = found["rotate", "copy", "device"].median
        for job, name in dict.fromkeys(key[:2] for key in found):
            device, host = (found[job, name, way] for way in ("device", "host"))
            rows.append({"tokens": n_tokens, "job": job, "by": name, "x_copy": copy / device.median,
                         **{f"{way}_{key}": value for way, timing in (("device", device), ("host", host))
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

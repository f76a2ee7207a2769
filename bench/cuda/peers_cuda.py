"""peers_cuda.py [--cpu]: times what others have for the rotation of q and k, where PyTorch finds a CUDA device, as
halyard_bench_cuda times Halyard: 32 + 8 + 8 heads of 128 in one packed buffer of bf16, half pairing, positions scattered
below 131,072, which each call looks up. Warm: replays of a graph of a hundred calls; cold: single calls, each after 256
MiB were written; microseconds by the device's events, medians of rounds in which all take turns. A peer that cannot be
had is named with the reason; one whose results are wrong, too. --cpu checks the program itself, without a device: it
takes few tokens, and its times are the clock's."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))  # packed, it lies beside this
import turns  # noqa: E402

Q_HEADS, KV_HEADS, HEAD_DIM, POSITIONS, BASE = 32, 8, 128, 131072, 500000
CALLS, ROUNDS = 100, 11
# bf16 keeps 8 bits. What is computed in it throughout is off by some of its last places.
TOLERANCE = 0.06


def rotate_half(x, torch):
    return torch.cat((-x[..., HEAD_DIM // 2:], x[..., :HEAD_DIM // 2]), dim=-1)


def make_peers(torch, device):
    """Functions of (q, k, positions) that return what q and k become, which some write in place."""
    angles = torch.outer(torch.arange(POSITIONS, dtype=torch.float64),
                         BASE ** -(torch.arange(0, HEAD_DIM, 2, dtype=torch.float64) / HEAD_DIM))
    cos, sin = angles.cos().to(device, torch.float32), angles.sin().to(device, torch.float32)
    cos_sin = torch.cat((cos, sin), dim=-1)
    cos_wide, sin_wide = (torch.cat((t, t), dim=-1).to(torch.bfloat16) for t in (cos, sin))

    def eager(q, k, positions):
        c, s = cos_wide[positions][:, None], sin_wide[positions][:, None]
        return q * c + rotate_half(q, torch) * s, k * c + rotate_half(k, torch) * s

    def in_place(op):
        def call(q, k, positions):
            op(positions, q, k)
            return q, k
        return call

    def compiled():
        return torch.compile(eager, dynamic=False)

    def liger():
        from liger_kernel.ops.rope import LigerRopeFunction

        def call(q, k, positions):
            done = LigerRopeFunction.apply(q.transpose(0, 1)[None], k.transpose(0, 1)[None], cos_wide[positions][None],
                                           sin_wide[positions][None])
            return tuple(t[0].transpose(0, 1) for t in done)
        return call

    def flashinfer():
        from flashinfer.rope import apply_rope_with_cos_sin_cache_inplace as op
        return in_place(lambda p, q, k: op(p, q.flatten(1), k.flatten(1), HEAD_DIM, cos_sin, True))

    def sgl_kernel():
        from sgl_kernel import apply_rope_with_cos_sin_cache_inplace as op
        return in_place(lambda p, q, k: op(p, q.flatten(1), k.flatten(1), HEAD_DIM, cos_sin, is_neox=True))

    def vllm():
        import vllm._C  # registers the op
        table = cos_sin.to(torch.bfloat16)
        return in_place(lambda p, q, k: torch.ops._C.rotary_embedding(p, q, k, HEAD_DIM, table, True))

    return {"torch eager": lambda: eager, "torch compiled": compiled, "liger-kernel": liger, "flashinfer": flashinfer,
            "sgl-kernel": sgl_kernel, "vllm": vllm}, (cos, sin)


class Events:
    """Times by the device's events. Keys are actions with what a call of theirs is part of, and what goes before it."""

    def __init__(self, torch):
        self.torch = torch
        self.flushed = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")

    def round(self, calls):
        return [sum(self.time(*key) for _ in range(n)) for key, n in calls]

    def time(self, before, action, n_calls):
        start, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        before()
        start.record()
        action()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) * 1e-3 / n_calls

    def ways(self, call):
        """Warm and cold."""
        graph = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.graph(graph):
            for _ in range(CALLS):
                call()
        return [(lambda: None, graph.replay, CALLS), (self.flushed.zero_, call, 1)]


class Clock(turns.Calls):
    """In the place of a device's events, where there is none."""

    def ways(self, call):
        return [call, call]


def measure(torch, device, clock, n_tokens):
    peers, (cos, sin) = make_peers(torch, device)
    generator = torch.Generator().manual_seed(20261121)
    packed = torch.randn(n_tokens, Q_HEADS + 2 * KV_HEADS, HEAD_DIM, generator=generator).to(device, torch.bfloat16)
    positions = torch.randint(POSITIONS, (n_tokens,), generator=generator).to(device)
    parts = lambda t: (t[:, :Q_HEADS], t[:, Q_HEADS:Q_HEADS + KV_HEADS])
    c, s = (t[positions].repeat(1, 2)[:, None] for t in (cos, sin))
    expected = [t.float() * c + rotate_half(t.float(), torch) * s for t in parts(packed)]
    source = packed[:, :Q_HEADS + KV_HEADS].contiguous()
    target = torch.empty_like(source)
    times = {"copy": clock.ways(lambda: target.copy_(source))}
    for name, make in peers.items():
        try:
            call = make()
            own = packed.clone()
            done = call(*parts(own), positions)
            worst = max(float((a.float() - b).abs().max()) for a, b in zip(done, expected))
            if not worst <= TOLERANCE:
                raise ValueError(f"its results are up to {worst:.3g} off")
            times[name] = clock.ways(lambda call=call, own=own: call(*parts(own), positions))
        except Exception as why:  # whatever a peer does must not end the others
            print(f"{name:16} {n_tokens:6}  {type(why).__name__}: {str(why).splitlines()[0] if str(why) else ''}")
    subjects = {name: [turns.Subject(name, clock, way) for way in ways] for name, ways in times.items()}
    turns.take_turns([subject for both in subjects.values() for subject in both], ROUNDS)
    for name, both in subjects.items():
        print(f"{name:16} {n_tokens:6}" + "".join(f" {subject.timing().median * 1e6:10.2f}" for subject in both), flush=True)


def main():
    import torch

    on_cpu = sys.argv[1:] == ["--cpu"]
    if not on_cpu and not torch.cuda.is_available():
        sys.exit("PyTorch finds no CUDA device")
    print(f"PyTorch {torch.__version__} on {'the CPU' if on_cpu else torch.cuda.get_device_name()}")
    print(f"{'':16} {'tokens':>6} {'warm us':>10} {'cold us':>10}")
    for n_tokens in (1, 16) if on_cpu else (1, 16, 256, 4096, 32768):
        measure(torch, "cpu" if on_cpu else "cuda", Clock() if on_cpu else Events(torch), n_tokens)


main()

"""What calls of the package cost, of one token of one head of two numbers, and of q and k of one token of Llama 3 8B:
./run bench python overhead

Times are medians of interleaved rounds, with the least and the greatest. A ratio is the
median of the rounds' ratios.
"""

import argparse
import pathlib
import statistics
import sys

import numpy as np
import torch

import halyard
import halyard.torch

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "bench"))
import rounds  # noqa: E402


def show(subjects, against):
    for name, subject in subjects.items():
        ratio = statistics.median(rounds.ratios(subjects[against].seconds, subject.seconds))
        print(f"  {name:34} {1e9 * subject.timing().median:10.1f} ns  ({1e9 * min(subject.seconds):.1f} … "
              f"{1e9 * max(subject.seconds):.1f})  {ratio:6.2f} times as fast as {against}")


def overhead(n_rounds):
    angles = halyard.AngleSource(halyard.Frequencies.from_base(10000.0, 2), first=0, n_positions=100)
    wide = halyard.AngleSource(halyard.Frequencies.from_base(500_000.0, 128), first=0, n_positions=4096)
    calls = {}
    for library, make in ("NumPy", np.asarray), ("PyTorch", torch.from_numpy):
        tiny, q, k = (make(np.ones(shape, np.float32)) for shape in ((1, 1, 2), (1, 32, 128), (1, 8, 128)))
        calls |= {
            f"{library}: two numbers, in place": lambda x=tiny: halyard.rotate(x, angles=angles, positions=3, out=x),
            f"{library}: q and k, in place":
                lambda q=q, k=k: halyard.rotate(q, k, angles=wide, positions=3, out=(q, k)),
            f"{library}: q and k, new": lambda q=q, k=k: halyard.rotate(q, k, angles=wide, positions=3),
        }
    positions, slots, how, ops = torch.tensor([3]), torch.tensor([5]), halyard.torch.describe(wide), torch.ops.halyard
    packed, weight, k_cache, v_cache = map(torch.ones, ((1, 48 * 128), (128,), (64, 8, 128), (64, 8, 128)))
    heads = dict(heads=(32, 8, 8), head_dim=128)
    stages = dict(angles=wide, duplicate_slots="last")
    road = halyard.torch.Road(**heads, **stages, norm=(halyard.Norm(), halyard.Norm()))
    norms = halyard.Norm(weight), halyard.Norm(weight)
    whole = halyard.prepare(**heads, **stages, norm=norms, cache=(None, k_cache, v_cache))
    turn = halyard.prepare(**heads, angles=wide)
    layer = torch.compile(lambda q, k, p: halyard.torch.rotate(q, k, angles=wide, positions=p), fullgraph=True)
    nothing = torch.compile(lambda q, k, p: (q + 1, k + 1), fullgraph=True)
    calls |= {
        "halyard.torch: q and k, new": lambda: halyard.torch.rotate(q, k, angles=wide, positions=3),
        "rotate_qk: new, with gradients": lambda: ops.rotate_qk(q, k, how, positions),
        "rotate_qk_no_grad: new": lambda: ops.rotate_qk_no_grad(q, k, how, positions),
        "rotate_qk_: in place": lambda: ops.rotate_qk_(q, k, how, positions),
        "compiled: halyard.torch, new": lambda: layer(q, k, positions),
        "compiled: q + 1 and k + 1": lambda: nothing(q, k, positions),
        "packed: halyard.rotate, in place":
            lambda: halyard.rotate(packed, **heads, angles=wide, positions=positions, out=packed),
        "packed: prepared": lambda: turn(packed, positions),
        "packed: prepared, norms, caches": lambda: whole(packed, positions, slots),
        "packed: road, norms, caches":
            lambda: ops.road(packed, road.how, None, None, positions, slots, k_cache, v_cache, weight, weight),
    }
    with torch.no_grad():
        show(rounds.time_calls(calls, n_rounds, 2000), "NumPy: two numbers, in place")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("overhead",))
    parser.add_argument("--rounds", type=int, default=7)
    overhead(parser.parse_args().rounds)


main()

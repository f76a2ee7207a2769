"""What the package costs and gains: ./run bench python WHAT

    overhead    of a call on one token of one head of two numbers, and of q and k of one token of Llama 3 8B
    models      prefill and decode of random-weight Llamas: stock and patched, eager and compiled, in turns

Times are medians of rounds, with the least and the greatest; each round takes everything once, in turns. A ratio is the
median of the rounds' ratios.
"""

import argparse
import copy
import pathlib
import statistics
import sys
import time

import numpy as np
import torch
import transformers

import halyard
import halyard.torch
import halyard.transformers

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "bench"))
import turns  # noqa: E402


def show(title, subjects, unit, against):
    print(title)
    scale = {"ns": 1e9, "ms": 1e3}[unit]
    for name, subject in subjects.items():
        ratio = statistics.median(turns.ratios(subjects[against].seconds, subject.seconds))
        print(f"  {name:34} {scale * subject.timing().median:10.1f} {unit}  ({scale * min(subject.seconds):.1f} … "
              f"{scale * max(subject.seconds):.1f})  {ratio:6.2f} times as fast as {against}")


def overhead(arguments):
    angles = halyard.AngleSource(halyard.Frequencies.from_base(10000.0, 2), first=0, last=99)
    wide = halyard.AngleSource(halyard.Frequencies.from_base(500_000.0, 128), first=0, last=4095)
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
        show("a call", turns.time_calls(calls, arguments.rounds, 2000), "ns", "NumPy: two numbers, in place")


class Share:
    """The time within what makes cos and sin and what turns q and k."""

    def __init__(self, model):
        self.model, self.seconds = model, 0.0

    def timed(self, function):
        def call(*args, **kwargs):
            start = time.perf_counter()
            result = function(*args, **kwargs)
            self.seconds += time.perf_counter() - start
            return result
        return call

    def of(self, call):
        module, rotary = sys.modules[type(self.model).__module__], self.model.model.rotary_emb
        original, forward = module.apply_rotary_pos_emb, rotary.forward
        module.apply_rotary_pos_emb, rotary.forward = self.timed(original), self.timed(forward)
        start = time.perf_counter()
        call()
        whole = time.perf_counter() - start
        module.apply_rotary_pos_emb = original
        del rotary.forward
        if "_halyard" in rotary.__dict__:
            rotary.forward = forward
        return self.seconds / whole


def models(arguments):
    sizes = {"small": dict(hidden_size=512, num_attention_heads=8, num_key_value_heads=4, intermediate_size=1408),
             "large": dict(hidden_size=2048, num_attention_heads=32, num_key_value_heads=8, intermediate_size=5632)}
    for name, dtype, n_threads in ((name, dtype, n) for name in arguments.sizes for dtype in arguments.dtypes
                                   for n in arguments.threads):
        torch.set_num_threads(n_threads)
        torch.manual_seed(1)
        config = transformers.LlamaConfig(**sizes[name], num_hidden_layers=arguments.layers, vocab_size=1000,
                                          max_position_embeddings=8192)
        stock = transformers.LlamaForCausalLM(config).to(getattr(torch, dtype)).eval()
        patched = halyard.transformers.patch(copy.deepcopy(stock))
        ids = torch.randint(1000, (1, arguments.tokens))

        def prefill(model):
            return lambda: model(ids, use_cache=False, logits_to_keep=1)

        def decode(model, cache_of=lambda: None):
            def call():
                cache = model(ids[:, :64], past_key_values=cache_of(), use_cache=True).past_key_values
                for i in range(64):
                    model(ids[:, 64 + i:65 + i], past_key_values=cache, use_cache=True)
            return call

        def compiled_decode(model):  # of one length, or each step would be compiled anew
            return decode(torch.compile(model), lambda: transformers.StaticCache(config=config, max_cache_len=128))

        with torch.no_grad():
            for work, make, make_compiled in (("prefill", prefill, lambda model: prefill(torch.compile(model))),
                                              ("decode 64", decode, compiled_decode)):
                calls = {"stock, eager": make(stock), "patched, eager": make(patched)}
                if arguments.compiled:
                    calls |= {"stock, compiled": make_compiled(stock), "patched, compiled": make_compiled(patched)}
                for call in calls.values():
                    call()
                shares = [Share(model).of(make(model)) for model in (stock, patched)]
                title = (f"{name}, {dtype}, {n_threads} threads, {work}: RoPE takes {100 * shares[0]:.1f} % of stock "
                         f"eager, {100 * shares[1]:.1f} % of patched")
                show(title, turns.time_calls(calls, arguments.rounds), "ms", "stock, eager")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("overhead", "models"))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--sizes", nargs="+", default=["small", "large"])
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--no-compiled", dest="compiled", action="store_false")
    arguments = parser.parse_args()
    {"overhead": overhead, "models": models}[arguments.what](arguments)


main()

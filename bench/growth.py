"""How time and memory grow with tokens, heads and head_dim, and what more threads change."""

import measure
import turns
from works import Model, Work

TOKENS = (1, 4, 16, 64, 256, 1000, 4000, 16000, 64000, 250000, 1000000)
HEADS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
HEAD_DIMS = (32, 48, 64, 80, 96, 128, 160, 192, 256, 512, 576)


def work_of(tokens, heads, head_dim, dtype, threads):
    return Work(Model("growth", heads, 0, head_dim, head_dim), tokens, dtype, threads=threads, first_position=0)


def list_tables(threads):
    return [("tokens", "8 heads of 128, bf16, half, in place, positions from 0",
             {n: work_of(n, 8, 128, "bf16", threads) for n in TOKENS}),
            ("heads", "64 tokens, heads of 128, f32, half, in place",
             {n: work_of(64, n, 128, "f32", threads) for n in HEADS}),
            ("head_dim", "64 tokens, 8 heads, f32, half, in place",
             {n: work_of(64, 8, n, "f32", threads) for n in HEAD_DIMS})]


def measure_line(n, work, server, effort):
    ready, subjects = measure.prepare(work.described(), measure.Setting(server), rivals=["one_thread", "ceiling"])
    alone = next((s for s in subjects if s.about["kind"] == "one_thread"), subjects[0])
    ceilings = {kind: [s for s in subjects if s.about["kind"] == kind and s.about["threads"] == 1]
                for kind in ("memory", "conversion")}
    turns.measure([s for s in subjects if s is subjects[0] or s is alone or s.about["threads"] == 1], effort)
    time = alone.timing()
    ceiling = max(min(s.timing().median for s in some) for some in ceilings.values() if some)
    line = (f"{n:9} {time.median / work.tokens * 1e9:14.2f} +- {time.spread / work.tokens * 1e9:5.2f} "
            f"{work.n_bytes / time.median * 1e-9:8.1f} {ceiling / time.median:8.2f} {ready['plan_bytes'] / 1024:9.1f} "
            f"{ready['angle_bytes'] / 1024:12.1f}")
    return line + (f" {time.median / subjects[0].timing().median:9.2f}" if alone is not subjects[0] else "")


def print_growth(server, threads, effort=turns.THOROUGH):
    """A table for each, line by line as they are measured. With more than one thread it shows their speed-up too."""
    for what, fixed, works in list_tables(threads):
        server.reserve([work.described() for work in works.values()])
        print(f"\n{fixed}\n{what:>9} {'ns for a token':>23} {'GB/s':>8} {'ceiling':>8} {'plan, KiB':>9} "
              f"{'table, KiB':>12}" + (f" {f'{threads} threads':>9}" if threads > 1 else ""))
        for n, work in works.items():
            print(measure_line(n, work, server, effort), flush=True)

"""Shows how exact Halyard is on this machine, and then how fast: ./run demo"""

import pathlib
import sys

import machine
import tables
import turns
from files import Failed
from hosts import Server
from measure import Setting, accuracy_works, loses, measure_rows, prepare
from works import Model, Work


def list_works():
    return [Work(Model(name, q_heads, k_heads, 128, 128, pairing, pairing), tokens, dtype)
            for dtype in ("f32", "f16", "bf16") for pairing in ("half", "interleaved")
            for name, q_heads, k_heads, tokens in (("one-head", 1, 0, 1), ("llama-3-8b", 32, 8, 1),
                                                   ("llama-3-8b", 32, 8, 64))]


ENGINES = """
Of engines' own angles, measured at 2342b23 by this table from vLLM 0.32.0's and ggml 0.25.3's formulas

    position   vLLM f16  vLLM bf16       ggml
        4095    4.0e-04    2.0e-03    3.5e-04
       32767    2.3e-03    3.5e-03    2.5e-03
      131071    9.0e-03    9.2e-03    1.2e-02
     1048575    7.5e-02    7.5e-02    8.8e-02
  2147483647    2.0e+00    2.0e+00    2.0e+00"""


def show_angles(server):
    columns = {"table": ("table", 0), "phase": ("phase", 0), "hf_f32": ("table", 1)}  # HALYARD_REFERENCE_EXACT and _HF_F32
    print("\nLargest error of cos and sin, base 500000, rotary_dim 128, 64 positions up to the one named\n\n"
          f"{'position':>12}" + "".join(f" {name:>10}" for name in columns))
    for last in 4095, 32767, 131071, 1048575, 2147483647:
        errors = (server.ask("angles", last=last, angles=angles, reference=reference)["max_error"]
                  for angles, reference in columns.values())
        print(f"{last:12}" + "".join(f" {error:10.1e}" for error in errors))
    print(ENGINES)


def show_accuracy(server):
    """Returns whether what is promised is kept."""
    print("\nLargest error of a rotation, in 2^-23 of a pair's length (promise: at most 2)\n"
          f"f32, base 10000, 64 tokens x 2 heads x 128\n\n{'position':>12} {'half':>12} {'interleaved':>12}")
    kept = True
    for last in 4095, 131071, 1048575, 2147483647:
        works = [work.described() for work in accuracy_works(last)]
        server.reserve(works)
        found = [prepare(work, Setting(server), rivals=[])[1][0].about for work in works]
        print(f"{last:12}" + "".join(f" {about['max_error'] * 2**23:12.2f}" for about in found), flush=True)
        kept = kept and not any(about["wrong"] for about in found)
    return kept


def show_speed(server):
    works = list_works()
    server.reserve([work.described() for work in works])
    rows = measure_rows(works, Setting(server, turns.QUICK))
    print(f"""
Speed, one thread, in place, in the cache. Halyard is ahead or level in {sum(not loses(row) for row in rows)} of {len(rows)} \
rows; the others come first.
  ceiling    the part of the speed of a multiply in place of the same bytes
  x          how many times our time it takes; below 1 it is faster
  reference  Halyard's portable C++
  bound      the same by a bound run, whose checks were made before but for those of pointers and positions
  C loops    compiled for this very CPU, each for one dtype and layout, with cos and sin ready in rows. They check
             nothing, while a call's checks are most of the time of one-head. In f32 both wait for memory.
{machine.format_machine(machine.describe_machine(server.about))}

{tables.format_rows(rows)}""")


def main(programs):
    try:
        server = Server([str(programs / "halyard_bench_server")])
        show_angles(server)
        kept = show_accuracy(server)
        show_speed(server)
    except Failed as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    if not kept:
        print("demo: an error is larger than promised", file=sys.stderr)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else machine.ROOT / "build/host/bin").resolve()))

"""Shows how exact Halyard is on this machine, which halyard_demo does, and then how fast: ./run demo"""

import pathlib
import subprocess
import sys

import machine
import tables
import turns
from files import Failed
from hosts import Server
from measure import Setting, loses, measure_rows
from works import Model, Work


def list_works():
    return [Work(Model(name, q_heads, k_heads, 128, 128, pairing, pairing), tokens, dtype)
            for dtype in ("f32", "f16", "bf16") for pairing in ("half", "interleaved")
            for name, q_heads, k_heads, tokens in (("one-head", 1, 0, 1), ("llama-3-8b", 32, 8, 1),
                                                   ("llama-3-8b", 32, 8, 64))]


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
    status = subprocess.run([programs / "halyard_demo"]).returncode
    try:
        show_speed(Server([str(programs / "halyard_bench_server")]))
    except Failed as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    return status


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else machine.ROOT / "build/host/bin").resolve()))

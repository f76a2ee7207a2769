"""Times kernels with the shapes of real models, beside memory's speed, C loops and other libraries: ./run bench [ARGS]

Other commands: road (times the KV path), compare BEFORE AFTER, demo; each has a --help. chart.py draws charts.
Exit status: 0 done; 1 an error, a wrong result or a row that got slower; 2 wrong usage.
"""

import argparse
import decimal
import math
import os
import pathlib
import shlex
import sys
import time

import machine
import rounds
import tables
from compare import check_floors, compare, record_floors
from files import Failed, load_json, need_writable, save_json
from machine import ROOT
from measure import Setting, find_differences, loses, measure_rows
from native import Library
from prepared import Prepared
from cases import Model, RotationCase, list_cases, list_kv_cases, read_models

FOLDER = ROOT / "bench"
TWO_PI = decimal.Decimal("6.28318530717958647692528676655900576839433879875021")


def pin():
    """Pins this process, and the threads that libraries start later, to the last CPU that it may use. Where the system
    does not allow that, timings are only noisier."""
    try:
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    except OSError:
        pass


def find_cases(options):
    if options.command == "road":
        cases = list_kv_cases(options.quick, options.filter)
    else:
        cases = list_cases(read_models(), options.quick, options.filter)
    if not cases:
        raise Failed(f'no row matches "{options.filter}"')
    return cases


def open_library(options):
    return Library(pathlib.Path(options.build) / "lib/libhalyard.so")


def describe(library):
    """Prints the head of every table: the machine and the build. Returns them as a dict for --json."""
    about = machine.describe_machine(library.native.about)
    print(machine.format_machine(about))
    return about


# ---- Tables ----------------------------------------------------------------------------------------------------------


def check_floors_again(options, cases, setting, record):
    """Compares the rows of `record` with their floors, and measures rows below their floor again, thoroughly and up to
    three times. Prints the rows that stay below. Returns the exit status."""
    recorded = load_json(options.floors)
    n_checked, below = check_floors(recorded, record)
    if not n_checked:
        print(f"no baseline: nothing to compare with on {record['machine']['family']}")
        return 0
    setting.effort = rounds.THOROUGH
    for _ in range(3):
        if below:
            rows = measure_rows([case for case in cases if case.name in below], setting)
            below = check_floors(recorded, record | {"rows": rows})[1]
    for why in below.values():
        print(f"below its floor: {why}")
    print(f"{n_checked} of {len(record['rows'])} ratios have a floor on {record['machine']['family']}, and "
          f"{len(below)} are below it.")
    return 1 if below else 0


def run_against(options, cases, setting):
    """Prints how the times of another build differ. Returns the exit status: 1 if this build is slower in any row."""
    other = Library(options.against)
    setting.effort = rounds.PAIRED
    describe(setting.library)
    print(f"How the times of {options.against} differ in the same rounds, with a 99.9 % interval.\n")
    found, differ = find_differences(cases, setting, other)
    print(tables.format_builds(found) + "\n")
    for difference in differ:
        print(f"differs: {difference.name} {difference.contender}: {options.against} takes "
              f"{tables.say_difference(difference)}")
    print(f"{len(differ)} of {len(found)} times differ beyond noise, by more than 2 %, three times in a row.")
    return 1 if any(difference.median < 1.0 for difference in differ) else 0


def run_table(options):
    cases = find_cases(options)
    need_writable(options.json)
    setting = Setting(open_library(options), rounds.QUICK if options.quick else rounds.THOROUGH, options.target)
    pin()
    if options.against:
        return run_against(options, cases, setting)
    if options.peers:
        from peers import peers
        setting.peers = peers.Peers("kv_path" if options.command == "road" else "rotation")
    began = time.monotonic()
    rows = measure_rows(cases, setting)
    command = shlex.join(["./run", "bench", *sys.argv[1:]])
    record = {"command": command, "rows": rows, "machine": describe(setting.library)}
    print("One thread is pinned to a CPU, and so are the peers. Ceiling: Halyard's speed as a fraction of the speed\n"
          "of the fastest copy (in place: multiply) of the same bytes in the same rounds, or (c) of the fastest\n"
          "conversion of these bytes to f32 and back, if that is slower. x: the other's time divided by Halyard's.\n"
          f"{len(rows)} rows in {time.monotonic() - began:.0f} s.\n\n{tables.format_rows(rows)}", flush=True)
    if setting.peers:
        record["peers"] = setting.peers.list
        print("\n" + tables.format_peers(setting.peers.list))
    if options.json:
        save_json(options.json, record)
    if options.write_floors:
        runs = [record] + [record | {"rows": measure_rows(cases, setting)} for _ in range(4)]
        known = load_json(options.floors) if pathlib.Path(options.floors).exists() else {}
        save_json(options.floors, record_floors(known, runs))
    wrong = any(row["wrong"] or any(rival["wrong"] for rival in row["rivals"] if rival["kind"] not in ("loop", "peer"))
                for row in rows)
    below = check_floors_again(options, cases, setting, record) if options.check_floors else 0
    return 1 if wrong else below


# ---- The demo --------------------------------------------------------------------------------------------------------


def exact_cos_sin(positions, n_pairs):
    """(cos, sin) of each position and pair, for the base 10000. Large positions need more digits than Python's floats
    have, so angles are computed in decimal."""
    with decimal.localcontext(prec=50):
        frequencies = [decimal.Decimal(10000) ** (decimal.Decimal(-k) / n_pairs) for k in range(n_pairs)]
        angles = [float(position * frequency % TWO_PI) for position in positions for frequency in frequencies]
    return [(math.cos(angle), math.sin(angle)) for angle in angles]


def find_error(library, pairing, last, cos_sin):
    """The largest error of an f32 rotation at the 64 positions up to `last`, divided by the length of the pair."""
    model = Model("accuracy", 2, 0, 128, 128, pairing, pairing)
    case = RotationCase(model, 64, "f32", in_place=False, angles="phase", first_position=last - 63)
    with Prepared(case.described()) as prepared:
        prepared.call("run", library).seconds(1)
        x, y = (memoryview(prepared.memory(what, 4 * 64 * 2 * 128)).cast("B").cast("f").tolist() for what in "xy")
    worst = 0.0
    for i in range(64 * 2 * 64):  # pairs of tokens and heads
        head, k = divmod(i, 64)
        cos, sin = cos_sin[head // 2 * 64 + k]
        i0, i1 = (head * 128 + at for at in ((k, k + 64) if pairing == "half" else (2 * k, 2 * k + 1)))
        errors = y[i0] - (x[i0] * cos - x[i1] * sin), y[i1] - (x[i1] * cos + x[i0] * sin)
        worst = max(worst, max(map(abs, errors)) / math.hypot(x[i0], x[i1]))
    return worst


def show_accuracy(library):
    """Prints the errors at large positions, and returns whether all are within the promised bound."""
    print("\nLargest error of a rotation, in 2^-23 of a pair's length (promise: at most 2)\n"
          f"f32, base 10000, 64 tokens x 2 heads x 128\n\n{'position':>12} {'half':>12} {'interleaved':>12}")
    within_promise = True
    for last in 4095, 131071, 1048575, 2147483647:
        cos_sin = exact_cos_sin(range(last - 63, last + 1), 64)
        errors = [2**23 * find_error(library, pairing, last, cos_sin) for pairing in ("half", "interleaved")]
        within_promise = within_promise and max(errors) <= 2
        print(f"{last:12} {errors[0]:12.2f} {errors[1]:12.2f}")
    return within_promise


def run_demo(options):
    """Shows how accurate Halyard is on this machine, and then how fast."""
    pin()
    library = open_library(options)
    within_promise = show_accuracy(library)
    cases = [RotationCase(Model(name, q_heads, k_heads, 128, 128, pairing, pairing), tokens, dtype)
             for dtype in ("f32", "f16", "bf16") for pairing in ("half", "interleaved")
             for name, q_heads, k_heads, tokens in (("one-head", 1, 0, 1), ("llama-3-8b", 32, 8, 1),
                                                    ("llama-3-8b", 32, 8, 64))]
    rows = measure_rows(cases, Setting(library, rounds.QUICK))
    n_ahead = sum(not loses(row) for row in rows)
    print(f"""
Speed, one thread, in place, in the caches. Halyard is ahead or level in {n_ahead} of {len(rows)} rows; the others \
come first.
  ceiling    Halyard's speed as a fraction of the speed of a multiply in place of the same bytes
  x          the time divided by Halyard's; below 1 the other is faster
  reference  Halyard's portable C++
  bound      a bound run: all arguments but pointers and positions were checked before
  C loops    compiled for this CPU, each for one dtype and layout, with precomputed rows of cos and sin. They check no
             arguments; on one-head Halyard's checks take most of the time. In f32 both wait for memory.
{machine.format_machine(machine.describe_machine(library.native.about))}

{tables.format_rows(rows)}""")
    if not within_promise:
        raise Failed("an error is larger than promised")
    return 0


# ---- Arguments -------------------------------------------------------------------------------------------------------


def run_compare(options):
    return 1 if compare(load_json(options.before), load_json(options.after)) else 0


def add_table(parser):
    parser.add_argument("--quick", action="store_true", help="a short list, fewer and shorter rounds")
    parser.add_argument("--filter", default="*", metavar="GLOB", help="only rows whose name matches, as in 'half_f32*'")
    parser.add_argument("--json", metavar="FILE", help="also write the rows to this file")
    parser.add_argument("--target", default="", help="force a target (halyard list names them)")
    parser.add_argument("--against", metavar="OTHER.so", help="compare with another build, in the same rounds")
    parser.add_argument("--peers", action="store_true", help="also time other libraries (peers/peers.py)")
    parser.add_argument("--floors", default=FOLDER / "floors.json", help="the recorded floors [bench/floors.json]")
    floors = parser.add_mutually_exclusive_group()
    floors.add_argument("--check-floors", action="store_true",
                        help="fail if a row's ratio to the memory ceiling is below its recorded floor, beyond noise")
    floors.add_argument("--write-floors", action="store_true", help="record the floors of this CPU from five runs")


def add_compare(parser):
    parser.add_argument("before", help="what --json wrote")
    parser.add_argument("after", help="what --json wrote later")


COMMANDS = {
    "table": (run_table, add_table, __doc__),
    "road": (run_table, add_table, "Times the KV path, from a projection to q and a cache, and context shifts."),
    "compare": (run_compare, add_compare, "Prints the rows that got slower from one run to another, beyond noise."),
    "demo": (run_demo, lambda parser: None, run_demo.__doc__),
}


def main(arguments):
    command = arguments[0] if arguments and arguments[0] in COMMANDS else "table"
    run, add_arguments, text = COMMANDS[command]
    parser = argparse.ArgumentParser(prog="./run bench", description=text,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--build", default=ROOT / "build/host", metavar="FOLDER",
                        help="the build to time [build/host]")
    parser.set_defaults(command=command)
    options = parser.parse_args(arguments[1:] if arguments[:1] == [command] else arguments)
    try:
        return run(options)
    except KeyboardInterrupt:
        return 130
    except (Failed, OSError, ValueError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

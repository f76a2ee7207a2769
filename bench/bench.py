"""Times kernels on the shapes of real models, against what the memory allows and against rivals: ./run bench [ARGS]

Other commands: compare BEFORE AFTER, cuda, road; each has a --help. chart.py draws.
Exit status: 0 done; 1 something failed, is wrong or got slower; 2 wrong usage.
"""

import argparse
import pathlib
import shlex
import sys
import time

import machine
import roads
import tables
import turns
from compare import check_floors, compare, record_floors
from files import Failed, load_json, need_writable, save_json
from hosts import Peers, Server
from machine import ROOT
from measure import Setting, accuracy_works, measure_accuracy, measure_rows
from works import list_works, read_models

FOLDER = ROOT / "bench"
PEER_SECONDS = 60.0  # the longest that one may take to answer; making ready may take ten times as long


def start_server(options):
    return Server([str(pathlib.Path(options.build).resolve() / "bin/halyard_bench_server")])


def start(options, server, works, pinned):
    """A setting with memory for all works, and peers where they are asked for; `pinned` says how the first is timed."""
    if not works:
        raise Failed(f'no row matches "{options.filter}"')
    need_writable(options.json)
    server.reserve(works)
    setting = Setting(server, turns.QUICK if options.quick else turns.THOROUGH, options.target)
    if options.peers:
        setting.peers = Peers(shlex.split(options.peers), server, PEER_SECONDS, works[0]["kind"], pinned)
    return setting


def describe(options, server):
    """What stands above every table, and is printed now."""
    targets = [target["name"] for target in server.about["targets"]]
    head = {"machine": machine.describe_machine(server.about),
            "budget": machine.find_budget(pathlib.Path(options.build), targets)}
    print(machine.format_machine(head["machine"]), tables.format_budget(head["budget"]), sep="\n")
    return head


# ---- The table -------------------------------------------------------------------------------------------------------


def command_of(options):
    """The command that measures the same rows again."""
    words = ["./run bench", "--quick" if options.quick else ""]
    words.append(f"--filter '{options.filter}'" if options.filter != "*" else "")
    words.append(f"--target {options.target}" if options.target else "")
    words.append(f"--shapes {options.shapes}" if options.shapes != FOLDER / "shapes.txt" else "")
    words.append(f"--threads {','.join(map(str, options.threads))}" if options.threads != [1] else "")
    words.append("--peers" if options.peers else "")
    return " ".join(filter(None, words))


def check_floors_again(options, works, setting, record):
    """Measures rows below their floor again, thoroughly and up to three times. Returns how many were checked, and those
    that are below it every time."""
    recorded = load_json(options.floors)
    n_checked, below = check_floors(recorded, record)
    setting.effort = turns.THOROUGH
    for _ in range(3):
        if below:
            rows = measure_rows([work for work in works if work.name in below], setting)
            below = check_floors(recorded, record | {"rows": rows})[1]
    return n_checked, below


def print_accuracy(setting, record):
    record["accuracy"] = measure_accuracy(setting)
    record["peers"] = setting.peers.list
    print("\nLargest error at positions 131,008 to 131,071 (f32, base 10000, head_dim 128), in lengths of a pair\n")
    print(tables.format_accuracy(record["accuracy"]) + "\n\n" + tables.format_peers(setting.peers.list))


def run_table(options):
    with open(options.shapes) as shapes:
        works = list_works(read_models(shapes), options.quick, options.filter, options.threads)
    described = [work.described() for work in works + (accuracy_works() if works else [])]
    setting = start(options, start_server(options), described, pinned=options.threads[0] == 1)
    began = time.monotonic()
    rows = measure_rows(works, setting)
    record = {"command": command_of(options), "rows": rows} | describe(options, setting.server)
    print("One thread: pinned to a CPU, and the peers to the same one. Ceiling: the part of the speed of the\n"
          "fastest copy (in place: multiply) of the same bytes in the same rounds, or (c) of the fastest loop that\n"
          "only converts them to f32 and back, where that is slower. x: how many times our time.\n"
          f"{len(rows)} rows in {time.monotonic() - began:.0f} s.\n\n{tables.format_rows(rows)}", flush=True)
    if setting.peers:
        print_accuracy(setting, record)
    if options.json:
        save_json(options.json, record)
    if options.write_floors:
        runs = [record] + [record | {"rows": measure_rows(works, setting)} for _ in range(4)]
        known = load_json(options.floors) if pathlib.Path(options.floors).exists() else {}
        save_json(options.floors, record_floors(known, runs))
    status = 1 if any(row["wrong"] for row in rows) else 0
    if options.check_floors:
        n_checked, below = check_floors_again(options, works, setting, record)
        for why in below.values():
            print(f"below its floor: {why}")
        print(f"{n_checked} of {len(rows)} ratios have a floor on {record['machine']['family']}, and {len(below)} are "
              "below it.")
        status = 1 if below else status
    return status


# ---- Other commands --------------------------------------------------------------------------------------------------


def run_roads(options):
    works = roads.list_works(options.quick, options.filter)
    setting = start(options, start_server(options), works, pinned=True)
    setting.pin(True)
    began = time.monotonic()
    rows = roads.measure_way_rows(works, setting)
    found = {f"{kind}s": [row for work, row in zip(works, rows) if work["kind"] == kind] for kind in ("road", "shift")}
    if setting.peers:
        roads.say_missing_peers(setting.peers.list)
    record = describe(options, setting.server) | found
    print("Bound runs, one thread; others: how many times as long. "
          f"{len(rows)} rows in {time.monotonic() - began:.0f} s.\n")
    if found["roads"]:
        print(roads.format_roads(found["roads"]))
    if found["shifts"]:
        print("\n" + roads.format_shifts(found["shifts"]))
    if options.json:
        save_json(options.json, {key: value for key, value in record.items() if key != "shifts" or value})
    return 1 if any(map(roads.is_wrong, rows)) else 0


def run_compare(options):
    result = compare(load_json(options.before), load_json(options.after))
    print(result.text())
    return 1 if result.slower else 0


def count(text):
    number = int(text)
    if not 1 <= number <= 1024:
        raise argparse.ArgumentTypeError(f"{text} is not in 1 … 1024")
    return number


def add_common(parser):
    parser.add_argument("--quick", action="store_true", help="a short list, fewer and shorter rounds")
    parser.add_argument("--filter", default="*", metavar="GLOB", help="only rows whose name matches, as in 'half_f32*'")
    parser.add_argument("--json", metavar="FILE", help="also write the rows to this file")
    parser.add_argument("--target", default="", help="force a target (halyard list names them)")
    parser.add_argument("--peers", default="", metavar="COMMAND",
                        help="also time these: the command of rivals/peers.py")


def add_table(parser):
    add_common(parser)
    parser.add_argument("--threads", type=lambda text: [count(word) for word in text.split(",")], default=[1],
                        metavar="N,...", help="numbers of threads, as in 1,2 [1]")
    parser.add_argument("--shapes", default=FOLDER / "shapes.txt", help="the models [bench/shapes.txt]")
    parser.add_argument("--floors", default=FOLDER / "floors.json", help="the recorded ratios [bench/floors.json]")
    floors = parser.add_mutually_exclusive_group()
    floors.add_argument("--check-floors", action="store_true",
                        help="fail where a ratio is under 0.6 of the one that is recorded for this CPU")
    floors.add_argument("--write-floors", action="store_true", help="record the least ratios of five runs for this CPU")


def add_compare(parser):
    parser.add_argument("before", help="what --json wrote")
    parser.add_argument("after", help="what --json wrote later")


COMMANDS = {
    "table": (run_table, add_table, __doc__),
    "compare": (run_compare, add_compare, "What got slower from one run to another, beyond noise."),
    "road": (run_roads, add_common, "The way from a projection to q and a cache, with norms."),
}


def main(arguments):
    command = arguments[0] if arguments and arguments[0] in COMMANDS else "table"
    run, add_arguments, text = COMMANDS[command]
    parser = argparse.ArgumentParser(prog="./run bench", description=text,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--build", default=ROOT / "build/host", metavar="FOLDER", help="whose library [build/host]")
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

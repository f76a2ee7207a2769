"""Times the CUDA kernels on this machine's device, beside a copy: ./run bench cuda [--quick]

    --quick             fewer rows and shorter rounds
    --write-requests    prints lines for halyard_bench_gpu, which ask it for all rounds: for a machine without Python
    --answers FILE      prints the table of what it has answered to them
"""

import argparse
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[1:1] = [str(HERE), str(HERE.parent)]  # packed, all lie in one folder
import turns  # noqa: E402
from files import Failed  # noqa: E402
from hosts import Server  # noqa: E402

COLUMNS = [("warm", "halyard"), ("warm", "copy"), ("warm", "empty"), ("cold", "halyard"), ("cold", "copy"),
           ("cold", "empty"), ("host", "halyard"), ("host", "empty")]  # the server's subjects, in order
# Calls of each in a round, where nobody is there to find out: by their kind. A warm one is no less than a graph of 100.
CALLS = {"warm": 400, "cold": 10, "host": 200}


def list_cases(quick):
    case = lambda tokens, job="rotate", dtype="bf16", pairing="half", in_place=True, angles="table": {
        "job": job, "dtype": dtype, "pairing": pairing, "in_place": in_place, "angles": angles, "tokens": tokens}
    # 1,024 and 28,520 tokens are those of published figures (bench/README.md).
    for tokens in (1, 32768) if quick else (1, 16, 256, 1024, 4096, 28520, 32768):
        for job in ("rotate", "norm", "road", "road to e4m3"):
            yield case(tokens, job)
        yield case(tokens, in_place=False)
    for tokens in () if quick else (1, 4096):
        for dtype in ("bf16", "f16", "f32"):
            for pairing in ("half", "interleaved"):
                for angles in ("table", "phase"):
                    yield case(tokens, "rotate", dtype, pairing, True, angles)


def print_heading(about):
    print(f"{about['device']}\n{about['compiler']}, Halide {about['halide']}")
    print("32 + 8 + 8 heads of 128 in one packed buffer, positions scattered below 131,072; medians of interleaved "
          "rounds; ratio: copy / ours; GB/s of what is read and written, warm; norm and roads norm q and k before "
          "that; roads store k and v in pages of 16 tokens\n")
    print(f"{'':46} {'warm us':>9} {'copy':>9} {'empty':>9} {'ratio':>6} {'cold us':>9} {'copy':>9} {'empty':>9} "
          f"{'ratio':>6} {'GB/s':>7} {'host us':>7} {'empty':>7} {'spread':>7}")


def print_row(case, n_bytes, timings):
    us = [timing.median * 1e6 for timing in timings]
    what = case["job"] if case["job"] != "rotate" else "in place" if case["in_place"] else "out of place"
    print(f"{what:13} {case['dtype']:5} {case['pairing']:12} {case['angles']:6} {case['tokens']:6} "
          f"{us[0]:9.2f} {us[1]:9.2f} {us[2]:9.2f} {us[1] / us[0]:6.2f} {us[3]:9.2f} {us[4]:9.2f} {us[5]:9.2f} "
          f"{us[4] / us[3]:6.2f} {1e-3 * n_bytes / us[0]:7.0f} {us[6]:7.2f} {us[7]:7.2f} "
          f"{100 * (timings[0].relative_spread + timings[1].relative_spread):5.0f} %", flush=True)


def measure(device, cases, effort):
    print_heading(device.about)
    for case in cases:
        ready = device.ask("prepare", **case)
        subjects = [turns.Subject(about["name"], device, key) for key, about in enumerate(ready["subjects"])]
        turns.measure(subjects, effort)
        print_row(case, ready["bytes"], [subject.timing() for subject in subjects])


def calls_of(key):
    """What warms up, and what counts."""
    n = CALLS[COLUMNS[key][0]]
    return n // 4, n


def list_requests(cases, n_rounds):
    """What asks for the same without a conversation. In each round another subject is the first."""
    yield {"do": "describe"}
    for case in cases:
        yield {"do": "prepare", **case}
        for i in range(n_rounds):
            order = [(i + j) % len(COLUMNS) for j in range(len(COLUMNS))]
            yield {"do": "round", "calls": [[key, n] for key in order for n in calls_of(key)]}


def print_answers(answers, cases, n_rounds):
    print_heading(next(answers))
    for case, ready in zip(cases, answers):
        seconds = [[] for _ in COLUMNS]
        for i in range(n_rounds):
            for j, taken in enumerate(next(answers)["seconds"][1::2]):
                key = (i + j) % len(COLUMNS)
                seconds[key].append(taken / calls_of(key)[1])
        print_row(case, ready["bytes"], [turns.summarise(some) for some in seconds])


def main():
    parser = argparse.ArgumentParser(prog="bench cuda", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--write-requests", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--answers", type=argparse.FileType(), help=argparse.SUPPRESS)
    parser.add_argument("--program", default=HERE.parents[1] / "build/host/bin/halyard_bench_gpu",
                        help=argparse.SUPPRESS)
    options = parser.parse_args()
    effort = turns.QUICK if options.quick else turns.THOROUGH
    cases = list(list_cases(options.quick))
    if options.write_requests:
        for request in list_requests(cases, effort.n_rounds):
            print(json.dumps(request))
        return 0
    try:
        if options.answers:
            print_answers(map(json.loads, options.answers), cases, effort.n_rounds)
        else:
            measure(Server([str(options.program)]), cases, effort)
    except (Failed, KeyError, StopIteration, ValueError) as error:
        print(f"bench cuda: {error or repr(error)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

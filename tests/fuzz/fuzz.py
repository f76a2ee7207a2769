"""Runs the fuzzers, whose build folder is BUILD.

    fuzz.py BUILD MINUTES      all fuzzers at once, for MINUTES; keeps the inputs that they found in BUILD/corpus
    fuzz.py BUILD NAME RUNS    one fuzzer, for RUNS inputs, which are the same each time
Prints an input that breaks a promise, keeps it in BUILD, and exits with 1.
"""

import base64
import pathlib
import re
import subprocess
import sys
import tempfile

TESTS = pathlib.Path(__file__).resolve().parents[1]
SEEDS = {"api": TESTS / "fuzz/api", "config": TESTS / "data/configs", "npy": TESTS / "fuzz/npy"}


def start(build, name, corpus, *options):
    corpus.mkdir(parents=True, exist_ok=True)
    with open(build / f"{name}.log", "w") as log:
        return subprocess.Popen(
            [build / "bin" / f"fuzz_{name}", *options, "-max_len=4096", "-len_control=0", "-timeout=20",
             f"-artifact_prefix={build}/{name}-", corpus, SEEDS[name]], stdout=log, stderr=subprocess.STDOUT)


def has_failed(build, name, process):
    """Waits for a fuzzer, prints its result, and returns whether it failed. Prints only our own frames of a stack,
    because all frames would hide the message about the broken promise."""
    broken = process.wait() != 0
    wanted = r"what\(\):|runtime error|ERROR|Test unit written|checks/|runtime/" if broken else r"^Done|calls of"
    lines = (build / f"{name}.log").read_text(errors="replace").splitlines()
    print(f"run: {name}:", *[line for line in lines if re.search(wanted, line) and "NEW_FUNC" not in line],
          sep="\n  ", file=sys.stderr)
    for path in re.findall(r"Test unit written to (.*)", "\n".join(lines)):
        print("  in base64:", base64.b64encode(pathlib.Path(path).read_bytes()).decode(), file=sys.stderr)
    return broken


def main():
    build = pathlib.Path(sys.argv[1])
    if len(sys.argv) == 4:
        name, n_runs = sys.argv[2:]
        with tempfile.TemporaryDirectory() as learnt:
            process = start(build, name, pathlib.Path(learnt), f"-runs={n_runs}", "-seed=20261121")
            sys.exit(has_failed(build, name, process))
    minutes = int(sys.argv[2])
    running = {name: start(build, name, build / "corpus" / name, f"-max_total_time={60 * minutes}") for name in SEEDS}
    sys.exit(any([has_failed(build, name, process) for name, process in running.items()]))


main()

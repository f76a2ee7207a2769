"""fuzz.py BUILD MINUTES: lets all fuzzers make up inputs at once. BUILD is their build folder.
fuzz.py BUILD NAME RUNS: lets one make up so many, the same ones each time.

What they learn in so many minutes is kept in BUILD/corpus. An input that breaks a promise is printed and kept in BUILD,
and the exit status is then 1.
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


def is_broken(build, name, process):
    """Waits for a fuzzer, and says what it saw. Of a stack only our own frames are said: all of it would hide
    the promise that was broken."""
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
            sys.exit(is_broken(build, name, process))
    minutes = int(sys.argv[2])
    running = {name: start(build, name, build / "corpus" / name, f"-max_total_time={60 * minutes}") for name in SEEDS}
    sys.exit(any([is_broken(build, name, process) for name, process in running.items()]))


main()

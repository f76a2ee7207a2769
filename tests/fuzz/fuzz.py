"""fuzz.py BUILD MINUTES: lets all fuzzers make up inputs at once. BUILD is their build folder.

What they learn is kept in BUILD/corpus. An input that breaks a promise is kept in BUILD, and the exit status is then 1.
"""

import pathlib
import re
import subprocess
import sys

TESTS = pathlib.Path(__file__).resolve().parents[1]
SEEDS = {"api": TESTS / "fuzz/api", "config": TESTS / "data/configs", "npy": TESTS / "fuzz/npy"}


def start(build, name, seeds, minutes):
    corpus = build / "corpus" / name
    corpus.mkdir(parents=True, exist_ok=True)
    with open(build / f"{name}.log", "w") as log:
        return subprocess.Popen(
            [build / "bin" / f"fuzz_{name}", f"-max_total_time={60 * minutes}", "-max_len=4096", "-len_control=0",
             "-timeout=20", f"-artifact_prefix={build}/{name}-", corpus, seeds],
            stdout=log, stderr=subprocess.STDOUT)


def main():
    build, minutes = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    running = {name: start(build, name, seeds, minutes) for name, seeds in SEEDS.items()}
    failed = False
    for name, process in running.items():
        broken = process.wait() != 0
        wanted = r"what\(\):|runtime error|ERROR|Test unit written" if broken else r"^Done|calls of"
        lines = (build / f"{name}.log").read_text(errors="replace").splitlines()
        print(f"run: {name}:", *[line for line in lines if re.search(wanted, line)], file=sys.stderr)
        failed |= broken
    sys.exit(failed)


main()

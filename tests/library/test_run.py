"""test_run.py ROOT: what ./run says to wrong arguments, to --help, and when Ctrl-C meets a slow download.

It runs in a folder and on a PATH of its own, where apt-get and pip are programs of this test.
"""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

PROGRAMS = "awk bash cat dirname env flock grep id ln mkdir readlink rm sleep tail uname".split()

# What stands in for apt-get, python3 and the pip of a virtual environment. $SLOW is the download at which it stays, and
# $ON_INT what it does when Ctrl-C is pressed: nothing, as apt-get while dpkg runs, or an error, as pip.
FAKE = r"""#!/usr/bin/env bash
[[ $* != *" -r /dev/stdin"* ]] || cat >/dev/null
case "${0##*/} $*" in
*" -m venv "*)
    mkdir -p "${@: -1}/bin"
    ln -s "$0" "${@: -1}/bin/python"
    ;;
*indextargets*)
    . /etc/os-release
    echo "$VERSION_CODENAME main http://localhost/$ID"
    ;;
$SLOW)
    trap "$ON_INT" INT
    echo "$*" >>started
    sleep 60 &
    while ! wait; do :; done
    ;;
esac
"""
# What a set-up calls, in this order: the first for a compiler, which is missing here.
DOWNLOADS = "apt-get*install*g++*", "python *pip install*", "apt-get*update*"


def make_checkout(root, folder):
    (folder / "bin").mkdir()
    for name in "run", "setup.sh", "requirements.txt", "CMakePresets.json":
        shutil.copy(root / name, folder)
    for name in PROGRAMS:
        (folder / "bin" / name).symlink_to(shutil.which(name))
    for name in "apt-get", "python3", "sudo":
        (folder / "bin" / name).write_text('#!/bin/sh\n[ "$1" != -n ] || shift\nexec "$@"\n' if name == "sudo" else FAKE)
        (folder / "bin" / name).chmod(0o755)


def start(folder, *arguments, **variables):
    return subprocess.Popen(["bash", "./run", *arguments], cwd=folder, text=True, start_new_session=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                            env={"PATH": str(folder / "bin"), "HOME": str(folder), **variables})


def expect(folder, arguments, status, pattern):
    process = start(folder, *arguments)
    output, errors = process.communicate()
    if process.returncode != status or not re.fullmatch(pattern, output + errors, re.DOTALL):
        sys.exit(f"./run {' '.join(arguments)} ended with {process.returncode} and printed:\n{output}{errors}")
    if (folder / ".deps").exists():
        sys.exit(f"./run {' '.join(arguments)} began a set-up")


def has_begun(started):
    """The file is there a moment before its line is."""
    return started.exists() and started.read_text().endswith("\n")


def interrupt(folder, download, on_int):
    """Ctrl-C reaches every program of the terminal, and ./run ends at once."""
    for leftover in folder / "started", folder / ".deps":
        shutil.rmtree(leftover, ignore_errors=True)
        leftover.unlink(missing_ok=True)
    compiler = {} if download == DOWNLOADS[0] else {"CXX": "c++"}
    process = start(folder, "setup", SLOW=download, ON_INT=on_int, **compiler)
    try:
        deadline = time.monotonic() + 30
        while not has_begun(folder / "started") and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        pressed = time.monotonic()
        os.killpg(process.pid, signal.SIGINT)
        process.wait(10)
        seconds = time.monotonic() - pressed
    except ProcessLookupError:
        sys.exit(f"{download}: ./run has ended before: {process.communicate()}")
    except subprocess.TimeoutExpired:
        sys.exit(f"{download} with {on_int!r}: ./run goes on after Ctrl-C")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    errors = process.stderr.read().splitlines()
    started = (folder / "started").read_text().splitlines()
    if process.returncode != -signal.SIGINT or seconds > 5 or len(started) != 1 or \
            not errors[-1].startswith("run: stopped") or any("network" in line for line in errors):
        sys.exit(f"{download} with {on_int!r}: ./run ended with {process.returncode} after {seconds:.1f} s, having called "
                 f"{started}, and printed: {errors}")


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        make_checkout(root, folder)
        line = "[^\n]*\n"
        for wrong, reason in [("", "which command"), ("dmo", "unknown command: dmo"), ("help dmo", "unknown command: dmo"),
                              ("demo 3", "demo takes no arguments"), ("build x", "cannot build: x"),
                              ("fuzz", "how many minutes"), ("test engines -k x", "for which engine"),
                              ("test engines vllm asan", "sanitizers are for ggml")]:
            expect(folder, wrong.split(), 2, f"run: [^\n]*{reason}{line}run: ./run help {line}")
        expect(folder, ["help"], 0, "Usage: .*\n  demo .*\n  test .*")
        for asked in "help demo", "demo --help", "demo -h":
            expect(folder, asked.split(), 0, f"  demo +{line}")
        expect(folder, ["test", "asan", "--help"], 0, rf"  test \[ARGS\] {line}(  test [^\n]*\n|   [^\n]*\n)+")
        for download in DOWNLOADS:
            for on_int in "", "exit 1":
                interrupt(folder, download, on_int)


main()

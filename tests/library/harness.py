"""The frame of the check scripts in this folder: the command line, running commands, failing and skipping.

    python3 SCRIPT BUILD.json CHECK [ARGUMENT...]

CMake writes BUILD.json: CMake's variables by name, and the path of each target's file by the target's name. CHECK is a
function that the script passes to main().
"""

import json
import os
import pathlib
import shlex
import subprocess
import sys


PYTHON = [sys.executable, "-B"]  # -B: writes no .pyc files among the sources


class Build:
    """The contents of BUILD.json: build.NAME is a string, build.list("NAME") is a CMake list as a list of strings."""

    def __init__(self, path):
        self.__dict__.update(json.loads(pathlib.Path(path).read_text()))
        self.source = pathlib.Path(self.PROJECT_SOURCE_DIR)
        self.folder = pathlib.Path(self.CMAKE_BINARY_DIR)
        self.kernels = pathlib.Path(self.HALYARD_KERNEL_FOLDER)
        self.include = self.source / "runtime/include"
        self.here = self.source / "tests/library"
        self.c_example = self.source / "examples/rotate.c"
        self.scratch = self.folder / "tests/library/scratch"
        self.scratch.mkdir(parents=True, exist_ok=True)
        self.emulator = self.list("CMAKE_CROSSCOMPILING_EMULATOR")

    def list(self, name):
        return [item for item in getattr(self, name).split(";") if item]


def attempt(*command, **variables):
    """Runs a command with environment variables (None unsets one). Returns its .returncode, .stdout and .stderr."""
    environment = {name: value for name, value in {**os.environ, **variables}.items() if value is not None}
    return subprocess.run([str(word) for word in command], env={k: str(v) for k, v in environment.items()},
                          capture_output=True, text=True)


def run(*command, **variables):
    """Runs a command that must succeed, and returns what it prints."""
    done = attempt(*command, **variables)
    if done.returncode != 0:
        fail(f"{shlex.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def fail(message):
    sys.exit(message)


def expect_equal(what, found, expected):
    if found != expected:
        fail(f"{what}\n  found:    {found}\n  expected: {expected}")


def expect_c_example(build, program, **variables):
    """The program, built from examples/rotate.c, prints that all elements came back."""
    expect_equal(f"{program} says that its elements come back",
                 " 0 of 3072 elements did not come back\n" in run(*build.emulator, program, **variables), True)


def skip(reason):
    """Ends the check as skipped: CTest looks for the word SKIP."""
    print(f"SKIP: {reason}")
    sys.exit()


def main(*checks):
    path, name, *arguments = sys.argv[1:]
    for check in checks:
        if check.__name__ == name:
            check(Build(path), *arguments)
            return
    fail(f"{sys.argv[0]} has no check named {name}")

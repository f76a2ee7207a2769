"""Runs what the project's pages tell people to do in their ```sh blocks, each block as one script.

harness.py says how this is called. The folder looks like a checkout after `./run build`, but its ./run is this script: the
tool and the demo run as they stand; the bench is shortened to one quick row; dist packs the kernels that this build has.
What else there is takes many minutes, or is the tests, which run this: it has to be a command that ./run knows.
"""

import os
import pathlib
import re
import shlex
import sys
import tempfile

from harness import PYTHON, attempt, fail, main, run

SHORT = ["--quick", "--filter", "half_f32/llama-3-8b/1/hot"]


def blocks_of(page):
    return re.findall(r"^```sh\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


def do_block(block, folder, **variables):
    """Runs a block in a folder, which is the home too. What it compiles is not optimised, to be quick."""
    script = f"cd {shlex.quote(str(folder))}\n{block}"
    return run("bash", "-ec", script, HOME=folder, CMAKE_BUILD_TYPE="None", **variables)


def make_checkout(build, folder):
    for path in build.source.iterdir():
        if path.name not in ("run", "build", "dist", ".deps", ".git"):
            (folder / path.name).symlink_to(path)
    (folder / "build").mkdir()
    (folder / "build/host").symlink_to(build.folder)
    (folder / ".deps/venv/bin").mkdir(parents=True)
    for name, program in ("cmake", build.CMAKE_COMMAND), ("ninja", build.CMAKE_MAKE_PROGRAM):
        (folder / ".deps/venv/bin" / name).symlink_to(program)
    imitation = shlex.join([*PYTHON, __file__, sys.argv[1], "imitate_run"])
    (folder / "run").write_text(f'#!/bin/sh\nexec {imitation} "$@"\n')
    (folder / "run").chmod(0o755)


def imitate_run(build, command, *arguments):
    """What ./run COMMAND ARGUMENTS does in a block."""
    bin_folder = build.folder / "bin"
    bench = [*PYTHON, build.source / "bench/bench.py"]
    if attempt(build.source / "run", "help", command).returncode != 0:
        fail(f"./run has no command {command}")
    if command == "bench" and arguments[:1] == ("chart",):
        python = build.source / ".deps/plot/bin/python"
        if not python.exists():
            return  # the chart's own test says so
        run(python, "-IB", build.source / "bench/chart.py", *arguments[1:])
    elif command == "dist":
        run(*PYTHON, build.source / "generators/emit/dist.py", "--version", build.PROJECT_VERSION,
            "--json", build.HALYARD_JSON_DIR, "--destination", "dist", "--triple", f"x86-64-linux={build.kernels}",
            "--cuda", build.kernels, "--halide-license", build.HALYARD_HALIDE_LICENSE)
    elif command == "demo":
        if "C loops    compiled for this very CPU" not in run(*bench, "demo", "--build", build.folder):
            fail("the demo does not say what its rows compare")
    elif command == "halyard":
        run(bin_folder / "halyard", *arguments)
    elif command == "bench" and arguments[:1] == ("road",):
        run(*bench, "road", "--quick", "--filter", "llama-3-8b/1/bf16", "--build", build.folder)
    elif command == "bench" and arguments[:1] == ("compare",):
        done = attempt(*bench, *arguments)
        if done.returncode not in (0, 1):  # the machine may be slower now
            fail(done.stderr)
    elif command == "bench":
        given = [argument for before, argument in zip(("", *arguments), arguments)
                 if argument not in SHORT and before != "--filter"]
        run(*bench, *given, *SHORT, "--build", build.folder)
    for before, after in zip(arguments, arguments[1:]):
        if before in ("-o", "--json") and not os.stat(after).st_size:
            fail(f"./run {command} {' '.join(arguments)} wrote nothing to {after}")


def run_blocks(build):
    for page in "README.md", "bench/README.md":
        blocks = blocks_of(build.source / page)
        if not blocks:
            fail(f"{page} has no block")
        for block in blocks:
            with tempfile.TemporaryDirectory() as name:
                make_checkout(build, pathlib.Path(name))
                do_block(block, name)


if __name__ == "__main__":
    main(run_blocks, imitate_run)

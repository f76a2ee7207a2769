#!/usr/bin/env python3
"""check_shell_blocks.py RUN BIN CMAKE APP.cpp TEXT.md...: does what the texts' ```sh blocks tell people to do.

RUN is the project's script and BIN holds a build's programs. Of lines with `./run COMMAND ...`, COMMAND has to be one that
`RUN help` lists. The tool and the demo run as they stand, on files that are made for it; the bench runs, but for the parts
of it that only read its files, shortened to one quick row. What else there is (the tests, which run this) stays as it is.
Other lines run as they stand, in a folder where .deps/venv/bin/cmake is CMAKE, build/host is the build, and app.cpp is
APP.cpp.
"""

import json
import os
import pathlib
import re
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile

SHORT = ["--quick", "--filter", "half_f32/llama-3-8b/1/hot"]


def lines_of(text):
    for block in re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        yield from filter(None, (re.sub(r"\s+#.*", "", line).strip() for line in block.splitlines()))


def make_inputs(folder, programs, cmake, app):
    (folder / "build").mkdir()
    (folder / "build/host").symlink_to(programs.parent)
    (folder / ".deps/venv/bin").mkdir(parents=True)
    (folder / ".deps/venv/bin/cmake").symlink_to(cmake)
    shutil.copy(app, folder / "app.cpp")
    header = repr({"descr": "<f4", "fortran_order": False, "shape": (64, 4, 128)}).ljust(117) + "\n"
    data = struct.pack("<6sBBH", b"\x93NUMPY", 1, 0, len(header)) + header.encode() + bytes(64 * 4 * 128 * 4)
    (folder / "q.npy").write_bytes(data)
    config = {"model_type": "llama", "hidden_size": 512, "num_attention_heads": 4, "rope_theta": 500000.0,
              "max_position_embeddings": 8192}
    (folder / "config.json").write_text(json.dumps(config))


def program_for(programs, command, arguments):
    """What to run in place of a line; nothing where that is left to others."""
    if command == "halyard":
        return [programs / "halyard", *arguments]
    if command == "demo":
        return [programs / "halyard_demo", *arguments]
    if command == "bench":
        if arguments[:1] == ["growth"]:
            return [programs / "halyard_bench", *arguments, "--help"]  # it takes minutes
        if arguments[:1] in (["chart"], ["compare"]):
            return [programs / "halyard_bench", *arguments]
        mine = [argument for i, argument in enumerate(arguments)
                if argument not in SHORT and "--filter" not in arguments[max(i - 1, 0):i]]
        return [programs / "halyard_bench", *mine, *SHORT]
    return None


def main():
    run, programs, cmake, app, *texts = map(pathlib.Path, sys.argv[1:])
    run, programs = run.resolve(), programs.resolve()
    usage = subprocess.run([run, "help"], capture_output=True, text=True, check=True).stdout
    n_lines = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        make_inputs(folder, programs, cmake, app)
        for path in texts:
            for line in lines_of(path.read_text()):
                first, *arguments = shlex.split(line)
                program = ["bash", "-c", line]
                if first == "./run":
                    command, *arguments = arguments
                    if not re.search(rf"^  {re.escape(command)}\b", usage, re.MULTILINE):
                        sys.exit(f"{path}: ./run has no such command: {line}")
                    program = program_for(programs, command, arguments)
                    if program is None:
                        continue
                done = subprocess.run(program, cwd=folder, env={**os.environ, "HOME": name}, capture_output=True,
                                      text=True)
                if done.returncode != 0:
                    sys.exit(f"{path}: {line}\n{shlex.join(map(str, program))}: {done.stdout}{done.stderr}")
                for before, after in zip(arguments, arguments[1:]):
                    if before in ("-o", "--json") and not (folder / after).stat().st_size:
                        sys.exit(f"{path}: {line} wrote nothing to {after}")
                if (folder / "run.json").exists():
                    for copy in "before.json", "after.json":
                        shutil.copy(folder / "run.json", folder / copy)
                n_lines += 1
    if n_lines == 0:
        sys.exit("no line of the texts was run")
    print(f"{n_lines} lines were run")


main()

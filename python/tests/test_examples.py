"""The examples in Python, as a user calls them."""

import os
import pathlib
import socket
import subprocess
import sys

import pytest

import halyard

pytest.importorskip("torch")
EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize("n_processes", [2, 4])
def test_context_parallel(n_processes):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    package = str(pathlib.Path(halyard.__file__).parents[1])
    done = subprocess.run([sys.executable, EXAMPLES / "context_parallel.py", str(n_processes)], text=True,
                          capture_output=True, timeout=500, env={
                              **os.environ, "MASTER_PORT": port,
                              "PYTHONPATH": os.pathsep.join([package, os.environ.get("PYTHONPATH", "")])})
    assert done.returncode == 0, done.stderr
    assert f"{n_processes} processes" in done.stdout and "bitwise equal to one process: True" in done.stdout

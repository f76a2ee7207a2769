"""The tour's blocks print what the page says, and the examples in Python run as a user calls them."""

import contextlib
import io
import pathlib
import re
import socket

import pytest

pytest.importorskip("torch")
ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.parametrize("n_processes", [2, 4])
def test_context_parallel(run_python, n_processes):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    done = run_python(ROOT / "examples/context_parallel.py", n_processes, MASTER_PORT=port)
    assert done.returncode == 0, done.stderr
    assert f"{n_processes} processes" in done.stdout and "bitwise equal to one process: True" in done.stdout


def blocks():
    page = (ROOT / "python/tour.md").read_text()
    return re.findall(r"^```python\n(.*?)^```\n```text\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def test_tour(tmp_path, monkeypatch):
    pytest.importorskip("transformers")
    pytest.importorskip("matplotlib")
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    monkeypatch.chdir(tmp_path)
    names = {}
    assert len(blocks()) == (ROOT / "python/tour.md").read_text().count("```python")
    for source, expected in blocks():
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(source, "tour.md", "exec"), names)
        assert printed.getvalue() == expected, source
    assert (tmp_path / "rope.svg").stat().st_size > 1000

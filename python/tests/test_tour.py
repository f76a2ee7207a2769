"""The tour's blocks print what the page says."""

import contextlib
import io
import pathlib
import re

import pytest

pytest.importorskip("torch")
ROOT = pathlib.Path(__file__).parents[2]


def blocks():
    page = (ROOT / "python/tour.md").read_text()
    return re.findall(r"^```python\n(.*?)^```\n```text\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def test_tour(tmp_path, monkeypatch):
    pytest.importorskip("transformers")
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    monkeypatch.chdir(tmp_path)
    names = {}
    assert len(blocks()) == (ROOT / "python/tour.md").read_text().count("```python")
    for source, expected in blocks():
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(source, "tour.md", "exec"), names)
        assert printed.getvalue() == expected, source

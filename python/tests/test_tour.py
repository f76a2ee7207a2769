"""The code blocks of tour.md print the output that the page shows."""

import contextlib
import io
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[2]


def test_tour(tmp_path, monkeypatch):
    pytest.importorskip("torch"), pytest.importorskip("transformers")
    page, names = (ROOT / "python/tour.md").read_text(), {}
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```\n```text\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(blocks) == page.count("```python")
    for source, expected in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(source, "tour.md", "exec"), names)
        assert printed.getvalue() == expected, source

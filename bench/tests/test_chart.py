"""A chart shows the rows that match, with machine and date."""

import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).parents[2]
sys.path.append(str(ROOT / "checks"))
import need_matplotlib  # noqa: E402, F401

ROW = {"name": "half_f32/small/3/hot", "model": "small", "q_heads": 2, "k_heads": 1, "head_dim": 16, "tokens": 3,
       "dtype": "f32", "in_place": False, "cold": False, "angles": "table", "target": "x86_avx2",
       "judged_by": "memory", "ratio": 0.5, "memory": {"median_seconds": 0.2}, "conversion": {"median_seconds": 0.4},
       "rivals": [{"name": name, "kind": kind, "median_seconds": seconds, "wrong": name == "wronglib"}
                  for name, kind, seconds in (("slowlib", "peer", 1.0), ("fastlib", "peer", 0.3),
                                              ("wronglib", "peer", 0.1), ("gcc 12", "loop", 0.4))]}
TOKEN = ROW | {"name": "half_bf16/small/1/hot", "tokens": 1, "dtype": "bf16", "judged_by": "conversion",
               "rivals": [{"name": "bound", "kind": "bound", "median_seconds": 0.5, "wrong": False}]}


def draw(rows, pattern="*", status=0):
    """The chart's SVG, or what is said instead."""
    run = {"machine": {"cpu": "a <CPU>", "caches": "L1", "commit": "abc", "date": "2026-11-21"},
           "command": "./run bench --quick", "rows": rows}
    with tempfile.TemporaryDirectory() as folder:
        path, out = pathlib.Path(folder, "run.json"), pathlib.Path(folder, "run.svg")
        path.write_text(json.dumps(run))
        done = subprocess.run([sys.executable, "-IB", ROOT / "bench/chart.py", path, "-o", out, "--filter",
                               pattern], capture_output=True, text=True)
        assert done.returncode == status, done.stderr
        return done.stderr if status else out.read_text()


svg = draw([ROW, TOKEN], "half_f32/*")
for words in ("small, 3 tokens, f32, out of place", "a &lt;CPU&gt;", "2026-11-21", "./run bench --quick", "C loop, gcc",
              "best peer"):
    assert words in svg, words
for words in "as a bound run", "1 token":
    assert words not in svg, words
both = draw([TOKEN, ROW])
assert both.index("3 tokens, f32") < both.index("1 token, bf16, out of place *")  # fastlib is ahead
assert "as a bound run" in both
assert "no row matches" in draw([ROW], "bf16*", status=1)
assert "--json" in draw([1], status=1)

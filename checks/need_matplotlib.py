"""To be imported by a test of pictures: has that run with matplotlib, which ./run bench chart and ./run test nightly
fetch."""

import importlib.util
import os
import pathlib
import sys

if importlib.util.find_spec("matplotlib") is None:
    python = pathlib.Path(__file__).parents[1] / ".deps/plot/bin/python"
    if not python.exists():
        print("SKIP: matplotlib has not been fetched")
        sys.exit()
    os.execv(python, [python, "-B", *sys.argv])

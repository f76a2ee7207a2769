import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import halyard

sys.path.insert(0, str(pathlib.Path(__file__).parent))

SEED = 20261121


@pytest.fixture
def rng():
    return np.random.default_rng(SEED)


@pytest.fixture(scope="module")
def angles(request):
    """Exact ones at every position, for the module's BASE and DIM."""
    return halyard.AngleSource(halyard.Frequencies.from_base(request.module.BASE, request.module.DIM))


@pytest.fixture
def run_python():
    """Runs a script by this interpreter with the package that is tested, and what tests share."""
    def run(*arguments, library_path=()):
        package, tests = map(str, (pathlib.Path(halyard.__file__).parents[1], pathlib.Path(__file__).parent))
        paths = {"PYTHONPATH": [package, tests, os.environ.get("PYTHONPATH", "")]}
        if library_path:
            paths["LD_LIBRARY_PATH"] = map(str, library_path)
        return subprocess.run([sys.executable, *map(str, arguments)], text=True, capture_output=True, timeout=500, env={
            **os.environ, **{name: os.pathsep.join(value) for name, value in paths.items()}})

    return run


@pytest.fixture(scope="session")
def configs():
    return pathlib.Path(__file__).parents[2] / "tests" / "data" / "configs"

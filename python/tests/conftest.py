import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import halyard

TESTS = pathlib.Path(__file__).parent
sys.path.insert(0, str(TESTS))


@pytest.fixture
def rng():
    return np.random.default_rng(20261121)


@pytest.fixture(scope="session")
def angles():
    """Exact ones at every position, for 64 columns."""
    return halyard.AngleSource(halyard.Frequencies.from_base(1e4, 64))


@pytest.fixture
def run_python():
    """Runs a script by this interpreter with the package that is tested, and what tests share."""
    def run(*arguments, library_path=()):
        package = pathlib.Path(halyard.__file__).parents[1]
        paths = {"PYTHONPATH": [package, TESTS, os.environ.get("PYTHONPATH", "")], "LD_LIBRARY_PATH": library_path}
        return subprocess.run([sys.executable, *map(str, arguments)], text=True, capture_output=True, timeout=500, env={
            **os.environ, **{name: os.pathsep.join(map(str, value)) for name, value in paths.items() if value}})

    return run


@pytest.fixture(scope="session")
def configs():
    return TESTS.parents[1] / "tests" / "data" / "configs"

import pathlib
import sys

import numpy as np
import pytest

import halyard

TESTS = pathlib.Path(__file__).parent
sys.path.insert(0, str(TESTS))


@pytest.fixture
def rng():
    return np.random.default_rng(20261121)


@pytest.fixture
def keys(rng):
    """Five tokens of two heads with head_dim 64."""
    return rng.standard_normal((5, 2, 64)).astype(np.float32)


@pytest.fixture(scope="session")
def angles():
    """Exact angles at every position, for rotary_dim 64."""
    return halyard.AngleSource(halyard.Frequencies.from_base(1e4, 64))


@pytest.fixture(scope="session")
def configs():
    return TESTS.parents[1] / "tests" / "data" / "configs"

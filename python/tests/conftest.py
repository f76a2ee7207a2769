import pathlib
import sys

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

SEED = 20261121


@pytest.fixture
def rng():
    return np.random.default_rng(SEED)


@pytest.fixture(scope="session")
def configs():
    return pathlib.Path(__file__).parents[2] / "tests" / "data" / "configs"

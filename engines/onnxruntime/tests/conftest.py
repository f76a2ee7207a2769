"""The tests of libhalyard_onnxruntime.so, in the Python that has ONNX Runtime: pytest --library LIBRARY."""

import pathlib
import sys

import numpy as np
import pytest

sys.path[:0] = [str(pathlib.Path(__file__).parent), str(pathlib.Path(__file__).parents[1])]

import nodes  # noqa: E402

SEED = 20261121


def pytest_addoption(parser):
    parser.addoption("--library", required=True)


def pytest_configure(config):
    nodes.LIBRARY = str(pathlib.Path(config.getoption("--library")).resolve())


@pytest.fixture
def rng():
    return np.random.default_rng(SEED)

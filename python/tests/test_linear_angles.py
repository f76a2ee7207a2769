"""AngleSource.linear compared with given rows: strides, dtypes and shapes of its arguments, and refusals."""

import numpy as np
import pytest

import halyard

linear = halyard.AngleSource.linear


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_arguments(rng, dtype):
    positions, matrix = (rng.standard_normal((3, 2, 5)) * 100).astype(dtype), rng.standard_normal((3, 8)).astype(dtype)
    x = rng.standard_normal((2, 5, 4, 16)).astype(np.float32)
    angles = linear(positions, matrix, attention_factor=2.0)
    assert (angles.kind, angles.rotary_dim) == ("given", 16)
    y = halyard.rotate(x, angles=angles)
    theta = np.einsum("abt,ak->btk", positions.astype(float), matrix.astype(float)).reshape(10, 8)
    rows = (of(theta).astype(np.float32) for of in (np.cos, np.sin))
    right = 2 * halyard.rotate(x, angles=halyard.AngleSource.given(*rows, by_token=True))
    np.testing.assert_allclose(y, right, rtol=0, atol=5e-6)
    for others, by in ((np.repeat(positions, 2, axis=2)[..., ::2], matrix[::-1].copy()[::-1]),
                       (np.asfortranarray(positions), np.asfortranarray(matrix))):
        assert np.array_equal(halyard.rotate(x, angles=linear(others, by)), y / 2)
    assert np.array_equal(halyard.rotate(x[1], angles=linear(positions[:, 1], matrix)), y[1] / 2)
    for shared in positions[:, 1], np.broadcast_to(positions[:, 1:], positions.shape):
        both = halyard.rotate(np.stack([x[1], x[1]]), None, x, angles=linear(shared, matrix), threads=2)
        assert np.array_equal(both[0], np.stack([y[1], y[1]]) / 2) and np.array_equal(both[1], x)


def test_refused():
    positions, matrix = np.ones((2, 5)), np.ones((2, 8))
    for bad, says in (((positions[0], matrix), "positions"), ((positions, matrix[0]), "matrix"),
                      ((positions.astype(int), matrix), "positions"), ((positions, matrix.astype(int)), "matrix"),
                      ((positions, np.ones((3, 8))), "2 axes"), ((positions[:, :0], matrix), "empty"),
                      ((positions, matrix[:, :0]), "empty")):
        with pytest.raises(halyard.Error, match=says):
            linear(*bad)
    with pytest.raises(halyard.Error, match="attention_factor"):
        linear(positions, matrix, attention_factor=0.0)
    with pytest.raises(TypeError):
        linear([1.0], matrix)
    x = np.ones((5, 3, 16), np.float32)
    for q, more in (x, dict(positions=3)), (x[:4], {}):
        with pytest.raises(halyard.Error, match="by_token"):
            halyard.rotate(q, angles=linear(positions, matrix), **more)

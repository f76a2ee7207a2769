"""Angles that are linear in fractional positions: beside given rows and the models' own code, and in all forms."""

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
    gaps = np.repeat(positions, 2, axis=2)[..., ::2]
    for others in gaps, np.asfortranarray(positions), positions[..., ::-1].copy()[..., ::-1]:
        for by in matrix, np.asfortranarray(matrix), matrix[::-1].copy()[::-1]:
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
                      ((positions, matrix[:, :0]), "empty"), ((positions * 2.0 ** 40, matrix), r"2\^31")):
        with pytest.raises(halyard.Error, match=says):
            linear(*bad)
    for factor in 0.0, -1.0:
        with pytest.raises(halyard.Error, match="attention_factor"):
            linear(positions, matrix, attention_factor=factor)
    with pytest.raises(TypeError):
        linear([1.0], matrix)
    x = np.ones((5, 3, 16), np.float32)
    for q, more in (x, dict(positions=3)), (x[:4], {}):
        with pytest.raises(halyard.Error, match="by_token"):
            halyard.rotate(q, angles=linear(positions, matrix), **more)


# ---- Models: where a package's own float32 angles are off by e, its cos and sin are, too. ----------------------------

def test_dinov3_of_transformers(rng):
    torch = pytest.importorskip("torch")
    dinov3 = pytest.importorskip("transformers.models.dinov3_vit.modeling_dinov3_vit")
    config = dinov3.DINOv3ViTConfig(image_size=64, patch_size=16, hidden_size=128, num_attention_heads=2)
    rope = dinov3.DINOv3ViTRopePositionEmbedding(config).eval()  # to train, patches are moved at random
    q = rng.standard_normal((1, 2, 5 + 12, 64)).astype(np.float32)  # five tokens are no patches
    expected, _ = dinov3.apply_rotary_pos_emb(*2 * [torch.from_numpy(q.copy())], *rope(torch.zeros(1, 3, 64, 48)))
    at = dinov3.get_patches_center_coordinates(4, 3, torch.float32, "cpu")
    # Half of the pairs turn by the row, the others by the column.
    matrix = np.kron(np.eye(2), 2 * np.pi / rope.base ** np.arange(0, 1, 4 / rope.head_dim))
    halyard.rotate(q[:, :, 5:], angles=linear(at.numpy().T, matrix), layout="bhsd", in_place=True)
    assert np.abs(q - expected.numpy()).max() <= 4 * 2 * np.pi * 2.0 ** -23 * np.abs(q).max()


def test_gemma4_vision_of_transformers(rng):
    """Each half of a head turns by an axis of its own, with half pairing: it is a window."""
    torch = pytest.importorskip("torch")
    gemma4 = pytest.importorskip("transformers.models.gemma4.modeling_gemma4")
    config = gemma4.Gemma4VisionConfig(hidden_size=96, num_attention_heads=3, head_dim=32)
    q, at = rng.standard_normal((20, 3, 32)).astype(np.float32), np.indices((4, 5)).reshape(2, 20)
    there = torch.from_numpy(at.T.copy())[None]
    rows = gemma4.Gemma4VisionRotaryEmbedding(config)(torch.zeros(1), there)
    expected = gemma4.apply_multidimensional_rope(torch.from_numpy(q.copy())[None], *rows, there)[0].numpy()
    angles = halyard.AngleSource(halyard.Frequencies.from_base(config.rope_parameters["rope_theta"], 16))
    for part in range(2):
        halyard.rotate(halyard.Tensor(q, rotary_offset=16 * part, out=q), angles=angles, positions=at[part])
    assert np.abs(q - expected).max() <= 5 * 2.0 ** -22 * np.abs(q).max()

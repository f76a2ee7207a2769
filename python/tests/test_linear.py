"""Angles that are linear in fractional positions: against the formula and the models' own code."""

import numpy as np
import pytest

import exact
import halyard

DIM = 32


def turned(angles, shape):
    """cos and sin [..., pairs] of heads, by the pairs (1, 0)."""
    x = np.zeros((*shape, angles.rotary_dim), np.float32)
    x[..., :angles.rotary_dim // 2] = 1
    y = halyard.rotate(x, angles=angles)
    return y[..., :angles.rotary_dim // 2], y[..., angles.rotary_dim // 2:]


def check_rows(cos_sin, theta, bound=1.2e-7):
    for got, right in zip(cos_sin, (np.cos(theta), np.sin(theta))):
        assert np.abs(got - right).max() <= bound


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_formula(rng, kind):
    positions = (rng.standard_normal((3, 2, 7)) * 100).astype(kind)
    matrix = rng.standard_normal((3, DIM // 2)).astype(kind)
    angles = halyard.AngleSource.linear(positions, matrix)
    assert angles.kind == "given" and angles.rotary_dim == DIM
    theta = np.einsum("abt,ak->btk", positions.astype(np.longdouble), matrix.astype(np.longdouble))[:, :, None]
    check_rows(turned(angles, (2, 7, 2)), theta)
    x = rng.standard_normal((2, 7, 2, DIM + 4)).astype(np.float16)
    y = halyard.rotate(halyard.Tensor(x, rotary_offset=2), angles=angles, pairing="interleaved", inverse=True)
    right, length = exact.turn(x, np.cos(theta), -np.sin(theta), pairing="interleaved", offset=2)
    exact.check_near(y, right, length, x.dtype)


def test_forms(rng):
    positions, matrix = rng.standard_normal((2, 5)), rng.standard_normal((2, 8))
    x = rng.standard_normal((3, 5, 4, 16)).astype(np.float32)
    y = halyard.rotate(x, angles=halyard.AngleSource.linear(positions, matrix))
    for other in (np.asfortranarray(positions), np.repeat(positions, 2, axis=1)[:, ::2], positions[:, ::-1][:, ::-1],
                  np.broadcast_to(positions[:, None], (2, 3, 5))):
        for by in (matrix, np.asfortranarray(matrix), matrix[::-1][::-1]):
            assert np.array_equal(halyard.rotate(x, angles=halyard.AngleSource.linear(other, by)), y)
    for batch in range(3):
        assert np.array_equal(halyard.rotate(x[batch], angles=halyard.AngleSource.linear(positions, matrix)), y[batch])
    twice = halyard.AngleSource.linear(positions, matrix, attention_factor=2.0)
    assert np.array_equal(halyard.rotate(x, angles=twice), 2 * y)
    v = halyard.rotate(x, None, x[..., :3, :], angles=twice, threads=2)
    assert np.array_equal(v[0], 2 * y) and np.array_equal(v[1], x[..., :3, :])


def test_refused(rng):
    positions, matrix = np.ones((2, 5)), np.ones((2, 8))
    linear = halyard.AngleSource.linear
    for bad, says in (((positions[0], matrix), "positions"), ((positions, matrix[0]), "matrix"),
                      ((positions.astype(int), matrix), "positions"), ((positions, matrix.astype(int)), "matrix"),
                      ((positions, np.ones((3, 8))), "2 axes"), ((np.ones((5, 5)), np.ones((5, 8))), "n_axes is 5"),
                      ((positions[:, :0], matrix), "empty"), ((positions, matrix[:, :0]), "empty"),
                      ((positions * np.inf, matrix), "positions"), ((positions, matrix * np.nan), "matrix"),
                      ((positions * 2.0 ** 40, matrix), "2^31"), ((positions, np.ones((4, 2, 8))), "matrix")):
        with pytest.raises(halyard.Error, match=says.replace("^", r"\^")):
            linear(*bad)
    for factor in (0.0, -1.0, np.nan, 2.0 ** 70):
        with pytest.raises(halyard.Error, match="attention_factor"):
            linear(positions, matrix, attention_factor=factor)
    with pytest.raises(TypeError):
        linear([1.0], matrix)
    x = np.ones((5, 3, 16), np.float32)
    with pytest.raises(halyard.Error, match="by_token"):
        halyard.rotate(x, angles=linear(positions, matrix), positions=3)
    with pytest.raises(halyard.Error, match="5 rows by_token"):
        halyard.rotate(x[:4], angles=linear(positions, matrix))
    cos = np.ones((5, 8), np.float32)
    for other in cos[:3], cos[:, None]:
        with pytest.raises(halyard.Error, match="sin"):
            halyard.AngleSource.given(cos, other)


# ---- Models ----------------------------------------------------------------------------------------------------------
# Where a package's own float32 angles are off by e, its cos and sin are, too. |theta| rounded twice is off by 2^-23.

def test_dinov3_of_transformers(rng):
    torch = pytest.importorskip("torch")
    dinov3 = pytest.importorskip("transformers.models.dinov3_vit.modeling_dinov3_vit")
    config = dinov3.DINOv3ViTConfig(image_size=64, patch_size=16, hidden_size=128, num_attention_heads=2)
    rope = dinov3.DINOv3ViTRopePositionEmbedding(config).eval()  # to train, patches are moved at random
    cos, sin = rope(torch.zeros(1, 3, 64, 48))
    at = dinov3.get_patches_center_coordinates(4, 3, torch.float32, "cpu")
    n = rope.head_dim // 4
    matrix = np.zeros((2, 2 * n))  # the first half of the pairs turns by the row, the other by the column
    matrix[0, :n] = matrix[1, n:] = 2 * np.pi / rope.base ** np.arange(0, 1, 1 / n)
    angles = halyard.AngleSource.linear(at.numpy().T, matrix)
    q = rng.standard_normal((1, 2, 5 + 12, 64)).astype(np.float32)  # five tokens are no patches
    expected = dinov3.apply_rotary_pos_emb(torch.from_numpy(q), torch.from_numpy(q), cos, sin)[0].numpy()
    halyard.rotate(q[:, :, 5:], angles=angles, layout="bhsd", in_place=True)
    assert np.abs(q - expected).max() <= 4 * 2 * np.pi * 2.0 ** -23 * np.abs(q).max()


def test_gemma4_vision_of_transformers(rng):
    """Each half of a head turns by an axis of its own, with half pairing: it is a window."""
    torch = pytest.importorskip("torch")
    gemma4 = pytest.importorskip("transformers.models.gemma4.modeling_gemma4")
    config = gemma4.Gemma4VisionConfig(hidden_size=96, num_attention_heads=3, head_dim=32)
    rope = gemma4.Gemma4VisionRotaryEmbedding(config)
    at = np.stack(np.meshgrid(np.arange(4), np.arange(5), indexing="ij"), -1).reshape(-1, 2)
    x = rng.standard_normal((20, 3, 32)).astype(np.float32)
    there = torch.from_numpy(at)[None]
    cos, sin = rope(torch.zeros(1), there)
    expected = gemma4.apply_multidimensional_rope(torch.from_numpy(x)[None], cos, sin, there)[0].numpy()

    angles = halyard.AngleSource(halyard.Frequencies.from_base(config.rope_parameters["rope_theta"], 16))
    q = x.copy()
    for part in range(2):
        halyard.rotate(halyard.Tensor(q, rotary_offset=16 * part, out=q), angles=angles,
                       positions=np.ascontiguousarray(at[:, part]))
    assert np.abs(q - expected).max() <= 5 * 2.0 ** -22 * np.abs(q).max()

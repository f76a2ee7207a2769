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
    y = halyard.rotate(x, angles=angles, rotary_offset=2, pairing="interleaved", inverse=True)
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
    halyard.rotate(q[:, :, 5:], angles=angles, layout="bhsd", out=q[:, :, 5:])
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
        halyard.rotate(q, angles=angles, positions=np.ascontiguousarray(at[:, part]), rotary_offset=16 * part, out=q)
    assert np.abs(q - expected).max() <= 5 * 2.0 ** -22 * np.abs(q).max()


def turn_by_head(x, positions, matrices):
    """Heads [tokens, heads, head_dim] in interleaved pairing, by a matrix for each: heads are views."""
    y = np.empty_like(x)
    for head, matrix in enumerate(matrices):
        angles = halyard.AngleSource.linear(positions, matrix)
        halyard.rotate(x[:, head:head + 1], angles=angles, pairing="interleaved", out=y[:, head:head + 1])
    return y


def ltx_freqs(dim, theta=10000.0):
    """diffusers 0.42.1, models/transformers/transformer_ltx.py, lines 257 to 267, in float32."""
    exponents = np.linspace(0.0, 1.0, dim // 6, dtype=np.float32)
    return (np.float32(theta) ** exponents * np.float32(np.pi) / np.float32(2)).astype(np.float32)


def test_ltx(rng):
    """Pairs go through all heads of a token, so that each head has its own."""
    frames, height, width, heads, dim = 2, 3, 4, 4, 32
    grid = np.stack(np.meshgrid(*map(np.arange, (frames, height, width)), indexing="ij")).reshape(3, -1)
    grid = grid.astype(np.float32) * np.array([[1 / 20], [32 / 2048], [32 / 2048]], np.float32)
    freqs = ltx_freqs(heads * dim)
    # Lines 268 and 269, then 274 to 278: pair 3 * i + axis, behind pairs that do not turn.
    theta = (freqs * (grid.T[..., None] * 2 - 1)).astype(np.float32).swapaxes(-1, -2).reshape(grid.shape[1], -1)
    n_still = heads * dim // 2 - theta.shape[1]
    theta = np.pad(theta, ((0, 0), (n_still, 0)))
    x = rng.standard_normal((grid.shape[1], heads, dim)).astype(np.float32)
    normed = x / np.sqrt((x * x).mean(axis=(1, 2), keepdims=True) + np.float32(1e-5))
    pairs = normed.reshape(len(x), -1, 2)  # lines 596 to 601
    cos, sin = np.cos(theta), np.sin(theta)
    expected = np.stack([pairs[..., 0] * cos - pairs[..., 1] * sin, pairs[..., 1] * cos + pairs[..., 0] * sin], -1)

    matrix = np.zeros((3, heads * dim // 2))
    for axis in range(3):
        matrix[axis, n_still + axis::3] = freqs
    matrix = matrix.reshape(3, heads, dim // 2).swapaxes(0, 1)
    y = turn_by_head(normed, grid.astype(np.float64) * 2 - 1, matrix)
    largest = np.abs(theta).max()
    assert np.abs(y - expected.reshape(x.shape)).max() <= 2 * largest * 2.0 ** -23 * np.abs(normed).max()


def test_mochi(rng):
    """A trained matrix [axes, heads, pairs]: diffusers 0.42.1, models/transformers/transformer_mochi.py, lines 262 to
    292, and models/attention_processor.py, lines 1041 to 1048."""
    frames, height, width, heads, dim = 2, 4, 6, 3, 16
    scale = np.sqrt(192 * 192 / (height * width))
    centers = [np.arange(frames, dtype=np.float32)]
    for n in (height, width):
        edges = np.linspace(-n * scale / 2, n * scale / 2, n + 1, dtype=np.float32)
        centers.append((edges[:-1] + edges[1:]) / 2)
    at = np.stack(np.meshgrid(*centers, indexing="ij"), -1).reshape(-1, 3)
    frequencies = rng.standard_normal((3, heads, dim // 2)).astype(np.float32)
    theta = np.einsum("nd,dhf->nhf", at, frequencies)
    x = rng.standard_normal((len(at), heads, dim)).astype(np.float32)
    cos, sin, even, odd = np.cos(theta), np.sin(theta), x[..., 0::2], x[..., 1::2]
    expected = np.stack([even * cos - odd * sin, even * sin + odd * cos], -1).reshape(x.shape)
    y = turn_by_head(x, at.T, frequencies.swapaxes(0, 1))
    terms = np.einsum("nd,dhf->nhf", np.abs(at), np.abs(frequencies)).max()
    assert np.abs(y - expected).max() <= 3 * terms * 2.0 ** -23 * np.abs(x).max()

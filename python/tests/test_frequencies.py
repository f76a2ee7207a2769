"""Frequencies and angle sources: making them from all kinds of arguments, their fields, and refusals."""

import json
import math

import numpy as np
import pytest

import halyard
from halyard import AngleSource, Frequencies, QScale

PLAIN = Frequencies.from_base(1e4, 64)


def test_bases_and_lists():
    assert np.allclose(PLAIN.inv_freq, 1e4 ** (-np.arange(32) / 32), rtol=1e-15, atol=0)
    assert (PLAIN.rotary_dim, PLAIN.attention_factor, PLAIN.pairing, PLAIN.q_scale) == (64, 1.0, None, None)
    listed = Frequencies.from_list(np.array([0.5, 0.25]), 1.25)
    assert (listed.inv_freq, listed.attention_factor, listed.method, listed.base) == ((0.5, 0.25), 1.25, "list", None)


def test_configs(configs, tmp_path):
    path = configs / "llama-3.1-8b.json"
    (tmp_path / "config.json").write_bytes(path.read_bytes())
    read = [Frequencies.from_config(config) for config in (path, str(path), json.loads(path.read_text()), tmp_path)]
    assert len({frequencies.inv_freq for frequencies in read}) == 1
    assert (read[0].method, read[0].pairing, read[0].head_dim, read[0].base) == ("llama3", "half", 128, 500000.0)
    sliding, full = (Frequencies.from_config(configs / "gemma-3-4b.json", layer_type=f"{kind}_attention")
                     for kind in ("sliding", "full"))
    assert (sliding.base, full.base) == (1e4, 1e6)
    step = [Frequencies.from_config(configs / "step-3.5-flash.json", layer=layer) for layer in (0, 1)]
    assert [(each.base, each.rotary_dim, each.method) for each in step] == [(5e6, 64, "llama3"), (1e4, 128, "default")]
    assert Frequencies.from_config(configs / "qwen2-vl-7b.json").axis_map == ("sections", (16, 24, 24))
    for config, more, status, words in (
            (configs / "gemma-3-4b.json", {}, "MISMATCH", "layer_type"), ({}, {}, "CONFIG", "missing"),
            (configs / "step-3.5-flash.json", dict(layer=45), "MISMATCH", "the model has 45")):
        with pytest.raises(halyard.Error, match=words) as caught:
            Frequencies.from_config(config, **more)
        assert caught.value.status == f"HALYARD_ERROR_{status}"
    for raised, words, make in ((TypeError, "config is a int", lambda: Frequencies.from_config(3)),
                                (FileNotFoundError, "no/such", lambda: Frequencies.from_config("no/such/file.json")),
                                (TypeError, "from_base", Frequencies)):
        with pytest.raises(raised, match=words):
            make()


def test_config_decides_the_pairings(rng, configs):
    deepseek = Frequencies.from_config(configs / "deepseek-v3.json")
    angles = AngleSource(deepseek, first=0, n_positions=100)
    x = rng.standard_normal((5, 2, deepseek.rotary_dim)).astype(np.float32)
    y, stated, other = (halyard.rotate(x, angles=angles, **more) for more in (
        {}, dict(pairing="interleaved", out_pairing="half"), dict(pairing="interleaved")))
    assert np.array_equal(y, stated) and not np.array_equal(y, other)


def test_for_length(configs):
    path = configs / "phi-3-mini-128k.json"
    short, long = (Frequencies.from_config(path, seq_len=n) for n in (4096, 4097))
    assert (short.first_seq_len, short.last_seq_len, long.first_seq_len, long.last_seq_len) == (0, 4096, 4097, 2**53)
    assert short.attention_factor == pytest.approx(math.sqrt(1 + math.log(32) / math.log(4096)))
    assert short.inv_freq != long.inv_freq
    assert short.for_length(4097).inv_freq == long.inv_freq and long.for_length(4096).inv_freq == short.inv_freq
    assert PLAIN.for_length(10**6).inv_freq == PLAIN.inv_freq and PLAIN.last_seq_len == 2**53


def test_what_a_config_asks_of_q():
    llama4 = Frequencies.from_config({"model_type": "llama4_text", "head_dim": 16, "attn_scale": 0.5, "floor_scale": 8})
    assert llama4.q_scale == QScale("log", 0.5, 8, 1, "unrotated") and llama4.has_unrotated_layers
    positions = np.array([[0, 6, 7, 8], [100, 14, 15, 1 << 30]])
    for given in positions, positions.astype(np.int32, "F"), positions[:, ::-2], positions[0]:
        scales = llama4.position_scales(given)
        assert scales.dtype == np.float32
        assert np.array_equal(scales, (1 + 0.5 * np.log1p((given + 1) // 8)).astype(np.float32))
    with pytest.raises(halyard.Error, match=r"token 1\] is -1"):
        llama4.position_scales(np.array([0, -1]))
    with pytest.raises(TypeError):
        llama4.position_scales(5)
    assert PLAIN.has_unrotated_layers is False
    with pytest.raises(halyard.Error, match="no rule"):
        PLAIN.position_scales(positions)


def test_angle_sources():
    for given, info in (({}, ("phase", -2**31, 2**31 - 1, 1)), (dict(first=0, n_positions=9), ("table", 0, 8, 1)),
                        (dict(kind="phase", n_positions=9), ("phase", 0, 8, 1)),
                        (dict(kind="phase", first=7), ("phase", 7, 2**31 - 1, 1)),
                        (dict(axis_map=("interleaved", (12, 10, 10))), ("phase", -2**31, 2**31 - 1, 3))):
        source = AngleSource(PLAIN, **given)
        assert (source.kind, source.first, source.last, source.n_axes) == info
    assert AngleSource(PLAIN, first=0, n_positions=1024).n_bytes >= 1024 * 64 * 4
    for bad, words in ((dict(kind="given"), "kind"), (dict(kind="rows"), "kind"), (dict(reference="f32"), "refer"),
                       (dict(axis_map=("section", (16, 16))), "axis_map")):
        with pytest.raises(halyard.Error, match=words):
            AngleSource(PLAIN, **bad)
    with pytest.raises(TypeError, match=r"halyard\.Frequencies"):
        AngleSource([1.0])
    x = np.ones((1, 1, 64), np.float32)
    sources = (AngleSource(PLAIN, first=0, n_positions=100_000, reference=name) for name in ("exact", "hf_f32"))
    exact, of_transformers = (halyard.rotate(x, angles=source, positions=99_999) for source in sources)
    assert 1e-4 < np.abs(exact - of_transformers).max() < 1e-1


def test_targets_and_explain():
    targets = halyard.targets()
    assert targets[-1].name == "reference" and sum(target.active for target in targets) == 1
    assert "halyard_rotate_half_bf16" in halyard.explain("bf16", 128)
    with pytest.raises(halyard.Error, match="dtype"):
        halyard.explain("float32")

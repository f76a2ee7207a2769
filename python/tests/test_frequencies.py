import json
import math

import numpy as np
import pytest

import exact
import halyard


def test_from_base_is_correctly_rounded():
    frequencies = halyard.Frequencies.from_base(10000.0, 128)
    assert frequencies.inv_freq == tuple(exact.inv_freq(10000.0, 128).astype(np.float64).tolist())
    assert (frequencies.rotary_dim, frequencies.attention_factor, frequencies.pairing) == (128, 1.0, None)


def test_from_list_takes_numbers_as_they_are():
    frequencies = halyard.Frequencies.from_list(np.array([0.5, 0.25]), 1.25)
    assert (frequencies.inv_freq, frequencies.attention_factor, frequencies.method) == ((0.5, 0.25), 1.25, "list")
    assert frequencies.base is None


def test_config_as_dict_file_and_folder(configs, tmp_path):
    path = configs / "llama-3.1-8b.json"
    (tmp_path / "config.json").write_bytes(path.read_bytes())
    read = [halyard.Frequencies.from_config(config)
            for config in (path, str(path), json.loads(path.read_text()), tmp_path)]
    assert len({frequencies.inv_freq for frequencies in read}) == 1
    assert (read[0].method, read[0].pairing, read[0].head_dim, read[0].base) == ("llama3", "half", 128, 500000.0)


def test_layer_types_and_axes(configs):
    gemma = configs / "gemma-3-4b.json"
    sliding = halyard.Frequencies.from_config(gemma, layer_type="sliding_attention")
    full = halyard.Frequencies.from_config(gemma, layer_type="full_attention")
    assert sliding.inv_freq != full.inv_freq
    with pytest.raises(halyard.Error, match="layer_type") as caught:
        halyard.Frequencies.from_config(gemma)
    assert caught.value.status == "HALYARD_ERROR_MISMATCH"
    step = [halyard.Frequencies.from_config(configs / "step-3.5-flash.json", layer=layer) for layer in (0, 1)]
    assert [(layer.base, layer.rotary_dim, layer.method) for layer in step] == [(5e6, 64, "llama3"), (1e4, 128, "default")]
    with pytest.raises(halyard.Error, match="the model has 45"):
        halyard.Frequencies.from_config(configs / "step-3.5-flash.json", layer=45)
    vl = halyard.Frequencies.from_config(configs / "qwen2-vl-7b.json")
    assert vl.axis_map == ("sections", (16, 24, 24))


LLAMA4 = {"model_type": "llama4_text", "head_dim": 16, "attn_scale": 0.5, "floor_scale": 8}


def test_what_a_config_asks_of_q():
    frequencies = halyard.Frequencies.from_config(LLAMA4)
    assert frequencies.q_scale == halyard.QScale("log", 0.5, 8, 1, "unrotated")
    assert frequencies.has_unrotated_layers
    positions = np.array([[0, 6, 7, 8], [100, 14, 15, 1 << 30]])
    expected = 1 + 0.5 * np.log1p((positions + 1) // 8)
    for order in "CF":
        scales = frequencies.position_scales(np.asarray(positions, np.int32, order=order))
        assert scales.dtype == np.float32 and np.array_equal(scales, expected.astype(np.float32))
    assert np.array_equal(frequencies.position_scales(positions[0, ::-2]), scales[0, ::-2])
    for bad, words in ((np.array([0, -1]), r"token 1\] is -1"), (np.array([1 << 31]), "is 2147483648"),
                       (np.zeros((1, 2, 3), np.int32), "positions"), (np.zeros(3, np.float32), "positions")):
        with pytest.raises(halyard.Error, match=words):
            frequencies.position_scales(bad)
    with pytest.raises(TypeError):
        frequencies.position_scales(5)
    plain = halyard.Frequencies.from_base(10000.0, 16)
    assert plain.q_scale is None and plain.has_unrotated_layers is False
    with pytest.raises(halyard.Error, match="no rule"):
        plain.position_scales(positions)


@pytest.mark.parametrize("config, status", [
    ({}, "HALYARD_ERROR_CONFIG"),
    ({"model_type": "llama", "rope_theta": "much"}, "HALYARD_ERROR_CONFIG"),
])
def test_bad_configs_are_refused(config, status):
    with pytest.raises(halyard.Error) as caught:
        halyard.Frequencies.from_config(config)
    assert isinstance(caught.value, ValueError)
    assert caught.value.status == status


def test_what_is_no_config():
    with pytest.raises(TypeError, match="config is a int"):
        halyard.Frequencies.from_config(3)
    with pytest.raises(FileNotFoundError):
        halyard.Frequencies.from_config("no/such/file.json")
    with pytest.raises(TypeError):
        halyard.Frequencies()
    with pytest.raises(halyard.Error, match="rotary_dim"):
        halyard.Frequencies.from_base(1e4, 3)


def test_angle_sources_say_what_they_are():
    frequencies = halyard.Frequencies.from_base(1e4, 64)
    whole = halyard.AngleSource(frequencies)
    assert (whole.kind, whole.first, whole.last, whole.n_axes) == ("phase", -2**31, 2**31 - 1, 1)
    table = halyard.AngleSource(frequencies, first=0, n_positions=1024)
    assert (table.kind, table.n_bytes >= 1024 * 64 * 4) == ("table", True)
    assert halyard.AngleSource(frequencies, axis_map=("interleaved", (12, 10, 10))).n_axes == 3
    for bad in ({"kind": "given"}, {"kind": "tables"}, {"first": 3, "n_positions": 0}, {"reference": "f32"},
                {"axis_map": ("sections", (1, 2))}, {"reference": "hf_f32", "kind": "phase"}):
        with pytest.raises(halyard.Error):
            halyard.AngleSource(frequencies, **bad)
    with pytest.raises(TypeError, match="halyard.Frequencies"):
        halyard.AngleSource([1.0])
    with pytest.raises(halyard.Error, match="n_positions is 0"):
        halyard.AngleSource(frequencies, n_positions=0)
    for given, covered in ({"n_positions": 9}, (0, 8)), ({"first": 7}, (7, 2**31 - 1)):
        source = halyard.AngleSource(frequencies, "phase", **given)
        assert (source.first, source.last) == covered


def test_targets_and_explain():
    targets = halyard.targets()
    assert targets[-1].name == "reference" and sum(target.active for target in targets) == 1
    assert "halyard_rotate_half_bf16" in halyard.explain("bf16", 128)
    with pytest.raises(halyard.Error, match="dtype"):
        halyard.explain("float32")


def test_for_length(configs):
    path = configs / "phi-3-mini-128k.json"
    short, long = (halyard.Frequencies.from_config(path, seq_len=n) for n in (4096, 4097))
    assert (short.first_seq_len, short.last_seq_len, long.first_seq_len, long.last_seq_len) == (0, 4096, 4097, 2**53)
    factor = math.sqrt(1 + math.log(32) / math.log(4096))
    assert short.attention_factor == long.attention_factor == pytest.approx(factor)
    assert short.inv_freq != long.inv_freq
    assert short.for_length(4097).inv_freq == long.inv_freq and long.for_length(4096).inv_freq == short.inv_freq
    plain = halyard.Frequencies.from_base(1e4, 64)
    assert plain.for_length(10**6).inv_freq == plain.inv_freq and plain.last_seq_len == 2**53
    with pytest.raises(halyard.Error, match="seq_len"):
        plain.for_length(-1)

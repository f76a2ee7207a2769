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


def test_config_as_dict_file_and_folder(configs, tmp_path):
    path = configs / "llama-3.1-8b.json"
    (tmp_path / "config.json").write_bytes(path.read_bytes())
    read = [halyard.Frequencies.from_config(config)
            for config in (path, str(path), json.loads(path.read_text()), tmp_path)]
    assert len({frequencies.inv_freq for frequencies in read}) == 1
    assert (read[0].method, read[0].pairing, read[0].head_dim) == ("llama3", "half", 128)


def test_layer_types_and_axes(configs):
    gemma = configs / "gemma-3-4b.json"
    sliding = halyard.Frequencies.from_config(gemma, layer_type="sliding_attention")
    full = halyard.Frequencies.from_config(gemma, layer_type="full_attention")
    assert sliding.inv_freq != full.inv_freq
    with pytest.raises(halyard.Error, match="layer_type") as caught:
        halyard.Frequencies.from_config(gemma)
    assert caught.value.status == "HALYARD_ERROR_MISMATCH"
    vl = halyard.Frequencies.from_config(configs / "qwen2-vl-7b.json")
    assert vl.axis_map == ("sections", (16, 24, 24))


def test_seq_len_chooses_longrope_factors(configs):
    short, long = (halyard.Frequencies.from_config(configs / "phi-3-mini-128k.json", seq_len=n) for n in (4096, 8192))
    assert short.inv_freq != long.inv_freq
    factor = math.sqrt(1 + math.log(32) / math.log(4096))
    assert short.attention_factor == long.attention_factor == pytest.approx(factor)


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
    table = halyard.AngleSource(frequencies, first=0, last=1023)
    assert (table.kind, table.n_bytes >= 1024 * 64 * 4) == ("table", True)
    assert halyard.AngleSource(frequencies, "factored", first=0, last=99).kind == "factored"
    assert halyard.AngleSource(frequencies, axis_map=("interleaved", (12, 10, 10))).n_axes == 3
    for bad in ({"kind": "given"}, {"kind": "tables"}, {"first": 3, "last": 2}, {"reference": "f32"},
                {"axis_map": ("sections", (1, 2))}, {"reference": "hf_f32", "kind": "phase"}):
        with pytest.raises(halyard.Error):
            halyard.AngleSource(frequencies, **bad)
    with pytest.raises(TypeError, match="halyard.Frequencies"):
        halyard.AngleSource([1.0])


def test_targets_and_explain():
    targets = halyard.targets()
    assert targets[-1].name == "reference" and sum(target.active for target in targets) == 1
    assert "halyard_rotate_half_bf16" in halyard.explain("bf16", 128)
    with pytest.raises(halyard.Error, match="dtype"):
        halyard.explain("float32")

"""vLLM loads the plug-in by its entry point; where the plug-in cannot serve, it logs the reason and vLLM goes on."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tomllib
from types import SimpleNamespace

import models
import pytest
import torch

ROOT = pathlib.Path(__file__).parents[3]


@pytest.fixture(scope="module")
def run(tmp_path_factory, folder_of):
    """A function that runs models.py in a process with pyproject.toml's entry point, and returns (JSON, all output)."""
    folder = tmp_path_factory.mktemp("installed")
    described = folder / "halyard-0.dist-info"
    described.mkdir()
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: halyard\nVersion: 0\n")
    (group, points), = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"].items()
    (described / "entry_points.txt").write_text(f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in points.items()))

    def run(how, mode, model="llama", **more):
        paths = os.pathsep.join([str(folder), os.environ["PYTHONPATH"]])
        # All runs share the compilers' caches, so the tests notice if one mode reuses a graph of another mode.
        variables = dict(PYTHONPATH=paths, VLLM_CACHE_ROOT=str(folder / "vllm"), OMP_NUM_THREADS="1",
                         TORCHINDUCTOR_CACHE_DIR=str(folder / "inductor"), HALYARD_VLLM=mode, **more)
        command = [sys.executable, pathlib.Path(models.__file__), folder_of(model), models.dtype_of(model), how]
        done = subprocess.run(command, text=True, env={**os.environ, **variables}, capture_output=True, timeout=500)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout.splitlines()[-1]), done.stdout + done.stderr
    return run


@pytest.mark.parametrize("how", ["eager", "compiled"])
def test_the_same_tokens_and_probabilities(run, how):
    off, words = run(how, "off")
    assert off["counts"] == {} and off["kv_paths"] == 0 and "Halyard" not in words
    fused, _ = run(how, "fused" if how == "compiled" else "")  # the default
    assert fused["counts"] == {"LlamaAttention fused": 2} and fused["kv_paths"] == 2
    assert fused["generated"] == off["generated"]


def test_a_variable_that_is_wrong(run):
    wrong, words = run("eager", "rotary")
    assert words.count('HALYARD_VLLM is "rotary", which is none of: off, fused') == 1 and wrong["kv_paths"] == 0


def test_no_kernels(run):
    stock, words = run("eager", "fused", HALYARD_TARGET="reference")
    assert stock["counts"] == {} and stock["kv_paths"] == 0
    assert words.count("Halyard does nothing: ") == 1 and "but the target is reference" in words


def test_what_is_said_of_other_surroundings(monkeypatch, fused):
    from halyard import vllm as plugin
    from vllm.platforms import current_platform
    for words, change, *changed in (
            ("the plug-in is for CPUs", monkeypatch.setattr, type(current_platform), "is_cpu", lambda self: False),
            ("vLLM cannot be imported", monkeypatch.setitem, sys.modules, "vllm.platforms", None),
            ("not as the plug-in knows it .*llama_that_is_not_there", monkeypatch.setitem, fused.KNOWN,
             "LlamaAttention", "llama_that_is_not_there")):
        messages = []
        monkeypatch.setenv("HALYARD_VLLM", "fused")
        monkeypatch.setattr(plugin, "_logged", set())
        monkeypatch.setattr(plugin.logger, "log", lambda level, text, messages=messages: messages.append(text))
        change(*changed)
        for _ in range(2):  # vLLM may call it twice
            plugin.register()
        monkeypatch.undo()
        assert len(messages) == 1 and re.search(words, messages[0])


def test_a_vllm_of_other_code(monkeypatch, fused):
    from vllm.model_executor.models.llama import LlamaAttention
    layout = fused._LAYOUTS["vec"]
    fused._compare([LlamaAttention])
    for words, change, *changed in (
            ("LlamaAttention.forward differs in attn, gate", monkeypatch.setattr, LlamaAttention, "forward",
             lambda self: (self.gate, self.qkv_proj.split, self.q_size, self.kv_size, self.rotary_emb, self.o_proj)),
            ("cpu_attention_with_kv_cache takes query", monkeypatch.setattr, fused._custom_ops,
             "cpu_attention_with_kv_cache", lambda query: None),
            ("its caches for vec have another layout", monkeypatch.setitem, fused._LAYOUTS, "vec",
             lambda b, d: layout(b, d)[::-1])):
        change(*changed)
        with pytest.raises(ImportError, match=words):
            fused._compare([LlamaAttention])
        monkeypatch.undo()


LEFT = {
    "LoRA is on": dict(enable_lora=True),
    "its cache is fp8, which vLLM cuts off and Halyard rounds": dict(kv_cache_dtype="fp8"),
}
# Settings that would need another package or process to work. These tests only set the config's field.
SET = {
    "speculative decoding is on": ("speculative_config", object()),
    "a KV connector is on": ("kv_transfer_config", object()),
    "it runs in parallel": ("parallel_config", SimpleNamespace(world_size=2)),
}


@pytest.mark.parametrize("reason", [*LEFT, *SET])
def test_what_is_left_to_vllm(monkeypatch, fused, folder_of, reason):
    if "fp8" in reason and not torch.cpu._is_avx512_supported():
        pytest.skip("vLLM has fp8 caches with AVX-512 alone")
    if reason in SET:
        stock = fused.get_current_vllm_config
        monkeypatch.setattr(fused, "get_current_vllm_config", lambda: SimpleNamespace(
            **{**vars(stock()), SET[reason][0]: SET[reason][1]}))
    before = fused.counts.copy()
    engine = models.make_engine(folder_of("llama"), **LEFT.get(reason, {}))
    assert fused.counts - before == {("LlamaAttention", reason): 2}
    assert not any(layer.halyard for layer in models.runner_of(engine).model.modules() if hasattr(layer, "halyard"))
    assert len(models.generate(engine, models.prompts(5), 3)[0][0]) == 3


def test_a_model_that_is_not_known(fused, folder_of):
    before = fused.counts.copy()
    engine = models.make_engine(folder_of("granite", random_weights=False), load_format="dummy")
    assert fused.counts - before == {("the attention of GraniteForCausalLM", "it is not known"): 2}
    assert len(models.generate(engine, models.prompts(5), 3)[0][0]) == 3

"""Models of random weights, made by onnxruntime-genai's own builder and run by onnxruntime-genai itself."""

import contextlib
import io
import json
import logging
import pathlib
import shutil
import sys

import numpy as np
import onnxruntime_genai
import torch
import transformers
from onnxruntime_genai import models
from tokenizers import Tokenizer
from tokenizers import models as tokenizer_models

sys.path.insert(0, str(pathlib.Path(models.__path__[0])))
import builder  # noqa: E402

VOCABULARY = 199
SIZE = {"vocab_size": VOCABULARY, "hidden_size": 128, "intermediate_size": 96, "num_hidden_layers": 3,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256, "initializer_range": 0.3,
        "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
# Large weights, so that tokens differ. Local windows are shorter than what is generated.
MODELS = {
    "llama": ("Llama", {}),
    "qwen2": ("Qwen2", {}),
    "qwen3": ("Qwen3", {"head_dim": 32}),
    "phi": ("Phi", {"num_key_value_heads": 4, "partial_rotary_factor": 0.5}),
    "phi3": ("Phi3", {"sliding_window": 16, "original_max_position_embeddings": 256}),
    "phi3_long": ("Phi3", {"original_max_position_embeddings": 64, "rope_parameters": {
        "rope_type": "longrope", "type": "longrope", "rope_theta": 10000.0, "short_factor": [1.0] * 16,
        "long_factor": [1.0 + i for i in range(16)]}}),
    "gemma3": ("Gemma3", {"head_dim": 32, "sliding_window": 8, "query_pre_attn_scalar": 32,
                          "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}),
    "gpt_oss": ("GptOss", {"head_dim": 32, "sliding_window": 8, "num_local_experts": 4, "num_experts_per_tok": 2}),
}


def build(folder, name, precision="fp32", **size):
    """Returns the folder that the builder wrote. It reads attributes of configs that transformers has renamed since."""
    family, extra = MODELS[name]
    source, target = pathlib.Path(folder) / f"{name}_source", pathlib.Path(folder) / f"{name}_{precision}"
    config_class = getattr(transformers, family + ("TextConfig" if family == "Gemma3" else "Config"))
    torch.manual_seed(20261123)
    config = config_class(**{**SIZE, **extra, **size})
    getattr(transformers, family + "ForCausalLM")(config).save_pretrained(source)
    words = Tokenizer(tokenizer_models.WordLevel({f"t{i}": i for i in range(VOCABULARY)}, unk_token="t3"))
    transformers.PreTrainedTokenizerFast(tokenizer_object=words, unk_token="t3").save_pretrained(source)
    logging.getLogger("onnxruntime").setLevel(logging.ERROR)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        arguments = ["", str(source), str(target), precision, "cpu", str(folder)]
        options = builder.parse_extra_options(*arguments, [])
        read = options["hf_details"]["hf_config"]
        if name == "gemma3":
            read.rope_local_base_freq = read.rope_parameters["sliding_attention"]["rope_theta"]
            read.rope_parameters = dict(read.rope_parameters["full_attention"])
        builder.create_model(*arguments, **options)
    return target


def settle(folder, model, shares_buffers, library=None):
    """Writes which model of the folder is run, and how. genai looks for libraries in the folder alone."""
    path = folder / "genai_config.json"
    config = json.loads(path.read_text())
    decoder = config["model"]["decoder"]
    decoder["filename"] = model
    decoder["session_options"].pop("custom_ops_library", None)
    if library:
        copy = folder / pathlib.Path(library).name
        if not copy.exists():  # one that is loaded must not be written over
            shutil.copy(library, copy)
        decoder["session_options"]["custom_ops_library"] = copy.name
    config["model"]["eos_token_id"] = 2
    config["search"]["past_present_share_buffer"] = shares_buffers
    path.write_text(json.dumps(config))


def generate(folder, parts, n):
    """(the tokens of each row, all logits that they were chosen by) after a prompt in parts, each [rows, tokens];
    several rows come in one part."""
    model = onnxruntime_genai.Model(str(folder))
    parameters = onnxruntime_genai.GeneratorParams(model)
    n_tokens = sum(part.shape[1] for part in parts) + n
    parameters.set_search_options(max_length=n_tokens, min_length=n_tokens, batch_size=len(parts[0]), do_sample=False)
    generator = onnxruntime_genai.Generator(model, parameters)
    for part in parts:
        generator.append_tokens(part.astype(np.int32))
    logits = []
    while not generator.is_done():
        logits.append(np.array(generator.get_logits()).reshape(len(parts[0]), -1, VOCABULARY)[:, -1])
        generator.generate_next_token()
    return [list(generator.get_sequence(i)) for i in range(len(parts[0]))], np.array(logits)

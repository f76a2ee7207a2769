"""Saves small models with random weights for vLLM, makes engines of them, and generates tokens."""

import json
import os
import pathlib
import sys

os.environ.update(VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_CPU_KVCACHE_SPACE="1", VLLM_CPU_OMP_THREADS_BIND="nobind",
                  HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1", VLLM_DO_NOT_TRACK="1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")

import torch  # noqa: E402

# With AVX-512's bf16 instruction vLLM rounds to nearest, as Halyard does. Without it vLLM truncates.
ROUNDS_BFLOAT16 = torch.cpu._is_avx512_bf16_supported()

VOCABULARY = 512
ARCHITECTURES = {"llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM", "qwen2": "Qwen2ForCausalLM",
                 "qwen3": "Qwen3ForCausalLM", "gemma3_text": "Gemma3ForCausalLM", "phi3": "Phi3ForCausalLM",
                 "granite": "GraniteForCausalLM"}
NORMED = ("qwen3", "gemma3_text")


def dtype_of(model_type):
    """The 16-bit dtype to test a model in. For models without norms, vLLM and Halyard give the same bits in it."""
    return "bfloat16" if ROUNDS_BFLOAT16 or model_type in NORMED else "float16"


def config_of(model_type, **more):
    config = {"architectures": [ARCHITECTURES[model_type]], "model_type": model_type, "hidden_size": 128,
              "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
              "head_dim": 32, "vocab_size": VOCABULARY, "max_position_embeddings": 1024, "rms_norm_eps": 1e-5,
              "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}, "hidden_act": "silu",
              "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2}
    if model_type == "gemma3_text":
        rope = config.pop("rope_parameters")
        config.update(rope_parameters={"sliding_attention": rope, "full_attention": {**rope, "rope_theta": 1e6}},
                      query_pre_attn_scalar=32, sliding_window=64, hidden_activation="gelu_pytorch_tanh",
                      layer_types=["sliding_attention", "full_attention"], tie_word_embeddings=True)
    return {**config, **more}


def weights_of(config):
    """Random weights, large enough that attention changes the results."""
    random = torch.Generator().manual_seed(1)
    hidden, between, head_dim = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    q, kv = (config[name] * head_dim for name in ("num_attention_heads", "num_key_value_heads"))
    centre = 0.0 if config["model_type"].startswith("gemma") else 1.0  # of norms' weights
    weights = {}

    def matrix(name, rows, columns):
        weights[name] = torch.randn(rows, columns, generator=random) * (1.5 / columns ** 0.5)

    def norm_weight(name, size):
        weights[name] = centre + 0.3 * torch.randn(size, generator=random)

    matrix("model.embed_tokens.weight", config["vocab_size"], hidden)
    norm_weight("model.norm.weight", hidden)
    if not config["tie_word_embeddings"]:
        matrix("lm_head.weight", config["vocab_size"], hidden)
    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}"
        names = ["input_layernorm", "post_attention_layernorm"]
        if config["model_type"] == "gemma3_text":
            names += ["pre_feedforward_layernorm", "post_feedforward_layernorm"]
        for name in names:
            norm_weight(f"{layer}.{name}.weight", hidden)
        attention = f"{layer}.self_attn"
        if config["model_type"] == "phi3":
            matrix(f"{attention}.qkv_proj.weight", q + 2 * kv, hidden)
            matrix(f"{layer}.mlp.gate_up_proj.weight", 2 * between, hidden)
        else:
            for name, rows in (("q_proj", q), ("k_proj", kv), ("v_proj", kv)):
                matrix(f"{attention}.{name}.weight", rows, hidden)
                if config["model_type"] == "qwen2":
                    weights[f"{attention}.{name}.bias"] = torch.randn(rows, generator=random)
            for name in "gate_proj", "up_proj":
                matrix(f"{layer}.mlp.{name}.weight", between, hidden)
        matrix(f"{attention}.o_proj.weight", hidden, q)
        matrix(f"{layer}.mlp.down_proj.weight", hidden, between)
        if config["model_type"] in NORMED:
            for name in "q_norm", "k_norm":
                norm_weight(f"{attention}.{name}.weight", head_dim)
    return weights


def save(folder, model_type, *, random_weights=True, **more):
    """Writes a model's config.json and, by default, its weights into a folder, and returns the folder."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    config = config_of(model_type, **more)
    (folder / "config.json").write_text(json.dumps(config))
    if random_weights:
        from safetensors.torch import save_file
        save_file({name: x.bfloat16() for name, x in weights_of(config).items()}, folder / "model.safetensors")
    return folder


def make_engine(folder, dtype="bfloat16", *, eager=True, **more):
    from vllm import LLM
    settings = dict(max_model_len=512, max_num_seqs=8, seed=1, enable_prefix_caching=False, disable_log_stats=True)
    return LLM(model=str(folder), skip_tokenizer_init=True, dtype=dtype, enforce_eager=eager, **{**settings, **more})


def prompts(*lengths):
    return [[(31 * i + 7 * n) % (VOCABULARY - 10) + 5 for i in range(n)] for n in lengths]


def generate(engine, token_ids, n_tokens=12):
    """Returns (tokens, the logprob of each token) for each prompt."""
    from vllm import SamplingParams
    how = SamplingParams(temperature=0, max_tokens=n_tokens, logprobs=1, ignore_eos=True, detokenize=False)
    done = engine.generate([{"prompt_token_ids": ids} for ids in token_ids], how, use_tqdm=False)
    return [(list(each.outputs[0].token_ids),
             [step[token].logprob for step, token in zip(each.outputs[0].logprobs, each.outputs[0].token_ids)])
            for each in done]


def runner_of(engine):
    return engine.llm_engine.model_executor.driver_worker.worker.model_runner


def caches_of(engine):
    return [cache.clone() for cache in runner_of(engine).kv_caches]


def main(folder, dtype, how):
    """Prints, as JSON, what a model generates, the plug-in's counts, and the number of layers that Halyard serves."""
    engine = make_engine(folder, dtype, eager=how == "eager")
    generated = generate(engine, prompts(1, 5, 33, 200))
    plugin = sys.modules.get("halyard.vllm")
    counts = {} if plugin is None else {" ".join(key): n for key, n in plugin.counts.items()}
    impls = [layer.impl for layer in runner_of(engine).model.modules() if hasattr(layer, "impl")]
    print(json.dumps({"generated": generated, "counts": counts,
                      "kv_paths": sum(getattr(impl, "kv_path", None) is not None for impl in impls)}))


if __name__ == "__main__":
    main(*sys.argv[1:])

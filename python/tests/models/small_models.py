"""Small random-weight models of each tested family. Sizes such as head_dim and rotary_dim differ, to show mix-ups."""

import torch
import transformers

SIZES = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             vocab_size=101, max_position_embeddings=512, pad_token_id=0, bos_token_id=1, eos_token_id=2,
             initializer_range=0.2)  # weights large enough that attention depends on positions
MLA = dict(q_lora_rank=None, kv_lora_rank=16, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=16,
           n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=32, n_group=1, topk_group=1,
           first_k_dense_replace=1, num_key_value_heads=4)
VISION = dict(depth=1, num_heads=2)


def rope(kind="default", **more):
    return dict(rope_parameters=dict(rope_type=kind, rope_theta=1e4, **more))


def _causal(name, **more):
    text = "Text" if name in ("Gemma3", "Gemma3n", "Gemma4", "Llama4") else ""
    config = getattr(transformers, f"{name}{text}Config")(**{**SIZES, **more})
    return getattr(transformers, f"{name}ForCausalLM")(config)


def _vision(name, vision, **text):
    config = getattr(transformers, f"{name}Config")(text_config={**SIZES, **text}, vision_config={**VISION, **vision})
    return getattr(transformers, f"{name}ForConditionalGeneration")(config)


def _gpt_neox():
    sizes = {key: value for key, value in SIZES.items() if key != "num_key_value_heads"}
    return transformers.GPTNeoXForCausalLM(transformers.GPTNeoXConfig(**sizes))


MODELS = {
    "llama": lambda: _causal("Llama"),
    "llama, linear": lambda: _causal("Llama", **rope("linear", factor=8.0)),
    "llama, llama3": lambda: _causal("Llama", **rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                                     original_max_position_embeddings=64)),
    "llama, dynamic": lambda: _causal("Llama", **rope("dynamic", factor=8.0), max_position_embeddings=8),
    "qwen2, yarn": lambda: _causal("Qwen2", **rope("yarn", factor=8.0, original_max_position_embeddings=64)),
    "qwen3": lambda: _causal("Qwen3", head_dim=32),
    "qwen3_moe": lambda: _causal("Qwen3Moe", head_dim=32, num_experts=4, num_experts_per_tok=2,
                                 moe_intermediate_size=32),
    "llama4": lambda: _causal("Llama4", head_dim=16, num_hidden_layers=4, no_rope_layer_interval=2, floor_scale=8,
                              attn_scale=0.5, intermediate_size_mlp=96, num_local_experts=2,
                              **rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                     original_max_position_embeddings=64)),
    "ministral3": lambda: _causal("Ministral3", head_dim=16, **rope("yarn", factor=8.0, llama_4_scaling_beta=0.5,
                                                                    original_max_position_embeddings=8)),
    "mistral": lambda: _causal("Mistral"),
    "mixtral": lambda: _causal("Mixtral", num_local_experts=4),
    "gemma": lambda: _causal("Gemma", head_dim=32),
    "gemma2": lambda: _causal("Gemma2", head_dim=32),
    "gemma3": lambda: _causal("Gemma3", head_dim=32, num_hidden_layers=7),
    "gemma3n": lambda: _causal("Gemma3n", head_dim=32, num_hidden_layers=10, num_kv_shared_layers=5, laurel_rank=4,
                               hidden_size_per_layer_input=8, vocab_size_per_layer_input=101, altup_num_inputs=2,
                               activation_sparsity_pattern=None, intermediate_size=96),
    "gemma4": lambda: _causal("Gemma4", head_dim=16, global_head_dim=32, num_hidden_layers=6, num_kv_shared_layers=2,
                              layer_types=["sliding_attention", "full_attention"] * 3,
                              hidden_size_per_layer_input=8, vocab_size_per_layer_input=101),
    "phi": lambda: _causal("Phi"),
    "phi3": lambda: _causal("Phi3"),
    "phi3, longrope": lambda: _causal("Phi3", original_max_position_embeddings=8, **rope(
        "longrope", short_factor=[1 + i / 8 for i in range(8)], long_factor=[2.0 + i for i in range(8)],
        original_max_position_embeddings=8)),
    "gpt_neox": _gpt_neox,
    "glm": lambda: _causal("Glm", head_dim=16),
    "glm4": lambda: _causal("Glm4", head_dim=16),
    "deepseek_v2": lambda: _causal("DeepseekV2", **MLA, topk_method="greedy"),
    "deepseek_v3": lambda: _causal("DeepseekV3", **MLA),
    "deepseek_v3, half": lambda: _causal("DeepseekV3", **MLA, rope_interleave=False),
    "qwen2_vl": lambda: _vision("Qwen2VL", dict(embed_dim=32, hidden_size=64), **rope(mrope_section=[2, 3, 3])),
    "qwen2_5_vl": lambda: _vision("Qwen2_5_VL", dict(hidden_size=32, out_hidden_size=64, intermediate_size=32,
                                                     fullatt_block_indexes=[0]), **rope(mrope_section=[2, 3, 3])),
    "qwen3_vl": lambda: _vision("Qwen3VL", dict(hidden_size=32, out_hidden_size=64, intermediate_size=32,
                                                deepstack_visual_indexes=[0]), head_dim=16,
                                **rope(mrope_section=[4, 2, 2], mrope_interleaved=True)),
}
CHANGING = ("llama, dynamic", "phi3, longrope")


def make(name):
    torch.manual_seed(20261121)
    return MODELS[name]().eval()

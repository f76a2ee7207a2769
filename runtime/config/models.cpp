// The model types that configs may name. Facts: configuration_*.py and modeling_*.py of transformers 5.23.0; for types
// that only exist as code beside the weights (chatglm, exaone, internlm*, minicpm, phi-msft, qwen, RefinedWeb*,
// stablelm_epoch, kimi_k2), that code. Another model of a known kind is one more row.
#include "config/models.h"

namespace halyard {
namespace {

constexpr auto interleaved = HALYARD_PAIRING_INTERLEAVED;
constexpr auto half = HALYARD_PAIRING_HALF;
constexpr auto sections = HALYARD_AXIS_MAP_SECTIONS;
constexpr auto interleaved_axes = HALYARD_AXIS_MAP_INTERLEAVED;

constexpr ModelType model_types[] = {
    {.name = "RefinedWeb"},
    {.name = "RefinedWebModel"},
    {.name = "apertus", .base = 12e6},
    {.name = "arcee"},
    {.name = "bamba", .partial_factor = 0.5},
    {.name = "bitnet", .base = 500e3},
    {.name = "chatglm", .pairing = interleaved, .partial_factor = 0.5},
    {.name = "codegen", .pairing = interleaved, .rotary_dim = 64},
    {.name = "cohere", .pairing = interleaved, .base = 500e3},
    {.name = "cohere2", .pairing = interleaved, .layers = Layers::not_full_attention},
    {.name = "deepseek"},
    {.name = "deepseek_v2", .pairing = interleaved},
    {.name = "deepseek_v3", .pairing = interleaved, .out_pairing = half},
    {.name = "deepseek_v32", .pairing = interleaved, .out_pairing = half},
    {.name = "dots1"},
    {.name = "ernie4_5", .pairing = interleaved, .base = 500e3, .head_dim = 128},
    {.name = "ernie4_5_moe", .pairing = interleaved, .base = 500e3},
    {.name = "esm"},
    {.name = "exaone"},
    {.name = "exaone4", .layers = Layers::not_full_if_sliding},
    {.name = "falcon"},
    {.name = "falcon_h1"},
    {.name = "gemma", .head_dim = 256},
    {.name = "gemma2", .head_dim = 256},
    {.name = "gemma3", .base = 1e6, .head_dim = 256, .layers = Layers::gemma3},
    {.name = "gemma3_text", .base = 1e6, .head_dim = 256, .layers = Layers::gemma3},
    {.name = "gemma3n", .base = 1e6, .head_dim = 256, .layers = Layers::gemma3},
    {.name = "gemma3n_text", .base = 1e6, .head_dim = 256, .layers = Layers::gemma3},
    {.name = "gemma4", .base = 1e6, .head_dim = 256, .layers = Layers::gemma4},
    {.name = "gemma4_text", .base = 1e6, .head_dim = 256, .layers = Layers::gemma4},
    {.name = "glm", .pairing = interleaved, .partial_factor = 0.5, .head_dim = 128},
    {.name = "glm4", .pairing = interleaved, .partial_factor = 0.5, .head_dim = 128},
    {.name = "glm4_moe", .partial_factor = 0.5},
    {.name = "glm4_moe_lite", .pairing = interleaved, .out_pairing = half},
    {.name = "glm4v", .pairing = interleaved, .axis_map = sections, .axis_counts = {8, 12, 12}},
    {.name = "glm4v_text", .pairing = interleaved, .axis_map = sections, .axis_counts = {8, 12, 12}},
    {.name = "glm4v_moe", .partial_factor = 0.5, .axis_map = sections, .axis_counts = {8, 12, 12}},
    {.name = "glm4v_moe_text", .partial_factor = 0.5, .axis_map = sections, .axis_counts = {8, 12, 12}},
    {.name = "glm_moe_dsa", .pairing = interleaved, .out_pairing = half},
    {.name = "gpt_neox", .partial_factor = 0.25},
    {.name = "gpt_neox_japanese"},
    {.name = "gpt_oss", .base = 150e3, .head_dim = 64},
    {.name = "gptj", .pairing = interleaved, .rotary_dim = 64},
    {.name = "granite"},
    {.name = "granitemoe"},
    {.name = "helium", .pairing = interleaved, .base = 100e3, .head_dim = 128},
    {.name = "hunyuan_v1_dense"},
    {.name = "hunyuan_v1_moe"},
    {.name = "internlm"},
    {.name = "internlm2"},
    {.name = "internlm3"},
    {.name = "kimi_k2", .pairing = interleaved, .out_pairing = half},
    {.name = "lfm2", .base = 1e6},
    {.name = "lfm2_moe", .base = 1e6},
    {.name = "llama"},
    {.name = "llama4", .pairing = interleaved, .base = 500e3, .head_dim = 128, .layers = Layers::not_full_attention},
    {.name = "llama4_text",
     .pairing = interleaved,
     .base = 500e3,
     .head_dim = 128,
     .layers = Layers::not_full_attention},
    {.name = "longcat_flash", .pairing = interleaved, .out_pairing = half, .base = 10e6},
    {.name = "minicpm"},
    {.name = "minicpm3"},
    {.name = "minimax", .base = 1e6},
    {.name = "minimax_m2", .base = 5e6, .head_dim = 128},
    {.name = "ministral"},
    {.name = "ministral3", .base = 1e6, .head_dim = 128},
    {.name = "mistral"},
    {.name = "mistral4", .pairing = interleaved, .out_pairing = half},
    {.name = "mixtral", .base = 1e6},
    {.name = "mllama", .base = 500e3},
    {.name = "mllama_text_model", .base = 500e3},
    {.name = "modernbert", .base = 160e3, .layers = Layers::modernbert},
    {.name = "nemotron", .partial_factor = 0.5},
    {.name = "olmo"},
    {.name = "olmo2"},
    {.name = "olmo3", .base = 500e3, .layers = Layers::olmo3},
    {.name = "olmoe"},
    {.name = "persimmon", .partial_factor = 0.5},
    {.name = "phi", .partial_factor = 0.5},
    {.name = "phi-msft", .rotary_dim = 32},
    {.name = "phi3", .yarn_is_longrope = true},
    {.name = "phi4_multimodal", .yarn_is_longrope = true},
    {.name = "phimoe", .base = 1e6},
    {.name = "qwen"},
    {.name = "qwen2"},
    {.name = "qwen2_5_vl", .base = 1e6, .axis_map = sections, .axis_counts = {16, 24, 24}, .has_vision = true},
    {.name = "qwen2_5_vl_text", .base = 1e6, .axis_map = sections, .axis_counts = {16, 24, 24}},
    {.name = "qwen2_moe"},
    {.name = "qwen2_vl", .base = 1e6, .axis_map = sections, .axis_counts = {16, 24, 24}, .has_vision = true},
    {.name = "qwen2_vl_text", .base = 1e6, .axis_map = sections, .axis_counts = {16, 24, 24}},
    {.name = "qwen3", .head_dim = 128},
    {.name = "qwen3_5",
     .partial_factor = 0.25,
     .head_dim = 256,
     .axis_map = interleaved_axes,
     .axis_counts = {11, 11, 10}},
    {.name = "qwen3_5_text",
     .partial_factor = 0.25,
     .head_dim = 256,
     .axis_map = interleaved_axes,
     .axis_counts = {11, 11, 10}},
    {.name = "qwen3_moe"},
    {.name = "qwen3_next", .partial_factor = 0.25, .head_dim = 256},
    {.name = "qwen3_vl",
     .base = 500e3,
     .head_dim = 128,
     .axis_map = interleaved_axes,
     .axis_counts = {24, 20, 20},
     .has_vision = true},
    {.name = "qwen3_vl_moe",
     .base = 500e3,
     .axis_map = interleaved_axes,
     .axis_counts = {24, 20, 20},
     .has_vision = true},
    {.name = "qwen3_vl_moe_text", .base = 500e3, .axis_map = interleaved_axes, .axis_counts = {24, 20, 20}},
    {.name = "qwen3_vl_text",
     .base = 500e3,
     .head_dim = 128,
     .axis_map = interleaved_axes,
     .axis_counts = {24, 20, 20}},
    {.name = "roformer", .pairing = interleaved},
    {.name = "seed_oss", .head_dim = 128},
    {.name = "smollm3", .base = 2e6},
    {.name = "stablelm", .partial_factor = 0.25},
    {.name = "stablelm_epoch", .partial_factor = 0.25},
    {.name = "starcoder2"},
    {.name = "youtu", .pairing = interleaved, .out_pairing = half},
};

struct OtherPositions {
    const char *kind;
    const char *names[24];
};

constexpr OtherPositions others[] = {
    {"learned positions",
     {"albert",   "bart",       "bert",       "big_bird", "biogpt", "camembert", "clip",        "convbert",
      "ctrl",     "deit",       "distilbert", "electra",  "ernie",  "gpt2",      "gpt_bigcode", "gpt_neo",
      "imagegpt", "longformer", "marian",     "mbart",    "opt",    "roberta",   "vit"}},
    {"learned or sinusoidal positions",
     {"blip", "blip-2", "m2m_100", "musicgen", "openai-gpt", "pegasus", "siglip", "speech_to_text", "wav2vec2",
      "whisper", "xglm", "xlm", "xlm-roberta"}},
    {"ALiBi", {"bloom", "mpt"}},
    {"relative positions", {"deberta", "deberta-v2", "mpnet", "mt5", "t5", "umt5", "xlnet"}},
    {"a recurrence", {"falcon_mamba", "jamba", "mamba", "mamba2", "rwkv"}},
};

}  // namespace

const ModelType *find_model_type(std::string_view name) noexcept {
    for (const auto &type : model_types) {
        if (name == type.name) {
            return &type;
        }
    }
    return nullptr;
}

const char *find_other_positions(std::string_view name) noexcept {
    for (const auto &other : others) {
        for (const char *const other_name : other.names) {
            if (other_name != nullptr && name == other_name) {
                return other.kind;
            }
        }
    }
    return nullptr;
}

}  // namespace halyard

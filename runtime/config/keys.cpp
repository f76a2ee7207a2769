#include "config/keys.h"

#include <algorithm>
#include <string>
#include <string_view>

namespace halyard {
namespace {

// In rope_scaling and its like, whether of all layers or of one kind. max_position_embeddings repeats the config's
// (Ministral 3), finetuned is of YaRN's first code and changes no frequency, and interleaved repeats
// mrope_interleaved (Qwen3-Omni).
constexpr const char *scaling_keys[] = {
    "alpha",
    "attention_factor",
    "attn_factor",
    "base",
    "beta_fast",
    "beta_slow",
    "extrapolation_factor",
    "factor",
    "finetuned",
    "high_freq_factor",
    "interleaved",
    "llama_4_scaling_beta",
    "long_factor",
    "long_mscale",
    "low_freq_factor",
    "max_position_embeddings",
    "mrope_interleaved",
    "mrope_section",
    "mscale",
    "mscale_all_dim",
    "original_max_position_embeddings",
    "partial_rotary_factor",
    "rope_theta",
    "rope_type",
    "short_factor",
    "short_mscale",
    "truncate",
    "type",
};

// At the top, where they are read whatever the model is.
constexpr const char *top_keys[] = {
    "layer_rope_theta",
    "no_rope_layer_interval",
    "no_rope_layers",
    "partial_rotary_factor",
    "qk_rope_head_dim",
    "rope_interleave",
    "rope_parameters",
    "rope_pct",
    "rope_ratio",
    "rope_scaling",
    "rope_scaling_layers",
    "rope_theta",
    "rotary",
    "rotary_dim",
    "rotary_emb_base",
    "rotary_emb_fraction",
    "rotary_emb_interleaved",
    "rotary_pct",
    "rotary_value",
    "use_mem_rope",
};

struct Meaningless {
    const char *key;
    const char *why;
};

// At the top, without a meaning for the frequencies.
constexpr Meaningless meaningless[] = {
    {"compress_rope_theta", "DeepSeek-V4: rope_parameters states the base of each kind of layers"},
    {"original_rope", "ChatGLM: its code turns the same way whatever this says"},
    {"rope_deltas", "Qwen2-VL: what positions of images begin with"},
    {"swa_rope_theta", "MiMo-V2: rope_parameters states the base of each kind of layers"},
    {"use_rotary_embedding", "CLVP, which is refused"},
};

template <typename Keys>
bool contains(const Keys &keys, std::string_view key) {
    return std::ranges::find(keys, key) != std::end(keys);
}

/// Whether a word of the key, as in "layer_rope_theta", is one of RoPE's.
bool speaks_of_rope(std::string_view key) {
    std::string name = "_";
    for (const char c : key) {
        name += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    }
    return std::ranges::any_of(
        std::initializer_list<const char *>{"_rope", "_mrope", "_xdrope", "_fope", "_rotary", "_theta"},
        [&](const char *word) { return name.find(word) != name.npos; });
}

[[noreturn]] void refuse_key(const JsonObject &object, const std::string &key) {
    const auto quoted = quote(key);
    refuse(object.name_of("") + (quoted.size() == key.size() + 2 ? quoted.substr(1, key.size()) : quoted) +
           " is not known here, and might change the rotation");
}

/// rope_scaling or its like. Objects inside are those of each kind of layers.
void check_scaling(const JsonObject &scaling, bool is_whole) {
    for (const auto &[key, value] : scaling.value().fields) {
        if (is_whole && value.is_object()) {
            check_scaling(JsonObject(value, scaling.name_of(key.c_str()) + "."), false);
        } else if (value.kind != Json::Kind::null && !contains(scaling_keys, key)) {
            refuse_key(scaling, key);
        }
    }
}

void check_top(const JsonObject &config, const Model &model) {
    for (const auto &[key, value] : config.value().fields) {
        const bool is_known =
            contains(top_keys, key) ||
            std::ranges::find(meaningless, key, &Meaningless::key) != std::end(meaningless) ||
            (model.is_kind(Layers::gemma3) && key == "rope_local_base_freq") ||
            (model.is_kind(Layers::modernbert) && (key == "global_rope_theta" || key == "local_rope_theta"));
        if (value.kind != Json::Kind::null && speaks_of_rope(key) && !is_known) {
            refuse_key(config, key);
        }
    }
    for (const char *key : {"rope_scaling", "rope_parameters"}) {
        if (const auto scaling = config.object(key)) {
            check_scaling(*scaling, true);
        }
    }
}

}  // namespace

void check_keys(const JsonObject &root, const Model &model) {
    check_top(model.config, model);
    if (&root.value() != &model.config.value()) {
        check_top(root, model);
    }
}

}  // namespace halyard

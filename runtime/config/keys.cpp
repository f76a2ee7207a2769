#include "config/keys.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace halyard {
namespace {

enum class Kind { anything, count, counts, flag, number, numbers, word };

/// Keys whose values are of one kind.
struct Keys {
    Kind kind;
    const char *names;  // apart by spaces
};

// In rope_scaling and its like, whether of all layers or of one kind. max_position_embeddings repeats the config's
// (Ministral 3), finetuned is of YaRN's first code and changes no frequency, and interleaved repeats
// mrope_interleaved (Qwen3-Omni).
constexpr Keys scaling_keys[] = {
    {Kind::count, "max_position_embeddings original_max_position_embeddings"},
    {Kind::counts, "mrope_section"},
    {Kind::flag, "finetuned interleaved mrope_interleaved truncate"},
    {Kind::number, "alpha attention_factor attn_factor base beta_fast beta_slow extrapolation_factor factor "
                   "high_freq_factor llama_4_scaling_beta long_mscale low_freq_factor mscale mscale_all_dim "
                   "partial_rotary_factor rope_theta short_mscale"},
    {Kind::numbers, "long_factor short_factor"},
    {Kind::word, "rope_type type"},
};

// At the top, where they are read whatever the model is.
constexpr Keys top_keys[] = {
    {Kind::anything, "rope_parameters rope_scaling rotary"},
    {Kind::count, "no_rope_layer_interval qk_rope_head_dim rotary_dim"},
    {Kind::flag, "rope_interleave rotary_emb_interleaved rotary_value"},
    {Kind::number,
     "partial_rotary_factor rope_pct rope_ratio rope_theta rotary_emb_base rotary_emb_fraction rotary_pct"},
    {Kind::numbers, "layer_rope_theta no_rope_layers rope_scaling_layers"},
};

// At the top, where layers of two kinds have a base each.
constexpr struct {
    const char *name;
    Layers layers;
} bases[] = {
    {"global_rope_theta", Layers::modernbert},
    {"local_rope_theta", Layers::modernbert},
    {"rope_local_base_freq", Layers::gemma3},
};

// What rope_parameters may have an entry for: the layer_types of transformers with attention, and DeepSeek-V4's.
constexpr char layer_types[] =
    "chunked_attention compress compressed_sparse_attention full_attention heavily_compressed_attention hybrid "
    "hybrid_sliding indexed_attention linear_attention main minimax_m3_sparse reference_sliding_attention "
    "sliding_attention window_attention";

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

/// None where the key is none of them.
template <typename AllKeys>
std::optional<Kind> find_kind(const AllKeys &all, std::string_view key) {
    const auto found = std::ranges::find_if(all, [&](const Keys &keys) { return has_word(keys.names, key); });
    return found != std::end(all) ? std::optional(found->kind) : std::nullopt;
}

/// Throws where a known key's value is of the wrong type, even if nothing here reads it.
void check_type(const JsonObject &object, const std::string &key, Kind kind) {
    const char *const name = key.c_str();
    switch (kind) {
    case Kind::anything: break;
    case Kind::count: object.count(name); break;
    case Kind::counts: object.counts(name); break;
    case Kind::flag: object.flag(name); break;
    case Kind::number: object.number(name); break;
    case Kind::numbers: object.numbers(name); break;
    case Kind::word: object.word(name); break;
    }
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

/// The key's name, which may hold anything.
std::string name_of(const JsonObject &object, const std::string &key) {
    const auto quoted = quote(key);
    return object.name_of("") + (quoted.size() == key.size() + 2 ? quoted.substr(1, key.size()) : quoted);
}

[[noreturn]] void refuse_key(const JsonObject &object, const std::string &key) {
    refuse(name_of(object, key) + " is not known here, and might change the rotation");
}

/// What rope_scaling or its like says of all layers, or of those of one kind.
void check_scaling(const JsonObject &scaling) {
    for (const auto &[key, value] : scaling.value().fields) {
        const auto kind = find_kind(scaling_keys, key);
        if (value.kind != Json::Kind::null && !kind) {
            refuse_key(scaling, key);
        }
        check_type(scaling, key, kind.value_or(Kind::anything));
    }
}

/// rope_scaling or its like of the config. Objects inside are entries for kinds of layers.
void check_whole_scaling(const JsonObject &scaling, const JsonObject &config) {
    const auto &fields = scaling.value().fields;
    const auto is_entry = [](const Json::Field &field) {
        return field.value.is_object() && !find_kind(scaling_keys, field.key);
    };
    if (std::ranges::none_of(fields, is_entry)) {
        check_scaling(scaling);
        return;
    }
    const auto listed = config.words("layer_types").value_or(std::vector<std::string>());
    for (const auto &field : fields) {
        const auto &[key, value] = field;
        if (value.kind == Json::Kind::null) {
            continue;
        }
        if (has_word(layer_types, key) || std::ranges::find(listed, key) != listed.end()) {
            check_scaling(JsonObject(value, name_of(scaling, key) + "."));
        } else if (!find_kind(scaling_keys, key)) {
            refuse_key(scaling, key);
        } else if (key != "rope_type" && key != "type" && key != "truncate") {
            refuse(name_of(scaling, key) + " stands beside entries for kinds of layers, which do not read it");
        }
    }
}

/// Lists by layers. Longer ones are published with models that predict several tokens at once.
void check_lengths(const JsonObject &config) {
    const auto n_layers = config.count("num_hidden_layers");
    for (const char *key : {"layer_rope_theta", "layer_types", "no_rope_layers"}) {
        const Json *found = config.value().find(key);
        const auto n = found != nullptr && found->is_array() ? std::ssize(found->elements) : 0;
        if (n_layers && n != 0 && n < *n_layers) {
            refuse(config.name_of(key) + " has " + std::to_string(n) + " elements, but num_hidden_layers is " +
                   std::to_string(*n_layers));
        }
    }
}

void check_top(const JsonObject &config, const Model &model) {
    for (const auto &field : config.value().fields) {
        const auto &key = field.key;
        const auto &value = field.value;
        const auto kind = find_kind(top_keys, key);
        const bool is_known = kind || std::ranges::find(meaningless, key, &Meaningless::key) != std::end(meaningless) ||
                              (model.type == "zamba2" && key == "use_mem_rope") ||
                              std::ranges::any_of(bases, [&](const auto &base) {
                                  return model.is_kind(base.layers) && key == base.name;
                              });
        if (value.kind != Json::Kind::null && speaks_of_rope(key) && !is_known) {
            refuse_key(config, key);
        }
        check_type(config, key, kind.value_or(Kind::anything));
    }
    for (const auto &base : bases) {
        config.number(base.name);
    }
    for (const char *key : {"rope_scaling", "rope_parameters"}) {
        if (const auto scaling = config.object(key)) {
            check_whole_scaling(*scaling, config);
        }
    }
    const auto layers = config.object("per_layer_config").value_or(JsonObject::empty(""));
    for (const auto &[layer, fields] : layers.value().fields) {
        const JsonObject own(fields, name_of(layers, layer) + ".");
        for (const auto &[key, value] : fields.fields) {
            if (value.kind != Json::Kind::null && speaks_of_rope(key)) {
                refuse_key(own, key);
            }
        }
    }
}

/// What is stated around the language model's part must stand in it too, since nothing else is read.
void check_around(const JsonObject &around, const JsonObject &config) {
    const auto type = around.word("model_type");
    if (type == "fuyu" || type == "musicflamingo") {
        return;  // transformers 5.19 writes defaults there that nothing reads; there it is about the audio
    }
    for (const auto &[key, outside] : around.value().fields) {
        const Json *const inside = config.value().find(key);
        if (find_kind(top_keys, key) && outside.kind != Json::Kind::null && (inside == nullptr || *inside != outside)) {
            refuse(around.name_of(key.c_str()) + " is not what " + config.name_of(key.c_str()) +
                   " says, which is read");
        }
    }
}

}  // namespace

void check_keys(const Model &model) {
    check_top(model.config, model);
    check_lengths(model.config);
    for (const auto &around : model.around) {
        check_top(around, model);
        check_around(around, model.config);
    }
}

void check_vision_keys(const JsonObject &vision) {
    for (const auto &[key, value] : vision.value().fields) {
        if (value.kind != Json::Kind::null && speaks_of_rope(key) && key != "rope_parameters") {
            refuse_key(vision, key);
        }
    }
    if (const auto parameters = vision.object("rope_parameters")) {
        for (const auto &[key, value] : parameters->value().fields) {
            if (value.kind != Json::Kind::null && key != "rope_theta" && key != "rope_type") {
                refuse_key(*parameters, key);
            }
        }
    }
}

}  // namespace halyard

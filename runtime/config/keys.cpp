#include "config/language_model.h"

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace halyard {
namespace {

/// Checks the type of a known key's value, even if nothing else reads it. Throws Failure.
using Check = void (*)(const JsonObject &object, const char *key);

template <auto read>
void check_by(const JsonObject &object, const char *key) {
    (object.*read)(key);
}
constexpr Check as_anything = [](const JsonObject &, const char *) {}, as_flag = check_by<&JsonObject::flag>,
                as_count = check_by<&JsonObject::count>, as_counts = check_by<&JsonObject::counts>,
                as_number = check_by<&JsonObject::number>, as_numbers = check_by<&JsonObject::numbers>,
                as_word = check_by<&JsonObject::word>, as_words = check_by<&JsonObject::words>;

/// Keys whose values have one type.
struct Keys {
    Check check;
    const char *names;  // separated by spaces
};

// Keys of rope_scaling and rope_parameters, whether these are for all layers or for one layer type.
// max_position_embeddings repeats the config's (Ministral 3), finetuned comes from YaRN's first code and changes no
// frequency, and interleaved repeats mrope_interleaved (Qwen3-Omni).
constexpr Keys scaling_keys[] = {
    {as_count, "max_position_embeddings original_max_position_embeddings"},
    {as_counts, "mrope_section"},
    {as_flag, "finetuned interleaved mrope_interleaved truncate"},
    {as_number, "alpha attention_factor attn_factor base beta_fast beta_slow extrapolation_factor factor "
                   "high_freq_factor llama_4_scaling_beta long_mscale low_freq_factor mscale mscale_all_dim "
                   "partial_rotary_factor rope_theta short_mscale"},
    {as_numbers, "long_factor short_factor"},
    {as_word, "rope_type type"},
};

// Top-level keys that are read for any model. indexer_rope_interleave (GLM-5) has no effect: it is
// about the q and k of the sparse attention's indexer, which Halyard does not rotate.
constexpr Keys top_keys[] = {
    {as_anything, "rope_parameters rope_scaling rotary"},
    {as_count, "no_rope_layer_interval rotary_dim"},
    {as_flag,
     "indexer_rope_interleave rope_interleave rope_interleaved rotary_emb_interleaved rotary_value use_rope "
     "use_rotary_pos_emb"},
    {as_number, "partial_rotary_factor qk_rope_head_dim rope_pct rope_percent rope_ratio rope_theta "
                   "rotary_emb_base rotary_emb_fraction rotary_pct"},
    {as_numbers, "no_rope_layers rope_scaling_layers"},
};

// The layer types that may be keys in rope_parameters: those of transformers' attention layers, and DeepSeek-V4's.
constexpr char layer_types[] =
    "chunked_attention compress compressed_sparse_attention full_attention heavily_compressed_attention hybrid "
    "hybrid_sliding indexed_attention linear_attention main minimax_m3_sparse reference_sliding_attention "
    "sliding_attention window_attention";

struct Meaningless {
    const char *key;
    const char *why;
};

// Top-level keys that do not affect the frequencies.
constexpr Meaningless meaningless[] = {
    {"compress_rope_theta", "DeepSeek-V4: rope_parameters states the base of each kind of layers"},
    {"original_rope", "ChatGLM: its code turns the same way whatever this says"},
    {"rope_deltas", "Qwen2-VL: what positions of images begin with"},
    {"use_rotary_embedding", "CLVP, which is refused"},
};

/// The check of a key's value; NULL if the key is none of these.
template <typename AllKeys>
Check find_check(const AllKeys &all, std::string_view key) {
    const auto found = std::ranges::find_if(all, [&](const Keys &keys) { return has_word(keys.names, key); });
    return found != std::end(all) ? found->check : nullptr;
}

/// Whether a key concerns RoPE by its words: "layer_rope_theta" does, "property" does not.
bool speaks_of_rope(std::string_view key) {
    std::string name = "_";
    for (const char c : key) {
        name += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    }
    for (auto at = name.find("prope"); at != name.npos; at = name.find("prope")) {
        name.erase(at, 5);
    }
    return std::ranges::any_of(std::initializer_list<const char *>{"rope", "_fope", "rotary", "theta", "yarn"},
                               [&](const char *word) { return name.find(word) != name.npos; });
}

/// Whether a field is an object for another part of the model, which has frequencies of its own.
bool is_other_part(const Json::Field &field) {
    const auto has = [&](const char *word) { return field.key.find(word) != field.key.npos; };
    return field.value.is_object() &&
           ((field.value.find("model_type") != nullptr && !field.value.find("model_type")->text.empty()) ||
            std::ranges::any_of(std::initializer_list<const char *>{"vision", "visual", "image", "video", "audio",
                                                                    "speech", "codec", "encoder", "talker", "2wav"},
                                has));
}

/// A key's name for messages. The key may contain any bytes.
std::string name_of(const std::string &path, const std::string &key) {
    const auto quoted = quote(key);
    return path + (quoted.size() == key.size() + 2 ? quoted.substr(1, key.size()) : quoted);
}

/// Whether a value counts as absent: null, or an empty list.
bool is_nothing(const Json &value) {
    return value.kind == Json::Kind::null || (value.is_array() && value.elements.empty());
}

[[noreturn]] void refuse_key(const std::string &path, const std::string &key) {
    refuse(name_of(path, key) + " is not known here, and might change the rotation");
}

/// Refuses keys about RoPE anywhere inside a value that is not read, except the key `known`.
void check_inside(const Json &value, const std::string &path, const char *known = "") {
    for (std::size_t i = 0; i < value.elements.size(); ++i) {
        check_inside(value.elements[i], path + "[" + std::to_string(i) + "]");
    }
    for (const auto &field : value.fields) {
        if (!is_nothing(field.value) && speaks_of_rope(field.key) && field.key != known) {
            refuse_key(path + ".", field.key);
        }
        if (!is_other_part(field)) {
            check_inside(field.value, name_of(path + ".", field.key));
        }
    }
}

/// Checks the keys of rope_scaling or rope_parameters, or of their entry for one layer type.
void check_scaling(const JsonObject &scaling) {
    for (const auto &[key, value] : scaling.value().fields) {
        if (const auto check = find_check(scaling_keys, key)) {
            check(scaling, key.c_str());
        } else if (value.kind != Json::Kind::null) {
            refuse_key(scaling.name_of(""), key);
        }
    }
}

/// Checks rope_scaling or rope_parameters of the config. Objects inside are entries for layer types.
void check_whole_scaling(const JsonObject &scaling, const JsonObject &config) {
    const auto &fields = scaling.value().fields;
    const auto is_entry = [](const Json::Field &field) {
        return field.value.is_object() && !find_check(scaling_keys, field.key);
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
            check_scaling(JsonObject(value, name_of(scaling.name_of(""), key) + "."));
        } else if (!find_check(scaling_keys, key)) {
            refuse_key(scaling.name_of(""), key);
        } else if (key != "rope_type" && key != "type" && key != "truncate") {
            refuse(name_of(scaling.name_of(""), key) +
                   " stands beside entries for kinds of layers, which do not read it");
        }
    }
}

/// Checks that lists by layer are not shorter than the number of layers. (Multi-token prediction needs longer ones.)
void check_layer_list_lengths(const JsonObject &config) {
    const auto n_layers = config.count("num_hidden_layers");
    for (const char *key : {"hybrid_layer_pattern", "layer_rope_theta", "layer_types", "no_rope_layers",
                            "partial_rotary_factors", "rope_theta"}) {
        const auto n = config.is_list(key) ? std::ssize(config.value().find(key)->elements) : 0;
        if (n_layers && n != 0 && n < *n_layers) {
            refuse(config.name_of(key) + " has " + std::to_string(n) + " elements, but num_hidden_layers is " +
                   std::to_string(*n_layers));
        }
    }
}

/// The check of a top-level key's value, if the model's code reads the key.
Check find_check(const Model &model, std::string_view key) {
    const bool is_step = model.is_kind(Layers::step), is_modernbert = model.is_kind(Layers::modernbert);
    const auto is = [&](const char *name) { return name != nullptr && key == name; };
    if (is(model.known->base_list) && (key != "rope_theta" || model.config.is_list("rope_theta"))) {
        return as_numbers;
    }
    if (is(model.known->sliding_key) || (is_modernbert && is("global_rope_theta"))) {
        return as_number;
    }
    if (is_step && (is("partial_rotary_factors") || is("yarn_only_types"))) {
        return is("yarn_only_types") ? as_words : as_numbers;
    }
    return model.type == "zamba2" && is("use_mem_rope") ? as_flag : find_check(top_keys, key);
}

void check_top(const JsonObject &config, const Model &model) {
    const auto path = config.name_of("");
    for (const auto &field : config.value().fields) {
        const auto &key = field.key;
        const auto &value = field.value;
        const auto check = find_check(model, key);
        const bool is_known = check || std::ranges::find(meaningless, key, &Meaningless::key) != std::end(meaningless);
        const bool is_part = &value == &model.config.value() ||
                             std::ranges::any_of(model.around, [&](const auto &one) { return &value == &one.value(); });
        if (!is_nothing(value) && speaks_of_rope(key) && !is_known) {
            refuse_key(path, key);
        }
        if (check) {
            check(config, key.c_str());
        } else if (!is_part && !is_other_part(field)) {
            const bool has_base = model.known->attention != nullptr && key == model.known->attention;
            check_inside(value, name_of(path, key), has_base ? "rope_theta" : "");
        }
    }
    for (const char *key : {"rope_scaling", "rope_parameters", "rotary"}) {
        if (const Json *const scaling = config.value().find(key); scaling != nullptr && scaling->is_object()) {
            check_whole_scaling(JsonObject(*scaling, config.name_of(key) + "."), config);
        } else if (std::string_view(key) != "rotary") {
            config.object(key);
        }
    }
}

/// Only the language model's object is read. So this refuses a known key outside of that object, unless the object has
/// the same key with the same value.
void check_enclosing_keys(const JsonObject &enclosing, const Model &model) {
    const auto &config = model.config;
    const auto type = enclosing.word("model_type");
    if (type == "fuyu" || type == "musicflamingo") {
        return;  // fuyu: transformers 5.19 writes unused defaults there; musicflamingo: the key concerns the audio
    }
    for (const auto &[key, outside] : enclosing.value().fields) {
        const Json *const inside = config.value().find(key);
        if (find_check(model, key) && outside.kind != Json::Kind::null && (inside == nullptr || *inside != outside)) {
            refuse(enclosing.name_of(key.c_str()) + " is not what " + config.name_of(key.c_str()) +
                   " says, which is read");
        }
    }
}

}  // namespace

void check_keys(const Model &model) {
    check_top(model.config, model);
    check_layer_list_lengths(model.config);
    for (const auto &around : model.around) {
        check_top(around, model);
        check_enclosing_keys(around, model);
    }
}

void check_vision_keys(const JsonObject &vision) {
    for (const auto &[key, value] : vision.value().fields) {
        if (!is_nothing(value) && speaks_of_rope(key) && key != "rope_parameters") {
            refuse_key(vision.name_of(""), key);
        }
        if (key != "rope_parameters") {
            check_inside(value, name_of(vision.name_of(""), key));
        }
    }
    if (const auto parameters = vision.object("rope_parameters")) {
        for (const auto &[key, value] : parameters->value().fields) {
            if (value.kind != Json::Kind::null && key != "rope_theta" && key != "rope_type") {
                refuse_key(parameters->name_of(""), key);
            }
        }
    }
}

std::string find_claim(const JsonObject &config) {
    for (const auto &[key, value] : config.value().fields) {
        if (has_word("rope rotary use_rope use_rotary_pos_emb", key) && value.flag) {
            return config.name_of(key.c_str()) + " is true";
        }
        if (key == "position_embedding_type" && has_word("rope rotary", value.text)) {
            return config.name_of("position_embedding_type") + " is " + quote(value.text);
        }
        const auto inside = value.is_object() && key == "attn_config" ? find_claim({value, "attn_config."}) : "";
        if (!inside.empty()) {
            return inside;
        }
    }
    return "";
}

}  // namespace halyard

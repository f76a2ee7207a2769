#include "config/language_model.h"

#include <algorithm>
#include <string>

namespace halyard {
namespace {

/// Refuses configs that state another kind of position encoding than RoPE.
void check_uses_rope(const JsonObject &config, const std::string &type, bool is_known) {
    // Some models with RoPE have inherited this field from BERT, with the value "absolute", and don't read it.
    const bool needs_type = type == "granitemoehybrid" || type == "esm", reads_type = !is_known || needs_type;
    const auto kind = config.word("position_embedding_type");
    if (reads_type && kind && *kind != "rope" && *kind != "rotary" && *kind != "default") {
        refuse(config.name_of("position_embedding_type") + " is " + quote(*kind) + ", so the model has no RoPE");
    }
    if (needs_type && !kind) {
        refuse(config.name_of("position_embedding_type") + " is missing, so the model has no RoPE");
    }
    if (type == "zamba2" && !config.flag("use_mem_rope").value_or(false)) {
        refuse(config.name_of("use_mem_rope") + " is not true, so model_type 'zamba2' has no RoPE");
    }
    if (config.flag("rotary_value").value_or(false)) {
        refuse_unsupported(config.name_of("rotary_value") + " is true, so v is turned too, which is not supported");
    }
    for (const char *key : {"alibi", "use_alibi", "position_encoding_2d"}) {
        if (config.flag(key).value_or(false)) {
            refuse(config.name_of(key) + " is true, so the model has no RoPE that is known here");
        }
    }
    for (const char *key : {"rotary", "use_rope", "use_rotary_pos_emb"}) {
        // InternLM's rotary is an object.
        if (config.has(key) && !config.value().find(key)->is_object() && !*config.flag(key)) {
            refuse(config.name_of(key) + " is false, so the model has no RoPE");
        }
    }
    // In spite of the name no_rope_layers, 1 means a layer with RoPE.
    const auto has_rope = config.numbers("no_rope_layers").value_or(std::vector<double>());
    if (!has_rope.empty() && std::ranges::count(has_rope, 0.0) == std::ssize(has_rope)) {
        refuse(config.name_of("no_rope_layers") + " leaves no layer with RoPE");
    }
}

void check_type(const JsonObject &config, const std::string &type) {
    if (const auto *const refusal = find_refusal(type)) {
        // A model of such a type that comes with code of its own may have RoPE nevertheless.
        if (const auto claim = find_claim(config); !claim.empty() && refusal->status == HALYARD_ERROR_CONFIG) {
            refuse_unsupported(claim + ", but which RoPE models of model_type " + quote(type) +
                               " have then is not known here");
        }
        refuse("model_type is " + quote(type) + ", which " + refusal->why, refusal->status);
    }
}

/// The key of the object that holds the language model, or NULL. (ColPali repeats an inner object beside the outer.)
const char *find_nested_model(const JsonObject &config) {
    const char *found = nullptr;
    for (const char *key : {"thinker_config", "vlm_config", "text_config", "llm_config", "language_config"}) {
        if (!config.has(key)) {
            continue;
        }
        const Json *inside = found == nullptr ? nullptr : config.object(found)->value().find(key);
        if (found != nullptr && (inside == nullptr || !(*inside == *config.value().find(key)))) {
            refuse(config.name_of(found) + " and " + config.name_of(key) + " are both there");
        }
        found = found == nullptr ? key : found;
    }
    return found;
}

}  // namespace

void check_needs(const ModelType &known, const std::string &type, const JsonObject &config, const JsonObject &scaling) {
    for (const char *key : known.needs) {
        const bool is_stated = key == nullptr || config.has(key) || scaling.has(key) ||
                               (std::string_view(key) == "rope_parameters" && !scaling.value().fields.empty());
        if (!is_stated) {
            refuse_missing(config.name_of(key) + ", which model_type " + quote(type) + " needs,");
        }
    }
}

Model find_model(const JsonObject &root) {
    Model model = {root, root.word("model_type").value_or("")};
    check_type(root, model.type);
    // Models of several parts keep the language model inside, some of them two levels down.
    for (auto key = find_nested_model(root); key != nullptr; key = find_nested_model(model.config)) {
        const auto inner = *model.config.object(key);
        if (const auto *const whole = find_model_type(model.type)) {
            check_needs(*whole, model.type, inner, inner.object("rope_parameters").value_or(inner));
        }
        model.around.push_back(model.config);
        model.config = inner;
        model.type = inner.word("model_type").value_or(model.type);
        check_type(inner, model.type);
    }
    if (model.type == "musicflamingo" && model.around.empty()) {
        refuse_missing("text_config");  // the outer object's keys concern the audio
    }
    if (const auto *const known = find_model_type(model.type)) {
        model.known = known;
    } else if (!model.config.has("model_type") && !model.type.empty()) {
        refuse_missing(model.config.name_of("model_type"));  // the whole model's type does not tell its part's
    }
    check_uses_rope(model.config, model.type, model.is_known());
    return model;
}

}  // namespace halyard

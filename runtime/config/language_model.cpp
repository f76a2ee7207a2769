#include "config/language_model.h"

#include <algorithm>
#include <string>

namespace halyard {
namespace {

/// Refuses configs that say that the model learns of positions in another way.
void check_uses_rope(const JsonObject &config, const std::string &type, const ModelType *known) {
    // Some models with RoPE have inherited this field from BERT with its "absolute", and don't read it.
    const bool is_granite = type == "granitemoehybrid", reads_type = known == nullptr || is_granite || type == "esm";
    const auto kind = config.word("position_embedding_type");
    if (reads_type && kind && *kind != "rope" && *kind != "rotary" && *kind != "default") {
        refuse(config.name_of("position_embedding_type") + " is " + quote(*kind) + ", so the model has no RoPE");
    }
    if (is_granite && !kind) {
        refuse(config.name_of("position_embedding_type") + " is not \"rope\", so the model has no RoPE");
    }
    if (type == "zamba2" && !config.flag("use_mem_rope").value_or(false)) {
        refuse(config.name_of("use_mem_rope") + " is not true, so model_type 'zamba2' has no RoPE");
    }
    if (config.flag("rotary_value").value_or(false)) {
        refuse(config.name_of("rotary_value") + " is true, so v is turned too, which is not supported",
               HALYARD_ERROR_UNSUPPORTED);
    }
    for (const char *key : {"alibi", "use_alibi", "position_encoding_2d"}) {
        if (config.flag(key).value_or(false)) {
            refuse(config.name_of(key) + " is true, so the model has no RoPE that is known here");
        }
    }
    // InternLM's is an object.
    if (config.has("rotary") && !config.value().find("rotary")->is_object() && !*config.flag("rotary")) {
        refuse(config.name_of("rotary") + " is false, so the model has no RoPE");
    }
    // In spite of its name, 1 means a layer with RoPE.
    const auto has_rope = config.numbers("no_rope_layers").value_or(std::vector<double>());
    if (!has_rope.empty() && std::ranges::count(has_rope, 0.0) == std::ssize(has_rope)) {
        refuse(config.name_of("no_rope_layers") + " leaves no layer with RoPE");
    }
}

void check_type(const std::string &type) {
    if (const auto *const refusal = find_refusal(type)) {
        refuse("model_type is " + quote(type) + ", which " + refusal->why, refusal->status);
    }
}

/// The key of the object that holds the language model, or NULL. ColPali repeats what is inside it.
const char *find_part(const JsonObject &config) {
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

Model find_model(const JsonObject &root) {
    Model model = {root, root.word("model_type").value_or("")};
    check_type(model.type);
    // Models of several parts keep the language model inside, some of them two levels down.
    for (auto key = find_part(root); key != nullptr; key = find_part(model.config)) {
        const auto inner = *model.config.object(key);
        model.around.push_back(model.config);
        model.config = inner;
        model.type = inner.word("model_type").value_or(model.type);
        check_type(model.type);
    }
    model.known = find_model_type(model.type);
    check_uses_rope(model.config, model.type, model.known);
    return model;
}

}  // namespace halyard

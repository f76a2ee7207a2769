// Which model a config is of, and which of its layers are meant.
#include "config/config.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace halyard {
namespace {

/// Refuses configs that say that positions come in by other ways.
void check_uses_rope(const JsonObject &config, const std::string &type, const ModelType *known) {
    // Some models with RoPE have inherited this field from BERT with its "absolute", and don't read it.
    const bool reads_type = known == nullptr || type == "esm";
    if (const auto kind = config.word("position_embedding_type");
        reads_type && kind && *kind != "rope" && *kind != "rotary" && *kind != "default") {
        refuse(config.name_of("position_embedding_type") + " is " + quote(*kind) + ", so the model has no RoPE");
    }
    for (const char *key : {"alibi", "use_alibi", "position_encoding_2d"}) {
        if (config.flag(key).value_or(false)) {
            refuse(config.name_of(key) + " is true, so the model has no RoPE that is known here");
        }
    }
    if (const Json *const rotary = config.value().find("rotary");
        rotary != nullptr && rotary->kind == Json::Kind::boolean && !rotary->flag) {
        refuse(config.name_of("rotary") + " is false, so the model has no RoPE");
    }
    // In spite of its name, 1 means a layer with RoPE.
    if (const Json *const found = config.value().find("no_rope_layers");
        found != nullptr && !found->elements.empty() && std::ranges::all_of(found->elements, [](const Json &has_rope) {
            return has_rope.kind == Json::Kind::number && has_rope.number == 0.0;
        })) {
        refuse(config.name_of("no_rope_layers") + " leaves no layer with RoPE");
    }
}

void check_type(const std::string &type) {
    if (const char *const kind = find_other_positions(type)) {
        refuse("model_type is " + quote(type) + ", which has " + kind + " and no RoPE");
    }
    if (type == "ernie4_5_vl_moe" || type == "ernie4_5_vl_moe_text") {
        refuse("model_type is " + quote(type) + ", whose order of axes is not supported", HALYARD_ERROR_UNSUPPORTED);
    }
}

}  // namespace

Model find_model(const JsonObject &root) {
    Model model = {root, root.word("model_type").value_or(""), nullptr};
    check_type(model.type);
    // Models of several parts keep the language model inside, some of them two levels down.
    for (bool is_found = true; is_found;) {
        is_found = false;
        for (const char *key : {"thinker_config", "text_config", "llm_config", "language_config"}) {
            if (const auto inner = model.config.object(key)) {
                model.config = *inner;
                model.type = inner->word("model_type").value_or(model.type);
                check_type(model.type);
                is_found = true;
                break;
            }
        }
    }
    model.known = find_model_type(model.type);
    check_uses_rope(model.config, model.type, model.known);
    return model;
}

namespace {

std::string join(const std::vector<std::string> &words) {
    std::string text;
    for (const auto &word : words) {
        text += (text.empty() ? "" : ", ") + quote(word);
    }
    return text;
}

bool contains(const std::vector<std::string> &words, const std::string &word) {
    return std::find(words.begin(), words.end(), word) != words.end();
}

[[noreturn]] void refuse_layer_type(const std::string &why) { refuse(why, HALYARD_ERROR_MISMATCH); }

class LayerChooser {
public:
    LayerChooser(const Model &model, const Request &request)
        : config_(model.config), request_(request), kind_(model.known ? model.known->layers : Layers::alike),
          scaling_(find_scaling()), listed_(config_.words("layer_types").value_or(std::vector<std::string>())) {}

    Layer choose() const {
        check_is_listed();
        if (scaling_) {
            for (const auto &[key, value] : scaling_->value().fields) {
                if (value.is_object()) {
                    return choose_from_object();
                }
            }
        }
        switch (kind_) {
        case Layers::gemma3:
        case Layers::gemma4:
        case Layers::olmo3:
        case Layers::modernbert: return choose_from_two();
        default: return choose_alike();
        }
    }

private:
    /// rope_scaling or rope_parameters.
    std::optional<JsonObject> find_scaling() const {
        auto old_form = config_.object("rope_scaling");
        auto new_form = config_.object("rope_parameters");
        old_form = old_form && old_form->value().fields.empty() ? std::nullopt : old_form;
        if (old_form && new_form && old_form->value() != new_form->value()) {
            refuse(config_.name_of("rope_scaling") + " and " + config_.name_of("rope_parameters") +
                   " are both there, but differ");
        }
        if (!old_form && !new_form) {
            return config_.has("rotary") && config_.value().find("rotary")->is_object() ? config_.object("rotary")
                                                                                        : std::nullopt;  // InternLM
        }
        return new_form ? new_form : old_form;
    }

    /// Layers of other kinds than attention rotate nothing.
    void check_is_listed() const {
        if (!request_.layer_type) {
            return;
        }
        const auto &type = *request_.layer_type;
        const bool is_sliding = config_.has("sliding_window");
        if ((type == "full_attention" &&
             (kind_ == Layers::not_full_attention || (kind_ == Layers::not_full_if_sliding && is_sliding))) ||
            (contains(listed_, type) && (type == "linear_attention" || type == "conv" || type == "mamba"))) {
            refuse_layer_type("layers of type " + quote(type) + " have no RoPE in this model");
        }
    }

    /// One entry for each layer type.
    Layer choose_from_object() const {
        std::vector<std::string> names;
        const Json *first = nullptr;
        bool all_alike = kind_ != Layers::gemma4 && !config_.has("per_layer_config");
        for (const auto &[key, value] : scaling_->value().fields) {
            if (value.is_object()) {
                names.push_back(key);
                first = first == nullptr ? &value : first;
                all_alike = all_alike && value == *first;
            }
        }
        if (!request_.layer_type && names.size() > 1 && !all_alike) {
            refuse_layer_type("the layers differ in their RoPE, so layer_type is needed: one of " + join(names));
        }
        const auto type = request_.layer_type.value_or(names.front());
        if (contains(names, type)) {
            return {type, scaling_->object(type.c_str()), true};
        }
        const auto &all = scaling_->value();
        if (contains(listed_, type) || all.find(type) != nullptr) {
            refuse_layer_type("layers of type " + quote(type) + " have no RoPE in this model");
        }
        refuse_layer_type("layer_type is " + quote(type) + ", but the config knows " + join(names));
    }

    /// Models whose layers are of two types by themselves, before rope_parameters had an entry for each.
    Layer choose_from_two() const {
        const std::vector<std::string> names = {"full_attention", "sliding_attention"};
        if (config_.has("rope_parameters") || (kind_ == Layers::gemma4 && scaling_)) {
            refuse(scaling_->name_of("full_attention") + " and " + scaling_->name_of("sliding_attention") +
                   " are missing");
        }
        if (!request_.layer_type && !(kind_ == Layers::olmo3 && !scaling_)) {
            refuse_layer_type("the layers differ in their RoPE, so layer_type is needed: one of " + join(names));
        }
        const auto type = request_.layer_type.value_or(names.front());
        if (!contains(names, type)) {
            refuse_layer_type("layer_type is " + quote(type) + ", but the model knows " + join(names));
        }
        const bool is_scaled = type == "full_attention" || kind_ == Layers::modernbert;
        return {type, is_scaled ? scaling_ : std::nullopt, false};
    }

    Layer choose_alike() const {
        if (request_.layer_type && !contains(listed_, *request_.layer_type)) {
            const auto &type = *request_.layer_type;
            const bool is_known = (kind_ == Layers::not_full_attention || kind_ == Layers::not_full_if_sliding) &&
                                  (type == "sliding_attention" || type == "chunked_attention");
            if (!is_known) {
                refuse_layer_type(
                    "layer_type is " + quote(type) + ", but " +
                    (listed_.empty() ? "the config has no layer_types" : "the config's layer_types don't have it"));
            }
        }
        if (!request_.layer_type && config_.has("per_layer_config")) {
            refuse_layer_type("there is a per_layer_config, so layer_type is needed");
        }
        return {request_.layer_type.value_or(""), scaling_, false};
    }

    const JsonObject &config_;
    const Request &request_;
    Layers kind_;
    std::optional<JsonObject> scaling_;
    std::vector<std::string> listed_;
};

}  // namespace

Layer choose_layer(const Model &model, const Request &request) { return LayerChooser(model, request).choose(); }

}  // namespace halyard

#include "config/layers.h"

#include <algorithm>
#include <vector>

namespace halyard {
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
    LayerChooser(const Model &model, const std::optional<std::string> &layer_type)
        : config_(model.config), type_(model.type), layer_type_(layer_type),
          kind_(model.known ? model.known->layers : Layers::alike), scaling_(find_scaling()),
          listed_(config_.words("layer_types").value_or(std::vector<std::string>())) {}

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
        case Layers::nested:
            refuse(config_.name_of("rope_parameters") + " has no entry for each kind of layers, which model_type " +
                   quote(type_) + " needs");
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

    Layer make_layer(const std::string &type, bool is_scaled) const {
        is_scaled = is_scaled && scaling_;
        return {type, is_scaled ? *scaling_ : JsonObject::empty("rope_scaling."), is_scaled};
    }

    /// Refuses types of layers that rotate nothing: other kinds than attention, and those that a model exempts.
    void check_is_listed() const {
        if (!layer_type_) {
            return;
        }
        const auto &type = *layer_type_;
        const bool is_sliding = config_.has("sliding_window");
        if ((type == "full_attention" &&
             (kind_ == Layers::not_full_attention || (kind_ == Layers::not_full_if_sliding && is_sliding))) ||
            (contains(listed_, type) && (type == "linear_attention" || type == "conv" || type == "mamba"))) {
            refuse_layer_type("layers of type " + quote(type) + " have no RoPE in this model");
        }
    }

    /// Chooses where the config has an entry for each layer type.
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
        if (!layer_type_ && names.size() > 1 && !all_alike) {
            refuse_layer_type("the layers differ in their RoPE, so layer_type is needed: one of " + join(names));
        }
        const auto type = layer_type_.value_or(names.front());
        const auto &all = scaling_->value();
        if (contains(names, type)) {
            // Not by object(): a key may hold a zero, at which a C string ends.
            return {type, JsonObject(*all.find(type), scaling_->name_of(type.c_str()) + "."), true, true};
        }
        if (contains(listed_, type) || all.find(type) != nullptr) {
            refuse_layer_type("layers of type " + quote(type) + " have no RoPE in this model");
        }
        refuse_layer_type("layer_type is " + quote(type) + ", but the config knows " + join(names));
    }

    /// Chooses where the model's type alone says that its layers are of two types, as in configs from before
    /// rope_parameters had an entry for each.
    Layer choose_from_two() const {
        const std::vector<std::string> names = {"full_attention", "sliding_attention"};
        if (config_.has("rope_parameters") || (kind_ == Layers::gemma4 && scaling_)) {
            refuse(scaling_->name_of("full_attention") + " and " + scaling_->name_of("sliding_attention") +
                   " are missing");
        }
        if (!layer_type_ && !(kind_ == Layers::olmo3 && !scaling_)) {
            refuse_layer_type("the layers differ in their RoPE, so layer_type is needed: one of " + join(names));
        }
        const auto type = layer_type_.value_or(names.front());
        if (!contains(names, type)) {
            refuse_layer_type("layer_type is " + quote(type) + ", but the model knows " + join(names));
        }
        const bool is_scaled = type == "full_attention" || kind_ == Layers::modernbert;
        return make_layer(type, is_scaled);
    }

    Layer choose_alike() const {
        if (layer_type_ && !contains(listed_, *layer_type_)) {
            const auto &type = *layer_type_;
            const bool is_known = (kind_ == Layers::not_full_attention || kind_ == Layers::not_full_if_sliding) &&
                                  (type == "sliding_attention" || type == "chunked_attention");
            if (!is_known) {
                refuse_layer_type(
                    "layer_type is " + quote(type) + ", but " +
                    (listed_.empty() ? "the config has no layer_types" : "the config's layer_types don't have it"));
            }
        }
        if (!layer_type_ && config_.has("per_layer_config")) {
            refuse_layer_type("there is a per_layer_config, so layer_type is needed");
        }
        return make_layer(layer_type_.value_or(""), true);
    }

    const JsonObject &config_;
    const std::string &type_;
    const std::optional<std::string> &layer_type_;
    Layers kind_;
    std::optional<JsonObject> scaling_;
    std::vector<std::string> listed_;
};

}  // namespace

Layer choose_layer(const Model &model, const std::optional<std::string> &layer_type) {
    return LayerChooser(model, layer_type).choose();
}

}  // namespace halyard

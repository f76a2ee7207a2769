#include "config/layers.h"

#include <algorithm>

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
    LayerChooser(const Model &model, const RequestedLayer &asked)
        : config_(model.config), type_(model.type), layer_type_(asked.type), number_(asked.number),
          kind_(model.known->layers), scaling_(find_scaling()), listed_(find_types()),
          n_layers_(config_.first_count({"num_hidden_layers", "n_layers", "n_layer", "num_layers"})) {
        if (number_) {
            set_layer_type_from_number(model.known->unrotated_each);
        }
    }

    Layer choose() const {
        auto layer = choose_kind();
        layer.types = listed_;
        layer.number = number_;
        layer.n_layers = n_layers_;
        return layer;
    }

private:
    Layer choose_kind() const {
        check_uses_rope();
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
        case Layers::modernbert:
        case Layers::mimo:
        case Layers::step: return choose_from_two_types();
        case Layers::nested:
            refuse(config_.name_of("rope_parameters") + " has no entry for each kind of layers, which model_type " +
                   quote(type_) + " needs");
        default: return choose_alike();
        }
    }

    std::vector<std::string> find_types() const {
        std::vector<std::string> types;
        if (kind_ == Layers::mimo) {
            for (const double is_sliding : config_.numbers("hybrid_layer_pattern").value_or(std::vector<double>())) {
                types.emplace_back(is_sliding != 0.0 ? "sliding_attention" : "full_attention");
            }
        }
        return config_.words("layer_types").value_or(types);
    }

    /// Sets the layer type to that of the requested layer number. The layer must have RoPE.
    void set_layer_type_from_number(std::int64_t unrotated_each) {
        const auto name = "layer " + std::to_string(*number_);
        const auto n = std::min(n_layers_.value_or(INT64_MAX), listed_.empty() ? INT64_MAX : std::ssize(listed_));
        if (*number_ >= n) {
            refuse_layer_type(name + " is not there: the model has " + std::to_string(n) + ", counted from 0");
        }
        const auto has_rope = config_.numbers("no_rope_layers").value_or(std::vector<double>());
        const auto each = config_.count("no_rope_layer_interval").value_or(unrotated_each);
        if (has_rope.empty() ? unrotated_each != 0 && (*number_ + 1) % each == 0
                             : *number_ < std::ssize(has_rope) && has_rope[static_cast<std::size_t>(*number_)] == 0.0) {
            refuse_layer_type(name + " has no RoPE in this model");
        }
        if (listed_.empty()) {
            if (!layer_type_ && unrotated_each == 0 &&
                (kind_ == Layers::not_full_attention || kind_ == Layers::not_full_if_sliding)) {
                refuse_layer_type("the config has no layer_types, so layer_type is needed beside " + name);
            }
            return;
        }
        const auto &type = listed_[static_cast<std::size_t>(*number_)];
        if (layer_type_ && *layer_type_ != type) {
            refuse_layer_type(name + " is of type " + quote(type) + ", but layer_type is " + quote(*layer_type_));
        }
        layer_type_ = type;
    }

    /// The config's rope_scaling or rope_parameters.
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

    /// Refuses layer types without RoPE: those without attention, and those that the model exempts.
    void check_uses_rope() const {
        if (!layer_type_) {
            return;
        }
        const auto &type = *layer_type_;
        const bool is_sliding = has_sliding_window(config_);
        if ((type == "full_attention" &&
             (kind_ == Layers::not_full_attention || (kind_ == Layers::not_full_if_sliding && is_sliding))) ||
            (contains(listed_, type) && (type == "linear_attention" || type == "conv" || type == "mamba"))) {
            refuse_layer_type("layers of type " + quote(type) + " have no RoPE in this model");
        }
    }

    /// Chooses from rope parameters that have an entry for each layer type: the entry of the type that the caller
    /// named, or any entry if all are alike. If they differ and the caller named no type, that is an error.
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
        auto type = layer_type_.value_or(names.front());
        const auto &all = scaling_->value();
        if (contains(names, "compress") && contains(listed_, type)) {  // DeepSeek-V4
            type = type == "sliding_attention" ? "main" : "compress";
        }
        if (contains(names, type)) {
            // Not by object(), which takes a C string: a key may contain a zero byte.
            return {type, JsonObject(*all.find(type), scaling_->name_of(type.c_str()) + "."), true, true};
        }
        if (contains(listed_, type) || all.find(type) != nullptr) {
            refuse_layer_type("layers of type " + quote(type) + " have no RoPE in this model");
        }
        refuse_layer_type("layer_type is " + quote(type) + ", but the config knows " + join(names));
    }

    /// Chooses the layer in configs from the time before rope_parameters had an entry for each layer type. That such a
    /// model has two layer types is known from its model_type only.
    Layer choose_from_two_types() const {
        const std::vector<std::string> names = {"full_attention", "sliding_attention"};
        if (config_.has("rope_parameters") || ((kind_ == Layers::gemma4 || kind_ == Layers::mimo) && scaling_)) {
            refuse(scaling_->name_of("full_attention") + " and " + scaling_->name_of("sliding_attention") +
                   " are missing");
        }
        if (!layer_type_ && !((kind_ == Layers::olmo3 || kind_ == Layers::step) && !scaling_)) {
            refuse_layer_type("the layers differ in their RoPE, so layer_type is needed: one of " + join(names));
        }
        const auto type = layer_type_.value_or("");
        if (layer_type_ && !contains(names, type)) {
            refuse_layer_type("layer_type is " + quote(type) + ", but the model knows " + join(names));
        }
        const auto scaled = kind_ == Layers::step ? config_.words("yarn_only_types") : std::nullopt;
        const bool is_scaled = scaled ? contains(*scaled, type) : type != "sliding_attention";
        return make_layer(type, is_scaled || kind_ == Layers::modernbert);
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
    std::optional<std::string> layer_type_;
    std::optional<std::int64_t> number_;
    Layers kind_;
    std::optional<JsonObject> scaling_;
    std::vector<std::string> listed_;
    std::optional<std::int64_t> n_layers_;
};

}  // namespace

bool Layer::has(std::size_t i) const {
    const auto at = static_cast<std::int64_t>(i);
    return number ? at == *number
                  : at < n_layers.value_or(at + 1) && (type.empty() || i >= types.size() || types[i] == type);
}

bool has_sliding_window(const JsonObject &config) {
    return config.value().find("sliding_window") == nullptr || config.has("sliding_window");
}

Layer choose_layer(const Model &model, const RequestedLayer &asked) { return LayerChooser(model, asked).choose(); }

StatedNumber find_listed(const JsonObject &config, const char *key, const Layer &layer) {
    const auto values = config.numbers(key).value_or(std::vector<double>());
    std::optional<double> found;
    for (std::size_t i = 0; i < values.size(); ++i) {
        const double value = values[i];
        if (!layer.has(i) || value == 0.0) {
            continue;
        }
        if (found && *found != value) {
            refuse_layer_type("the layers differ in their RoPE, so layer is needed: " + config.name_of(key) + " has " +
                              format_number(*found) + " and " + format_number(value));
        }
        found = value;
    }
    if (!found) {
        refuse_layer_type(config.name_of(key) + " has no number but 0 for these layers, so they have no RoPE");
    }
    return {config.name_of(key), *found};
}

}  // namespace halyard

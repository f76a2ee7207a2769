#include "config/rope.h"

#include <algorithm>
#include <cmath>

namespace halyard {
namespace {

/// Whether a field is true, or (as in Llama 4) a number other than 0; `otherwise` if it is absent.
bool is_on(const JsonObject &config, const char *key, bool otherwise) {
    const Json *const value = config.has(key) ? config.value().find(key) : nullptr;
    if (value != nullptr && value->kind == Json::Kind::number) {
        return value->number != 0.0;
    }
    return config.flag(key).value_or(otherwise);
}

/// Whether the model may have layers of a type: layer_types has the type, or the config has no layer_types. (Then the
/// model's own pattern may have the type.)
bool may_have_layers(const JsonObject &config, const std::string &type) {
    const auto listed = config.words("layer_types");
    return !listed || std::ranges::find(*listed, type) != listed->end();
}

bool has_zero(const JsonObject &config, const char *key) {
    return std::ranges::count(config.numbers(key).value_or(std::vector<double>()), 0.0) > 0;
}

/// Whether the config has null as the rope_parameters of some layer types.
bool has_null_layer_types(const JsonObject &config) {
    const auto all = config.object("rope_parameters");
    return all && std::ranges::any_of(all->value().fields, [&](const auto &field) {
               return field.value.kind == Json::Kind::null && field.key.find("attention") != field.key.npos &&
                      may_have_layers(config, field.key);
           });
}

bool has_unrotated_layers(const Model &model) {
    const auto &config = model.config;
    const Json *const listed = config.value().find("no_rope_layers");  // where 1 means a layer with RoPE
    const bool is_listed = listed != nullptr && !listed->elements.empty();
    if (model.known->unrotated_each != 0 && !is_listed) {
        const auto each = config.count("no_rope_layer_interval").value_or(model.known->unrotated_each);
        return each <= config.count("num_hidden_layers").value_or(each);
    }
    if (!is_listed && (model.is_kind(Layers::not_full_attention) ||
                       (model.is_kind(Layers::not_full_if_sliding) && has_sliding_window(config)))) {
        return may_have_layers(config, "full_attention");
    }
    return has_zero(config, "no_rope_layers") || has_zero(config, "layer_rope_theta") || has_null_layer_types(config);
}

/// Sets q_scale_rule and its numbers in *about; `scale` is what the object states under `key`.
void set_rule(std::int32_t rule, std::int32_t layers, const JsonObject &object, const char *key, double scale,
              halyard_frequencies_info *about) {
    if (!(std::fabs(scale) <= 0x1p20)) {
        refuse(object.name_of(key) + " is " + format_number(scale) + ", but it must be within 2^20",
               HALYARD_ERROR_FREQUENCY);
    }
    about->q_scale = scale;
    about->q_scale_rule = rule;
    about->q_scale_layers = layers;
}

/// Reads the rule of Ministral 3 and Mistral 4, whose code has no defaults.
void read_ministral(const JsonObject &scaling, halyard_frequencies_info *about) {
    const auto beta = scaling.number("llama_4_scaling_beta");
    const auto length = scaling.count("original_max_position_embeddings");
    if (!beta || !length) {
        refuse_missing(scaling.name_of(beta ? "original_max_position_embeddings" : "llama_4_scaling_beta") +
                       ", by which q is scaled,");
    }
    set_rule(HALYARD_Q_SCALE_LOG, HALYARD_LAYERS_ALL, scaling, "llama_4_scaling_beta", *beta, about);
    about->q_scale_length = *length;
}

/// Reads the rule of Llama 4, which scales q by its token's position, counted from 1, in layers without RoPE.
void read_llama4(const JsonObject &config, halyard_frequencies_info *about) {
    if (about->has_unrotated_layers != 0 && is_on(config, "attn_temperature_tuning", true)) {
        set_rule(HALYARD_Q_SCALE_LOG, HALYARD_LAYERS_UNROTATED, config, "attn_scale",
                 config.number("attn_scale").value_or(0.1), about);
        about->q_scale_length = config.count("floor_scale").value_or(8192);
        about->q_scale_shift = 1;
    }
}

/// Refuses keys that scale q in other models than this one.
void check_other_scales(const Model &model, const JsonObject &scaling) {
    const auto refuse_scale = [&](const std::string &field) {
        refuse_unsupported(field + " speaks of a scale of q, which model_type " + quote(model.type) +
                           " is not known to have");
    };
    if (const auto beta = scaling.number("llama_4_scaling_beta"); beta && *beta != 0.0) {
        refuse_scale(scaling.name_of("llama_4_scaling_beta"));
    }
    for (const char *key : {"attn_temperature_tuning", "use_logn_attn"}) {
        if (!model.is_known() && is_on(model.config, key, false)) {
            refuse_scale(model.config.name_of(key));
        }
    }
}

}  // namespace

void read_q_scale(const Model &model, const Layer &layer, halyard_frequencies_info *about) {
    about->has_unrotated_layers = has_unrotated_layers(model) ? 1 : 0;
    const auto rule = model.known->q_scale;
    if (model.config.has("llama_4_scaling")) {
        refuse_unsupported(model.config.name_of("llama_4_scaling") + " is not known here, and might change q");
    }
    if (rule != QScale::ministral) {
        check_other_scales(model, layer.scaling);
    }
    switch (rule) {
    case QScale::none: break;
    case QScale::llama4: read_llama4(model.config, about); break;
    case QScale::ministral: read_ministral(layer.scaling, about); break;
    case QScale::beam:  // its code has these numbers
        if (about->has_unrotated_layers != 0) {
            set_rule(HALYARD_Q_SCALE_POWER, HALYARD_LAYERS_UNROTATED, model.config, "", 0.1, about);
            about->q_scale_length = 2048;
            about->q_scale_shift = 1;
        }
    }
}

}  // namespace halyard

#include "config/rope.h"

#include <charconv>
#include <cmath>
#include <cstddef>
#include <initializer_list>
#include <optional>
#include <system_error>
#include <vector>

namespace halyard {
namespace {

class WidthFinder {
public:
    WidthFinder(const Model &model, const Layer &layer, bool is_proportional)
        : model_(model), config_(model.config), layer_(layer), is_proportional_(is_proportional) {}

    Widths find() const {
        if (config_.flag("use_mla").value_or(true)) {
            const auto rotary_dim = config_.count("qk_rope_head_dim").value_or(model_.known->mla_dim);
            if (rotary_dim != 0) {
                // MLA rotates a slice of its own, which counts as the head. Other keys state the size of the whole head.
                return {.head_dim = rotary_dim,
                        .rotary_dim = rotary_dim,
                        .rotary_dim_name = config_.name_of("qk_rope_head_dim")};
            }
        }
        Widths widths = {};
        const auto head_dim = widths.head_dim = find_head_dim();
        const auto factor = find_partial_factor();
        auto stated_dim = config_.count("rotary_dim");
        if (!stated_dim && !factor && model_.known->rotary_dim != 0) {
            stated_dim = model_.known->rotary_dim;
        }
        const double part = factor ? factor->value : model_.known->partial_factor;
        const auto product = static_cast<std::int64_t>(static_cast<double>(head_dim) * part);
        if (model_.known->turns_whole && stated_dim && !factor && *stated_dim != head_dim) {
            refuse_unsupported(config_.name_of("rotary_dim") + " is " + std::to_string(*stated_dim) +
                               ", which the code of model_type " + quote(model_.type) +
                               " does not read: without a partial_rotary_factor it turns the whole head of " +
                               std::to_string(head_dim));
        }
        if (stated_dim && factor && *stated_dim != product) {
            refuse_contradiction(config_.name_of("rotary_dim"), std::to_string(*stated_dim),
                                 "head_dim times " + factor->name, std::to_string(product));
        }
        if (is_proportional_) {
            widths.rotary_dim = head_dim;
            widths.rotated_dim = find_rotated_dim(head_dim, factor);
        } else {
            widths.rotary_dim = stated_dim.value_or(product);
        }
        if (widths.rotary_dim > head_dim) {
            refuse_contradiction(config_.name_of("rotary_dim"), std::to_string(widths.rotary_dim), "head_dim",
                                 std::to_string(head_dim));
        }
        widths.rotary_dim_name = widths.rotary_dim == head_dim ? "head_dim"
                                 : stated_dim                  ? config_.name_of("rotary_dim")
                                                               : "head_dim " + std::to_string(head_dim) + " times " +
                                                    (factor ? factor->name + " " : "") + format_number(part);
        return widths;
    }

private:
    std::int64_t divide_hidden_size() const {
        const auto hidden = config_.common_count({"hidden_size", "n_embd", "n_embed", "d_model"});
        const auto heads = config_.common_count({"num_attention_heads", "n_head", "n_heads"});
        if (!hidden || !heads) {
            refuse_missing(config_.name_of("head_dim") + ", or " + (hidden ? "num_attention_heads" : "hidden_size") +
                           " to find it from,");
        }
        if (*hidden % *heads != 0) {
            refuse("hidden_size " + std::to_string(*hidden) + " is no multiple of num_attention_heads " +
                   std::to_string(*heads) + ", and head_dim is missing");
        }
        return *hidden / *heads;
    }

    std::int64_t find_head_dim() const {
        if (model_.type == "zamba2") {
            return 2 * divide_hidden_size();  // it concatenates two hidden states; the config's head_dim is ignored
        }
        const auto common = config_.common_count({"attention_head_dim", "head_dim", "kv_channels"});
        const auto usual = common                         ? *common
                           : model_.known->head_dim != 0 ? model_.known->head_dim
                                                          : divide_hidden_size();
        if (config_.has("per_layer_config")) {
            return find_per_layer_head_dim(usual);
        }
        if (model_.is_kind(Layers::gemma4) && layer_.type == "full_attention") {
            return config_.count("global_head_dim").value_or(512);
        }
        if (model_.is_kind(Layers::mimo) && layer_.is_sliding()) {
            return config_.count("swa_head_dim").value_or(usual);
        }
        return usual;
    }

    /// Reads head_dim from per_layer_config, whose keys are the numbers of the layers that differ from the rest.
    std::int64_t find_per_layer_head_dim(std::int64_t usual) const {
        const auto own = *config_.object("per_layer_config");
        const auto types = config_.words("layer_types");
        if (!types) {
            refuse_missing(config_.name_of("layer_types") + ", which per_layer_config needs,");
        }
        std::vector<std::int64_t> widths(types->size(), usual);
        std::vector<bool> is_stated(types->size());
        for (const auto &[key, value] : own.value().fields) {
            const auto name = own.name_of("") + quote(key);
            // transformers pads layer numbers with zeros, to as many digits as the last one has.
            std::size_t i = 0;
            const auto end = std::from_chars(key.data(), key.data() + key.size(), i);
            if (end.ec != std::errc() || end.ptr != key.data() + key.size() || i >= types->size() || is_stated[i]) {
                refuse(name + " is not the number of a layer, or that of another entry");
            }
            is_stated[i] = true;
            widths[i] = JsonObject(value, name + ".").count("head_dim").value_or(usual);
        }
        std::optional<std::int64_t> result;
        for (std::size_t i = 0; i < types->size(); ++i) {
            if ((*types)[i] != layer_.type) {
                continue;
            }
            if (result && *result != widths[i]) {
                refuse_unsupported(config_.name_of("per_layer_config") + " gives layers of type " + quote(layer_.type) +
                                   " heads of different widths");
            }
            result = widths[i];
        }
        return result.value_or(usual);
    }

    /// The fraction of a head that is rotated, if the config states it.
    std::optional<StatedNumber> find_partial_factor() const {
        Agreement agreement;
        agreement.add(layer_.scaling, "partial_rotary_factor");
        if (!(layer_.has_own_base && agreement.stated())) {
            for (const char *key :
                 {"partial_rotary_factor", "rotary_pct", "rope_pct", "rope_percent", "rotary_emb_fraction"}) {
                agreement.add(config_, key);
            }
        }
        auto stated = agreement.stated();
        if (model_.is_kind(Layers::step) && !layer_.has_own_base && config_.has("partial_rotary_factors")) {
            stated = find_listed(config_, "partial_rotary_factors", layer_);
        }
        if (stated && !(stated->value > 0.0 && stated->value <= 1.0)) {
            refuse(stated->name + " is " + format_number(stated->value) +
                   ", but it must be greater than 0 and at most 1");
        }
        return stated;
    }

    /// For HALYARD_SCALING_PROPORTIONAL rotary_dim is the whole head; rotated_dim is the part that really rotates.
    std::int64_t find_rotated_dim(std::int64_t head_dim, const std::optional<StatedNumber> &factor) const {
        const bool is_unstated_gemma4 = model_.is_kind(Layers::gemma4) && !layer_.is_scaled;
        const double part = factor ? factor->value : is_unstated_gemma4 ? 0.25 : 1.0;
        const auto n_pairs = static_cast<std::int64_t>(std::floor(part * static_cast<double>(head_dim) / 2.0));
        if (n_pairs == 0) {  // a rotated_dim of 0 in halyard_scaling would mean the whole head
            refuse(layer_.scaling.name_of("partial_rotary_factor") + " is " + format_number(part) +
                   ", which leaves no pair to rotate");
        }
        return 2 * n_pairs;
    }

    const Model &model_;
    const JsonObject &config_;
    const Layer &layer_;
    bool is_proportional_;
};

}  // namespace

Widths find_widths(const Model &model, const Layer &layer, bool is_proportional) {
    return WidthFinder(model, layer, is_proportional).find();
}

}  // namespace halyard

// halyard frequencies: prints the frequencies that the library makes from a base, a list or a config, as JSON.
#include "tool/commands.h"
#include "tool/files/file.h"
#include "tool/options/frequency_options.h"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace halyard::tool {
namespace {

/// The name of a pairing; null if it is not known, since only a config states it.
nlohmann::ordered_json name_of_pairing(std::int32_t pairing) {
    if (pairing == 0) {
        return nullptr;
    }
    return pairing == HALYARD_PAIRING_HALF ? "half" : "interleaved";
}

/// An axis map in the form that --axis-map takes.
std::string describe_axis_map(const halyard_frequencies_info &info) {
    std::string text = info.axis_map == HALYARD_AXIS_MAP_SECTIONS ? "sections" : "interleaved";
    for (std::int32_t axis = 0; axis < info.n_axes; ++axis) {
        text += (axis == 0 ? ":" : ",") + std::to_string(info.axis_counts[axis]);
    }
    return text;
}

/// The rule by which q is multiplied at each position, as in halyard.h; null if there is none.
nlohmann::ordered_json describe_q_scale(const halyard_frequencies_info &info) {
    if (info.q_scale_rule == HALYARD_Q_SCALE_NONE) {
        return nullptr;
    }
    nlohmann::ordered_json json;
    json["rule"] = info.q_scale_rule == HALYARD_Q_SCALE_LOG ? "log" : "power";
    json["scale"] = info.q_scale;
    json["length"] = info.q_scale_length;
    json["shift"] = info.q_scale_shift;
    json["layers"] = info.q_scale_layers == HALYARD_LAYERS_ALL ? "all" : "unrotated";
    return json;
}

void print_frequencies(const FrequencyOptions &options) {
    options.require_rotary_dim();
    const auto made = options.make();
    const auto info = made.info();
    std::vector<double> inv_freq(info.inv_freq, info.inv_freq + info.rotary_dim / 2);
    double attention_factor = info.attention_factor;
    if (options.reference == HALYARD_REFERENCE_HF_F32) {
        // Tables with this reference are made from inv_freq rounded to float.
        for (auto &frequency : inv_freq) {
            frequency = static_cast<float>(frequency);
        }
        attention_factor = static_cast<float>(attention_factor);
    }
    nlohmann::ordered_json json;
    json["inv_freq"] = inv_freq;
    json["attention_factor"] = attention_factor;
    json["rotary_dim"] = info.rotary_dim;
    json["pairing"] = name_of_pairing(info.pairing);
    json["method"] = info.method;
    if (options.reference == HALYARD_REFERENCE_HF_F32) {
        json["reference"] = "hf_f32";
    }
    if (info.head_dim != 0) {
        json["out_pairing"] = name_of_pairing(info.out_pairing);
        json["head_dim"] = info.head_dim;
    }
    if (info.axis_map != HALYARD_AXIS_MAP_NONE) {
        json["axis_map"] = describe_axis_map(info);
    }
    // What the frequencies were made from, as far as it is known.
    if (info.base != 0.0) {
        json["base"] = info.base;
    }
    if (info.original_max_position != 0) {
        json["original_max_position"] = info.original_max_position;
    }
    if (info.max_position != 0) {
        json["max_position"] = info.max_position;
    }
    if (options.seq_len) {
        json["seq_len"] = *options.seq_len;
    }
    if (info.has_unrotated_layers != 0) {
        json["has_unrotated_layers"] = true;
    }
    if (const auto q_scale = describe_q_scale(info); !q_scale.is_null()) {
        json["q_scale"] = q_scale;
    }
    print(json.dump(2) + "\n");
}

}  // namespace

void add_frequencies(CLI::App &app) {
    auto *command = app.add_subcommand("frequencies", "Print inv_freq, attention_factor, rotary_dim, pairing and "
                                                      "method as JSON");
    const auto options = std::make_shared<FrequencyOptions>();
    options->add_without_tensor(*command);
    command->callback([options] { print_frequencies(*options); });
}

}  // namespace halyard::tool

// halyard frequencies: what the library makes of a base, a list or a config, as JSON.
#include "tool/commands/commands.h"
#include "tool/inputs.h"
#include "tool/print.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace halyard::tool {
namespace {

/// null where it is not known: neither a base nor a list knows.
nlohmann::ordered_json name_of_pairing(std::int32_t pairing) {
    if (pairing == 0) {
        return nullptr;
    }
    return pairing == HALYARD_PAIRING_HALF ? "half" : "interleaved";
}

/// As --axis-map takes it.
std::string describe_axis_map(const halyard_frequencies_info &info) {
    std::string text = info.axis_map == HALYARD_AXIS_MAP_SECTIONS ? "sections" : "interleaved";
    for (std::int32_t axis = 0; axis < info.n_axes; ++axis) {
        text += (axis == 0 ? ":" : ",") + std::to_string(info.axis_counts[axis]);
    }
    return text;
}

}  // namespace

void print_frequencies(const FrequencyOptions &options) {
    const auto frequencies = make_frequencies(options, std::nullopt);
    const auto info = frequencies.info();
    std::vector<double> inv_freq(info.inv_freq, info.inv_freq + info.rotary_dim / 2);
    double attention_factor = info.attention_factor;
    if (options.reference == "hf_f32") {
        // What such a table is made of.
        std::transform(inv_freq.begin(), inv_freq.end(), inv_freq.begin(), round_to_float);
        attention_factor = round_to_float(attention_factor);
    }
    nlohmann::ordered_json json;
    json["inv_freq"] = inv_freq;
    json["attention_factor"] = attention_factor;
    json["rotary_dim"] = info.rotary_dim;
    json["pairing"] = name_of_pairing(info.pairing);
    json["method"] = info.method;
    if (options.reference != "exact") {
        json["reference"] = options.reference;
    }
    if (info.head_dim != 0) {
        json["out_pairing"] = name_of_pairing(info.out_pairing);
        json["head_dim"] = info.head_dim;
    }
    if (info.axis_map != HALYARD_AXIS_MAP_NONE) {
        json["axis_map"] = describe_axis_map(info);
    }
    // What they were made from, as far as it is known.
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
    print(json.dump(2) + "\n");
}

}  // namespace halyard::tool

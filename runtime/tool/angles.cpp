// halyard angles and halyard frequencies: what a rotation turns by, without a tensor.
#include "tool/commands.h"
#include "tool/inputs.h"
#include "tool/refusal.h"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace halyard::tool {
namespace {

/// null where it is not known: neither a base nor a list knows.
nlohmann::ordered_json name_of_pairing(std::int32_t pairing) {
    if (pairing < 0) {
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

void write_angles(const AnglesOptions &options) {
    const auto frequencies = make_frequencies(options.frequencies, std::nullopt);
    const auto rotary_dim = frequencies.info().rotary_dim;
    auto positions = Positions::read(options.positions);
    if (positions.shape().size() != 1) {
        throw Refusal("'" + options.positions.path + "' has shape " + format_shape(positions.shape()) +
                      ", but 'angles' needs positions [tokens]");
    }
    const auto n_tokens = positions.n_tokens();
    std::vector<float> rows(static_cast<std::size_t>(n_tokens) * static_cast<std::size_t>(rotary_dim));
    if (n_tokens != 0) {
        positions.materialize();
        const auto view = positions.view(1);
        const auto source =
            make_source(frequencies, options.angles, options.frequencies.reference, AxisMap(),
                        std::numeric_limits<std::int32_t>::min(), std::numeric_limits<std::int32_t>::max(), &positions);
        source.make_rows(&view, 1, n_tokens, rows.data(), static_cast<std::int64_t>(rows.size()));
    }
    const std::int64_t shape[] = {n_tokens, 2, rotary_dim / 2};
    write_npy(options.output, "<f4", shape, rows.data(), rows.size() * sizeof(float));
}

void print_frequencies(const FrequencyOptions &options) {
    const auto frequencies = make_frequencies(options, std::nullopt);
    const auto info = frequencies.info();
    nlohmann::ordered_json json;
    json["inv_freq"] = std::vector<double>(info.inv_freq, info.inv_freq + info.rotary_dim / 2);
    json["attention_factor"] = info.attention_factor;
    json["rotary_dim"] = info.rotary_dim;
    json["pairing"] = name_of_pairing(info.pairing);
    json["method"] = info.method;
    if (info.head_dim != 0) {
        json["out_pairing"] = name_of_pairing(info.out_pairing);
        json["head_dim"] = info.head_dim;
    }
    if (info.axis_map != HALYARD_AXIS_MAP_NONE) {
        json["axis_map"] = describe_axis_map(info);
    }
    print(json.dump(2) + "\n");
}

}  // namespace halyard::tool

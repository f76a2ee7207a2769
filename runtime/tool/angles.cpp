// halyard angles, halyard frequencies and halyard plot: what a rotation turns by, without a tensor.
#include "commands.h"
#include "inputs.h"
#include "refusal.h"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <limits>
#include <vector>

namespace halyard::tool {

void write_angles(const AnglesOptions &options) {
    refuse_unavailable(options.frequencies);
    refuse_unavailable_angles(options.angles);
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
        const auto view = positions.view();
        const auto source = angle_source::table(frequencies, std::numeric_limits<std::int32_t>::min(),
                                                std::numeric_limits<std::int32_t>::max(), view);
        source.make_rows(&view, 1, n_tokens, rows.data(), static_cast<std::int64_t>(rows.size()));
    }
    const std::int64_t shape[] = {n_tokens, 2, rotary_dim / 2};
    write_npy(options.output, "<f4", shape, rows.data(), rows.size() * sizeof(float));
}

void print_frequencies(const FrequencyOptions &options) {
    refuse_unavailable(options);
    const auto frequencies = make_frequencies(options, std::nullopt);
    const auto info = frequencies.info();
    nlohmann::ordered_json json;
    json["inv_freq"] = std::vector<double>(info.inv_freq, info.inv_freq + info.rotary_dim / 2);
    json["attention_factor"] = info.attention_factor;
    json["rotary_dim"] = info.rotary_dim;
    json["pairing"] = nullptr;  // neither a base nor a list knows
    json["method"] = options.inv_freq.empty() ? "default" : "list";
    print(json.dump(2) + "\n");
}

void plot(const PlotOptions &options) {
    refuse_unavailable(options.frequencies);
    throw Refusal(std::string("'plot' is not available in version ") + halyard::version());
}

}  // namespace halyard::tool

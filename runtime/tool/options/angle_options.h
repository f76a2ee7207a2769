// How cos and sin are made of frequencies.
#pragma once

#include "tool/options/arguments.h"
#include "tool/options/token_positions.h"

#include "halyard/halyard.hpp"

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

namespace halyard::tool {

struct AngleOptions {
    std::int32_t kind = HALYARD_ANGLES_AUTO;
    bad_position policy = bad_position::error;
    std::optional<std::int64_t> max_position;         // valid ones are below; none: those of 32 bits
    axis_map map = {HALYARD_AXIS_MAP_NONE, {0}, {}};  // of one axis

    CLI::Option *add_kind(CLI::App &app) {
        return add_word(app, "--angles", kind,
                        "how cos and sin are made [auto: table, of just the positions that occur]",
                        {{"auto", HALYARD_ANGLES_AUTO},
                         {"table", HALYARD_ANGLES_TABLE},
                         {"phase", HALYARD_ANGLES_PHASE}});
    }

    CLI::Option *add_axis_map(CLI::App &app) {
        return add_value(
            app, "--axis-map", "sections:N,...|interleaved:N,...",
            "which pairs read which axis of positions [axes, tokens]: sections:16,24,24 or interleaved:24,20,20",
            [this](const std::string &text) { return parse_axis_map(text); });
    }

    /// Where no axis map was asked for, takes the model's, if the positions have a dimension for its axes. (Text has
    /// one position on all axes, and then the map changes nothing.)
    void settle_axis_map(const halyard_frequencies_info &model, const TokenPositions &positions, bool has_batch) {
        const auto &shape = positions.shape();
        const bool has_axes = shape.size() == 3 || (shape.size() == 2 && !has_batch && shape[0] != 1);
        if (map.kind == HALYARD_AXIS_MAP_NONE && model.axis_map != HALYARD_AXIS_MAP_NONE && has_axes) {
            map = {model.axis_map, {model.axis_counts, model.axis_counts + model.n_axes}, {}};
        }
    }

    std::int32_t n_axes() const { return static_cast<std::int32_t>(map.counts.size()); }

    /// The source of all valid positions. A table has rows for just those that occur.
    angle_source make(const frequencies &made, std::int32_t reference, const TokenPositions &positions) const {
        using Limits = std::numeric_limits<std::int32_t>;
        auto desc = describe_angles(kind == HALYARD_ANGLES_AUTO ? HALYARD_ANGLES_TABLE : kind, map,
                                    max_position ? 0 : Limits::min(),
                                    max_position ? static_cast<std::int32_t>(*max_position - 1) : Limits::max());
        desc.reference = reference;
        const auto &values = positions.values();
        const auto list = halyard::positions(values.data(), {1, static_cast<std::int64_t>(values.size())});
        desc.listed = desc.kind == HALYARD_ANGLES_TABLE ? &list : nullptr;
        return angle_source(made, desc);
    }

private:
    /// METHOD:N,N,… — what is wrong with the numbers themselves is for the library to say. Returns what is wrong.
    std::string parse_axis_map(const std::string &text) {
        auto at = text.find(':');
        const auto method = text.substr(0, at);
        bool is_good = at != text.npos && (method == "sections" || method == "interleaved");
        map = {method == "sections" ? HALYARD_AXIS_MAP_SECTIONS : HALYARD_AXIS_MAP_INTERLEAVED, {}, {}};
        while (is_good && at != text.npos) {
            const auto begin = at + 1;
            at = text.find(',', begin);
            const auto count = parse_number<std::int64_t>(std::string_view(text).substr(begin, at - begin));
            map.counts.push_back(count.value_or(0));
            is_good = count.has_value();
        }
        return is_good ? "" : "'" + text + "' is not like sections:16,24,24 or interleaved:24,20,20";
    }
};

}  // namespace halyard::tool

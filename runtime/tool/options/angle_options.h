// Options that choose how cos and sin are made from frequencies.
#pragma once

#include "tool/options/arguments.h"
#include "tool/options/token_positions.h"

#include "halyard/halyard.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace halyard::tool {

struct AngleOptions {
    std::int32_t kind = HALYARD_ANGLES_AUTO;
    bad_position policy = bad_position::error;
    std::optional<std::int64_t> max_position;         // valid positions are below it; none: all of int32
    axis_map map = {HALYARD_AXIS_MAP_NONE, {0}, {}};  // by default one axis

    CLI::Option *add_kind(CLI::App &app) {
        return add_word(
            app, "--angles", kind, "how cos and sin are made [auto: table, of just the positions that occur]",
            {{"auto", HALYARD_ANGLES_AUTO}, {"table", HALYARD_ANGLES_TABLE}, {"phase", HALYARD_ANGLES_PHASE}});
    }

    CLI::Option *add_axis_map(CLI::App &app) {
        return add_value(
            app, "--axis-map", "sections:N,...|interleaved:N,...",
            "which pairs read which axis of positions [axes, tokens]: sections:16,24,24 or interleaved:24,20,20",
            [this](const std::string &text) { return parse_axis_map(text); });
    }

    /// If no axis map was given and the positions have a dimension for axes, uses the model's map. (Without such a
    /// dimension, as for text, all axes of a token have the same position, so that the map has no effect.)
    void settle_axis_map(const halyard_frequencies_info &model, const TokenPositions &positions, bool has_batch) {
        const auto &shape = positions.shape();
        const bool has_axes = shape.size() == 3 || (shape.size() == 2 && !has_batch && shape[0] != 1);
        if (map.kind == HALYARD_AXIS_MAP_NONE && model.axis_map != HALYARD_AXIS_MAP_NONE && has_axes) {
            map = {model.axis_map, {model.axis_counts, model.axis_counts + model.n_axes}, {}};
        }
    }

    std::int32_t n_axes() const { return static_cast<std::int32_t>(map.counts.size()); }

    /// The source of a run on a CPU. A table gets rows only for positions that occur, because positions may be anywhere
    /// in int32. So it is a source of GIVEN rows, and `view`, that of the positions, is changed to the rows' numbers.
    angle_source make(const frequencies &made, std::int32_t reference, const TokenPositions &positions,
                      halyard_positions &view) {
        using Limits = std::numeric_limits<std::int32_t>;
        const std::int32_t first = max_position ? 0 : Limits::min();
        const std::int32_t last = max_position ? static_cast<std::int32_t>(*max_position - 1) : Limits::max();
        if (kind == HALYARD_ANGLES_PHASE) {
            auto desc = describe_angles(kind, map, first, max_position.value_or(all_positions));
            desc.reference = reference;
            return angle_source(made, desc);
        }
        numbers_ = positions.values();
        for (auto &number : numbers_) {
            const auto nearest = std::clamp<std::int64_t>(number, first, last);
            number = number != nearest && policy == bad_position::identity ? 0 : nearest;
        }
        auto occur = numbers_;
        std::sort(occur.begin(), occur.end());
        occur.erase(std::unique(occur.begin(), occur.end()), occur.end());
        for (auto &number : numbers_) {
            number = std::lower_bound(occur.begin(), occur.end(), number) - occur.begin();
        }
        view.data = numbers_.data();
        return make_table(made, reference, occur);
    }

private:
    /// Parses METHOD:N,N,… Returns an error message, or "". (The library checks the numbers themselves.)
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

    /// Makes a source of GIVEN rows: row i is for position occur[i]. The positions ascend.
    angle_source make_table(const frequencies &made, std::int32_t reference, const std::vector<std::int64_t> &occur) {
        const auto rotary_dim = made.info().rotary_dim;
        plan_desc any(rotary_dim, {describe_tensor(dtype::f32, rotary_dim, pairing::half)});
        any.target = "reference";  // any target would do, since rows are only copied
        const plan maker(any);
        rows_.resize(occur.size() * static_cast<std::size_t>(rotary_dim));
        for (std::size_t i = 0, end = 0; i < occur.size(); i = end) {
            for (end = i + 1; end < occur.size() && occur[end] == occur[end - 1] + 1;) {
                ++end;
            }
            const auto n = static_cast<std::int64_t>(end - i);
            auto desc = describe_angles(HALYARD_ANGLES_TABLE, axis_map(), static_cast<std::int32_t>(occur[i]), n);
            desc.reference = reference;
            const auto start = consecutive_positions(&occur[i], 1);
            make_rows(maker, angle_source(made, desc), &start, {1, n},
                      &rows_[i * static_cast<std::size_t>(rotary_dim)], n * rotary_dim);
        }
        auto desc = describe_angles(HALYARD_ANGLES_GIVEN, map);
        desc.cos_rows = rows_.data();
        desc.sin_rows = rows_.data() + rotary_dim / 2;
        desc.n_rows = static_cast<std::int64_t>(occur.size());
        desc.stride_row = desc.rotary_dim = rotary_dim;
        return angle_source::given(desc);
    }

    std::vector<std::int64_t> numbers_;
    std::vector<float> rows_;
};

}  // namespace halyard::tool

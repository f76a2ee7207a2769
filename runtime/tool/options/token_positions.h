// The option --positions, which gives each token a position.
#pragma once

#include "tool/files/file.h"
#include "tool/files/npy.h"
#include "tool/options/arguments.h"

#include "halyard/halyard.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace halyard::tool {

/// The positions of --positions: a range START:STOP, or a file.
class TokenPositions {
    using Limits = std::numeric_limits<std::int32_t>;

public:
    CLI::Option *add(CLI::App &app, const std::string &help) {
        return add_value(app, "--positions", "FILE.npy|START:STOP", help,
                         [this](const std::string &text) { return parse(text); });
    }

    bool is_given() const { return !name_.empty(); }

    /// Reads the file. If --positions is not given, positions are 0 … n_tokens - 1.
    void read(std::int64_t n_tokens) {
        if (!is_given()) {
            shape_ = {n_tokens};
        }
        if (path_.empty()) {
            return;
        }
        const auto file = read_npy(path_, {"<i4", "<i8"});
        shape_ = file.shape;
        values_ = file.widened<std::int64_t, std::int32_t>();
    }

    /// [tokens], [batch, tokens], [axes, tokens] or [axes, batch, tokens], as given.
    const std::vector<std::int64_t> &shape() const { return shape_; }
    const std::string &name() const { return name_; }
    /// Checks the positions' shape against X's [batch, tokens]. Several axes are the first dimension of the positions.
    void check_shape(const std::array<std::int64_t, 4> &x, std::int32_t n_axes) const {
        std::vector<std::int64_t> of_tokens = {x[1]}, of_batch = {x[0], x[1]};
        if (n_axes > 1) {
            of_tokens.insert(of_tokens.begin(), n_axes);
            of_batch.insert(of_batch.begin(), n_axes);
        }
        if (is_given() && shape_ != of_tokens && shape_ != of_batch) {
            throw Refusal(name_ + " has shape " + format_shape(shape_) + ", but X needs positions " +
                          format_shape(of_tokens) + " or " + format_shape(of_batch) +
                          (n_axes > 1 ? ", axes first" : ", without an axis map"));
        }
    }

    /// The positions as the library takes them, in this object's memory. Without a batch dimension, all batch rows
    /// share one row of positions; if --positions is not given, all axes share it, too. (Consecutive positions are
    /// written to memory only here, after a wrong count has been refused.)
    halyard_positions view(std::int32_t n_axes) {
        if (path_.empty()) {
            values_.resize(static_cast<std::size_t>(n_tokens()));
            std::iota(values_.begin(), values_.end(), start_);
        }
        auto view = positions(values_.data(), {n_batch(n_axes), n_tokens()});
        view.n_axes = is_given() ? n_axes : 1;
        view.stride_axis = view.shape[0] * view.shape[1];
        return view;
    }

    /// All positions of all axes. Call it after view().
    const std::vector<std::int64_t> &values() const { return values_; }
    /// Throws Refusal if a position is not in 0 … max_position - 1 or, without a max_position, not an int32. `hint`
    /// tells the user what to do about it. Call it after view().
    void require_valid(std::int32_t n_axes, std::optional<std::int64_t> max_position, const std::string &hint) const {
        const std::int64_t first = max_position ? 0 : Limits::min();
        const std::int64_t last = max_position ? *max_position - 1 : Limits::max();
        const auto bad =
            std::find_if(values_.begin(), values_.end(), [&](auto each) { return each < first || each > last; });
        if (bad == values_.end()) {
            return;
        }
        const auto index = bad - values_.begin(), row = index / n_tokens();
        throw Refusal("token " + std::to_string(index % n_tokens()) +
                      (n_batch(n_axes) > 1 ? " of batch row " + std::to_string(row % n_batch(n_axes)) : "") +
                      " has position " + std::to_string(*bad) +
                      (n_axes > 1 ? " on axis " + std::to_string(row / n_batch(n_axes)) : "") +
                      (path_.empty() ? "" : " in " + name_) + ", but " +
                      (max_position ? "--max-position " + std::to_string(*max_position) + " allows "
                                    : "positions of 32 bits are ") +
                      std::to_string(first) + " to " + std::to_string(last) + hint);
    }

private:
    /// Parses START:STOP, or the path of a file. Returns an error message, or "".
    std::string parse(const std::string &text) {
        if (text.ends_with(".npy")) {
            path_ = text;
            name_ = "'" + path_ + "'";
            return "";
        }
        const std::string_view range = text;
        const auto n_before = std::min(range.find(':'), range.size());
        const auto start = parse_number<std::int64_t>(range.substr(0, n_before));
        const auto stop = parse_number<std::int64_t>(range.substr(std::min(n_before + 1, range.size())));
        if (!start || !stop) {
            return "'" + text + "' is neither a .npy file nor START:STOP, two whole numbers";
        }
        if (*start > *stop) {
            return "'" + text + "' stops before it starts";
        }
        if (*start < Limits::min() || *stop > std::int64_t{Limits::max()} + 1) {
            return "'" + text + "' leaves the positions of 32 bits";
        }
        name_ = "--positions " + std::to_string(*start) + ":" + std::to_string(*stop);
        start_ = *start;
        shape_ = {*stop - *start};
        return "";
    }

    std::int64_t n_tokens() const { return shape_.back(); }
    bool has_batch(std::int32_t n_axes) const { return shape_.size() == (n_axes > 1 ? 3 : 2); }
    std::int64_t n_batch(std::int32_t n_axes) const { return has_batch(n_axes) ? shape_[shape_.size() - 2] : 1; }

    std::string name_;  // for messages: "--positions 0:3", or the file's name
    std::string path_;
    std::int64_t start_ = 0;
    std::vector<std::int64_t> shape_, values_;
};

}  // namespace halyard::tool

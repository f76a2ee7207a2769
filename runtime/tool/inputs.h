// From options and files to the library's objects.
#pragma once

#include "tool/files/npy.h"
#include "tool/options.h"

#include "halyard/halyard.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace halyard::tool {

/// The frequencies that the options describe. Without --config and --rotary-dim they have `default_rotary_dim`, or what
/// --inv-freq holds when that is none.
frequencies make_frequencies(const FrequencyOptions &options, std::optional<std::int64_t> default_rotary_dim);

/// The nearest float: what --reference hf_f32 makes of a frequency and a factor.
inline double round_to_float(double value) { return static_cast<float>(value); }

/// What is rotated where nothing says how much: all columns of a head. Throws Refusal where that can't be.
std::int64_t whole_head(std::int64_t head_dim);

/// The positions of a call of the tool: one for each token.
class TokenPositions {
public:
    /// 0, 1, 2, … for each of n_tokens.
    static TokenPositions count(std::int64_t n_tokens);
    static TokenPositions read(const PositionOptions &options);

    /// [tokens], [batch, tokens], [axes, tokens] or [axes, batch, tokens], as given.
    const std::vector<std::int64_t> &shape() const { return shape_; }
    std::int64_t n_tokens() const { return shape_.back(); }

    /// Points into this object, the first dimension being axes where n_axes is not 1. Without a batch, one row serves
    /// every batch row. Needs a call of materialize() where the positions are consecutive.
    halyard_positions view(std::int32_t n_axes) const;
    /// All positions, of all axes, as one list.
    halyard_positions list() const;
    /// The least and the greatest of them.
    std::pair<std::int64_t, std::int64_t> range() const;
    /// Throws Refusal where one is not in 0 … max_position - 1 or, without a max_position, not one of 32 bits. `hint`
    /// is what to do about it.
    void require_valid(std::int32_t n_axes, std::optional<std::int64_t> max_position, const std::string &hint) const;

    /// Writes consecutive positions out. Apart from read(), so that a wrong count is found before memory is taken.
    void materialize();

private:
    std::vector<std::int64_t> shape_;
    std::int64_t start_ = 0;
    std::vector<std::int64_t> values_;
    NpyArray file_;
    bool is_file_ = false;

    halyard_positions view_as(std::array<std::int64_t, 2> shape) const;
};

/// The axis map that is asked for, in the words of halyard_angle_source_desc.
struct AxisMapOption {
    std::int32_t kind = HALYARD_AXIS_MAP_NONE;
    std::int32_t n_axes = 1;
    std::array<std::int64_t, HALYARD_MAX_AXES> counts{};
};

/// Reads what --axis-map takes, as in "sections:16,24,24"; its form was checked before.
AxisMapOption parse_axis_map(const std::string &text);

/// The source that --angles and --reference ask for, covering first … last. A table has rows for just the positions
/// that are listed (may be NULL: all).
angle_source make_source(const frequencies &frequencies, const std::string &angles, const std::string &reference,
                         const AxisMapOption &axes, std::int32_t first, std::int32_t last,
                         const TokenPositions *listed);

}  // namespace halyard::tool

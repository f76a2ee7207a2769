// From options and files to the library's objects.
#pragma once

#include "npy.h"
#include "options.h"

#include "halyard/halyard.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace halyard::tool {

/// Refuses the frequency options and sources of angles that a later version brings.
void refuse_unavailable(const FrequencyOptions &options);
void refuse_unavailable_angles(const std::string &angles);

/// The frequencies that the options describe. Without --rotary-dim they have `default_rotary_dim`, or what --inv-freq
/// holds when that is none.
frequencies make_frequencies(const FrequencyOptions &options, std::optional<std::int64_t> default_rotary_dim);

/// A position for each token, as the library takes them.
class Positions {
public:
    /// 0, 1, 2, … for each of n_tokens.
    static Positions count(std::int64_t n_tokens);
    static Positions read(const PositionOptions &options);

    /// [tokens] or [batch, tokens], as given.
    const std::vector<std::int64_t> &shape() const { return shape_; }
    std::int64_t n_tokens() const { return shape_.back(); }

    /// Points into this object; one row serves every batch row unless the shape has two dimensions. Needs a call of
    /// materialize() where the positions are consecutive.
    halyard_positions view() const;

    /// Writes consecutive positions out. Apart from read(), so that a wrong count is found before memory is taken.
    void materialize();

private:
    std::vector<std::int64_t> shape_;
    std::int64_t start_ = 0;
    std::vector<std::int64_t> values_;
    NpyArray file_;
};

}  // namespace halyard::tool

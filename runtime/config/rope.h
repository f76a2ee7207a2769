// What a config says about the RoPE of one kind of layers: method, base, pairing and the method's numbers.
#pragma once

#include "config/layers.h"
#include "frequencies/scaling.h"
#include "halyard/halyard.h"

#include <cstdint>
#include <forward_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace halyard {

/// What frequencies are made of. No number has been checked for its range: make_scaled_frequencies does that.
struct Rope {
    halyard_scaling scaling = {};  // but for the lists
    std::vector<double> short_factor, long_factor;
    ScalingNames names;  // the config's own
    halyard_frequencies_info about = {};
    bool is_backward = false;                                          // the model turns by -position
    double short_attention_factor = 0.0, long_attention_factor = 0.0;  // as in Origin
    std::int64_t longest_seq_len = max_tokens;

    Rope();
    Rope(Rope &&) = default;
    Rope(const Rope &) = delete;  // the names point into texts_

    /// A copy of the text that lives as long as this object.
    std::string_view keep(std::string text) { return texts_.emplace_front(std::move(text)); }

private:
    std::forward_list<std::string> texts_;
};

/// Throws Failure where fields are missing, of the wrong type, contradict each other or are not supported.
Rope read_rope(const Model &model, const Layer &layer, std::int64_t seq_len);

}  // namespace halyard

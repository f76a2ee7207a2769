// Reads the RoPE of one kind of layers from a config: method, base, pairing and the method's numbers. Throws Failure if
// something is missing, of the wrong type, contradictory or not supported.
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

/// What frequencies are made from. Numbers are not yet checked for their ranges: make_scaled_frequencies does that.
struct Rope {
    halyard_scaling scaling = {};  // without short_factor and long_factor
    std::vector<double> short_factor, long_factor;
    ScalingNames names;  // the config's keys, for messages
    halyard_frequencies_info about = {};
    bool is_backward = false;                                          // the model rotates by -position
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

Rope read_rope(const Model &model, const Layer &layer, std::int64_t seq_len);

/// The dimensions of a head and of its rotated part (widths.cpp).
struct Widths {
    std::int64_t head_dim;
    std::int64_t rotary_dim;
    std::int64_t rotated_dim = 0;  // for HALYARD_SCALING_PROPORTIONAL
    std::string rotary_dim_name;   // the key, or product of keys, that rotary_dim comes from
};
Widths find_widths(const Model &model, const Layer &layer, bool is_proportional);

/// Fills in the axis map of *about: NONE unless the config or the model's type has one. says_mrope: the config states
/// the method "mrope", and so must have an axis map. (axes.cpp)
void read_axes(const Model &model, const Layer &layer, std::int64_t rotary_dim, bool says_mrope,
               halyard_frequencies_info *about);

/// Fills in the rule by which the model scales q (q_scale… of *about), and has_unrotated_layers. (q_scale.cpp)
void read_q_scale(const Model &model, const Layer &layer, halyard_frequencies_info *about);

/// Reads the RoPE of a multimodal model's image encoder, for one of its two axes, which are alike. (vision.cpp)
Rope read_vision(const JsonObject &root);

}  // namespace halyard

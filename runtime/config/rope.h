// What a config says about the RoPE of one kind of layers: method, base, pairing and the method's numbers. Whatever is
// missing, of the wrong type, contradictory or not supported is thrown as a Failure.
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

Rope read_rope(const Model &model, const Layer &layer, std::int64_t seq_len);

/// How wide a head is, and how much of it is rotated (widths.cpp).
struct Widths {
    std::int64_t head_dim;
    std::int64_t rotary_dim;
    std::int64_t rotated_dim = 0;  // of a proportional scaling
    std::string rotary_dim_name;   // the field or the product that rotary_dim comes from
};
Widths find_widths(const Model &model, const Layer &layer, bool is_proportional);

/// Fills in the axis map of *about: NONE unless the config or the model's type has one. says_mrope: the config names
/// the method "mrope", and so must have one. (axes.cpp)
void read_axes(const Model &model, const Layer &layer, std::int64_t rotary_dim, bool says_mrope,
               halyard_frequencies_info *about);

/// Fills in what the model does to q beside turning it: q_scale and its like; and has_unrotated_layers. (query.cpp)
void read_query(const Model &model, const Layer &layer, halyard_frequencies_info *about);

/// The RoPE of one axis of a multimodal model's image encoder, which is the same for both (vision.cpp).
Rope read_vision(const JsonObject &root);

}  // namespace halyard

// How wide a head is, and how much of it is rotated.
#pragma once

#include "config/layers.h"

#include <cstdint>
#include <string>

namespace halyard {

struct Widths {
    std::int64_t head_dim;
    std::int64_t rotary_dim;
    std::int64_t rotated_dim = 0;  // of a proportional scaling
    std::string rotary_dim_name;   // the field or the product that rotary_dim comes from
};

/// Throws Failure where fields are missing or contradict each other.
Widths find_widths(const Model &model, const Layer &layer, bool is_proportional);

}  // namespace halyard

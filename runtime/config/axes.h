// Models that rotate by several positions of a token, one on each axis.
#pragma once

#include "config/layers.h"
#include "halyard/halyard.h"

#include <cstdint>

namespace halyard {

/// Fills in the axis map of *about: NONE unless the config or the model's type has one. says_mrope: the config names
/// the method "mrope", and so must have one. Throws Failure.
void read_axes(const Model &model, const Layer &layer, std::int64_t rotary_dim, bool says_mrope,
               halyard_frequencies_info *about);

}  // namespace halyard

// What a model does to q beside turning it, and whether some of its layers turn nothing.
#pragma once

#include "config/layers.h"

namespace halyard {

/// Fills in q_scale and its like, and has_unrotated_layers. Throws Failure.
void read_query(const Model &model, const Layer &layer, halyard_frequencies_info *about);

}  // namespace halyard

// The RoPE of a multimodal model's image encoder.
#pragma once

#include "config/json_reader.h"
#include "config/rope.h"

namespace halyard {

/// The RoPE of one axis, which is the same for both. Throws Failure where the encoder is not known.
Rope read_vision(const JsonObject &root);

}  // namespace halyard

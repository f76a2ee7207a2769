// One call of the library, as it comes together.
#pragma once

#include "tool/files/npy.h"

#include "halyard/halyard.hpp"

#include <array>
#include <cstdint>

namespace halyard::tool {

/// What X is, and what the options for the stages beside the rotation add to it. They own what it points to.
struct Call {
    NpyArray x;
    dtype type;
    bool moves;                             // X is of keys that are there, and move
    bool has_batch;                         // where X, or of a cache its slots, has a dimension for it
    std::array<std::int64_t, 4> shape;      // [batch, tokens, heads, head_dim]
    std::array<std::int64_t, 4> strides{};  // of X and Y; a cache has its own
    halyard_tensor_desc tensor;
    halyard_stages stages = make_struct<halyard_stages>();
    run_options how;
};

}  // namespace halyard::tool

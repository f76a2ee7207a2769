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
    std::array<std::int64_t, 4> strides{};  // of X; a cache has its own
    std::int64_t x_width, y_width;          // of a head as X and Y hold it: head_dim, or a record's bytes
    halyard_tensor_desc tensor;
    halyard_stages stages = make_struct<halyard_stages>();
    run_options how;

    /// X or Y, whose heads are as wide as that.
    halyard_tensor describe(const void *data, dtype its_type, std::int64_t width) const {
        auto result = input_tensor(data, its_type, shape, strides);
        result.shape[3] = width;
        for (int i = 0; i < 3; ++i) {
            result.strides[i] = strides[static_cast<std::size_t>(i)] / x_width * width;
        }
        return result;
    }
};

}  // namespace halyard::tool

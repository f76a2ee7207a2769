// A number for each token as callers store it, a position or a slot: any stride, any alignment, int32 or int64.
#pragma once

#include "base/error.h"
#include "base/overlap.h"
#include "halyard/halyard.h"

#include <cstdint>
#include <cstring>

namespace halyard {

/// The caller's numbers, checked but for what they are. (No initializers: a run would pay for them.)
struct TokenNumbers {
    const void *data;                         // NULL: there are none
    bool is_int64;                            // else int32
    bool consecutive;                         // data holds the first of each batch row
    std::int64_t stride_batch, stride_token;  // in elements; 0 where there is one
    MemoryRange memory;

    std::int64_t element_bytes() const noexcept { return is_int64 ? 8 : 4; }

    /// Number `index` of the array.
    std::int64_t read(std::int64_t index) const noexcept {
        if (is_int64) {
            std::int64_t number = 0;
            std::memcpy(&number, static_cast<const char *>(data) + index * 8, 8);
            return number;
        }
        std::int32_t number = 0;
        std::memcpy(&number, static_cast<const char *>(data) + index * 4, 4);
        return number;
    }
};

/// Checks what positions and slots both say of their numbers, and sets that but for the memory.
template <typename Given>
halyard_status read_form(const Given &given, const char *name, TokenNumbers *out, halyard_error *error) noexcept {
    if (given.type != HALYARD_INT32 && given.type != HALYARD_INT64) {
        return fail(error, HALYARD_ERROR_UNKNOWN_VALUE, name, ".type is ", given.type,
                    ", but it must be HALYARD_INT32 (0) or HALYARD_INT64 (1)");
    }
    if (given.consecutive != 0 && given.consecutive != 1) {
        return fail(error, HALYARD_ERROR_UNKNOWN_VALUE, name, ".consecutive is ", given.consecutive,
                    ", but it must be 0 or 1");
    }
    out->data = given.data;
    out->is_int64 = given.type == HALYARD_INT64;
    out->consecutive = given.consecutive != 0;
    // The stride of a dimension that has one element is never walked, and may be anything.
    out->stride_batch = given.shape[0] > 1 ? given.strides[0] : 0;
    out->stride_token = given.shape[1] > 1 ? given.strides[1] : 0;
    return HALYARD_OK;
}

}  // namespace halyard

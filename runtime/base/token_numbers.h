// A caller's array with a number for each token, its position or slot: any strides, any alignment, int32 or int64.
#pragma once

#include "base/error.h"
#include "base/overlap.h"
#include "base/storage.h"
#include "base/versioned.h"
#include "halyard/halyard.h"

#include <cstdint>

namespace halyard {

/// The shape and strides of such an array; each call passes its address. Tokens are counted through all batch rows.
/// Batch rows of one token each are treated as the tokens of one row, so that kernels can take many of them at once.
/// (No initializers: a run would pay for them.)
struct TokenNumbers {
    std::int64_t n_batch, n_tokens;
    bool one_token_rows;  // each token is a batch row of the caller's
    bool is_given;        // false: there is no array
    bool is_int64;
    bool is_consecutive;                      // the array holds the first number of each batch row
    std::int64_t stride_batch, stride_token;  // in elements; 0 for a dimension of size 1
    Reach reach;

    std::int64_t element_bytes() const noexcept { return is_int64 ? 8 : 4; }
    std::int64_t count() const noexcept { return n_batch * n_tokens; }

    /// Element `index` of the array, if is_given.
    std::int64_t read(const void *data, std::int64_t index) const noexcept {
        return is_int64 ? read_word<std::int64_t>(data, index) : read_word<std::int32_t>(data, index);
    }

    /// A token's indices as the caller counts them, for error messages: "batch b, token t".
    struct Name {
        std::int64_t batch, token;
    };
    Name name_of(std::int64_t batch, std::int64_t token) const noexcept {
        return one_token_rows ? Name{token, batch} : Name{batch, token};
    }

    /// If batch rows have one token each, makes them the tokens of one row. Its numbers are not consecutive then,
    /// because each of the caller's rows begins at a number of its own.
    void join_one_token_rows() noexcept {
        one_token_rows = n_tokens == 1;
        if (one_token_rows) {
            n_tokens = n_batch;
            n_batch = 1;
            stride_token = stride_batch;
            stride_batch = 0;
            is_consecutive = false;
        }
    }
};

/// Checks the type of halyard_positions or halyard_slots, and fills in *out except reach and one_token_rows. The call
/// has n_batch batch rows of n_tokens tokens each.
template <typename Given>
halyard_status read_type_and_strides(const Given &given, std::int64_t n_batch, std::int64_t n_tokens, const char *name,
                                     TokenNumbers *out, halyard_error *error) noexcept {
    if (given.type != HALYARD_INT32 && given.type != HALYARD_INT64) {
        return fail(error, HALYARD_ERROR_UNKNOWN_VALUE, name, ".type is ", given.type,
                    ", but it must be HALYARD_INT32 (0) or HALYARD_INT64 (1)");
    }
    HALYARD_TRY(check_choice(name, "consecutive", given.consecutive, 1, error));
    out->n_batch = n_batch;
    out->n_tokens = n_tokens;
    out->is_given = true;
    out->is_int64 = given.type == HALYARD_INT64;
    out->is_consecutive = given.consecutive != 0;
    // The stride of a dimension of size 1 is never used, and may be anything.
    out->stride_batch = given.shape[0] > 1 ? given.strides[0] : 0;
    out->stride_token = given.shape[1] > 1 ? given.strides[1] : 0;
    return HALYARD_OK;
}

}  // namespace halyard

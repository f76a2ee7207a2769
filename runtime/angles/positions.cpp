#include "angles/positions.h"

#include "base/versioned.h"

#include <algorithm>

namespace halyard {

namespace {

halyard_status check_shape(const halyard_positions &given, std::int64_t n_batch, std::int64_t n_tokens,
                           std::int32_t n_axes, const char *name, halyard_error *error) {
    const std::int64_t n_columns = given.consecutive != 0 ? 1 : n_tokens;
    if ((given.shape[0] != 1 && given.shape[0] != n_batch) || given.shape[1] != n_columns) {
        return fail(error, HALYARD_ERROR_SHAPE, name, ".shape is {", given.shape[0], ", ", given.shape[1],
                    n_batch == 1 ? "}, but it must be {" : "}, but it must be {1 or ", n_batch, ", ", n_columns,
                    "}, batch and tokens, on ", n_axes == 1 ? "the one axis that there is" : "every axis");
    }
    if (given.n_axes != n_axes && given.n_axes != 0 && given.n_axes != 1) {
        return fail(error, HALYARD_ERROR_SHAPE, name, ".n_axes is ", given.n_axes, ", but it must be ", n_axes,
                    n_axes > 1 ? ", or 1 where all axes are equal" : "");
    }
    return HALYARD_OK;
}

}  // namespace

halyard_status check_within(const PositionRange &range, const Positions &positions, const void *data,
                            std::int32_t n_axes, const TokenSet *tokens, const char *name,
                            halyard_error *error) noexcept {
    // If batch rows share positions, checking one row is enough, unless only some rows' tokens are in the set.
    const std::int64_t n_rows =
        positions.stride_batch == 0 && tokens == nullptr ? std::min<std::int64_t>(positions.n_batch, 1)
                                                         : positions.n_batch;
    for (std::int32_t axis = 0; axis < n_axes; axis++) {
        for (std::int64_t batch = 0; batch < n_rows; batch++) {
            // If both ends of consecutive positions are in the range, all are.
            if (positions.is_consecutive && range.has(positions.at(data, batch, 0, axis)) &&
                range.has(positions.at(data, batch, positions.n_tokens - 1, axis))) {
                continue;
            }
            for (std::int64_t token = 0; token < positions.n_tokens; token++) {
                const std::int64_t position = positions.at(data, batch, token, axis);
                if (range.has(position) ||
                    (tokens != nullptr && !tokens->holds(tokens->context, batch * positions.n_tokens + token))) {
                    continue;
                }
                const TokenNumbers::Name of = positions.name_of(batch, token);
                const bool has_axes = n_axes > 1;
                return fail(error, HALYARD_ERROR_POSITION, name, has_axes ? "[axis " : "[",
                            has_axes ? Part(axis) : Part(""), has_axes ? ", batch " : "batch ", of.batch, ", token ",
                            of.token, "] is ", position, ", but ", range.whose, range.first, " to ", range.last);
            }
        }
    }
    return HALYARD_OK;
}

Positions positions_in_order(std::int64_t n_batch, std::int64_t n_tokens) noexcept {
    Positions positions = {};
    positions.n_batch = n_batch;
    positions.n_tokens = n_tokens;
    positions.is_consecutive = true;
    positions.join_one_token_rows();
    return positions;
}

halyard_status bind_positions(const halyard_positions *given, std::int64_t n_batch, std::int64_t n_tokens,
                              std::int32_t n_axes, const char *name, Positions *out, halyard_error *error) noexcept {
    if (given == nullptr && n_batch > 1 && n_tokens == 1) {
        return fail(error, HALYARD_ERROR_MISMATCH, name, " is NULL, but each of ", n_batch,
                    " sequences has one token: name each sequence's position, or a start");
    }
    if (given == nullptr) {
        *out = positions_in_order(n_batch, n_tokens);
        return HALYARD_OK;
    }
    *out = {};
    HALYARD_TRY(check_struct(given, name, error));
    if (given->data == nullptr && given->shape[0] != 0 && given->shape[1] != 0) {
        return fail(error, HALYARD_ERROR_NULL_POINTER, name, ".data is NULL");
    }
    HALYARD_TRY(read_type_and_strides(*given, n_batch, n_tokens, name, out, error));
    HALYARD_TRY(check_shape(*given, n_batch, n_tokens, n_axes, name, error));
    const std::int64_t own_axes = given->n_axes > 1 ? n_axes : 1;
    const std::int64_t shape[] = {given->shape[0], given->shape[1], own_axes};
    const std::int64_t strides[] = {given->strides[0], given->strides[1], given->stride_axis};
    const bool is_empty = shape[0] == 0 || shape[1] == 0;
    bool unused = false;
    if (!is_empty && !find_reach(shape, strides, out->element_bytes(), &out->reach, &unused)) {
        return fail(error, HALYARD_ERROR_OVERFLOW, name, " of shape {", shape[0], ", ", shape[1], "}, strides {",
                    strides[0], ", ", strides[1], "}, n_axes ", n_axes, " and stride_axis ", strides[2],
                    " leave the address space");
    }
    out->stride_axis = own_axes > 1 ? strides[2] : 0;
    out->join_one_token_rows();
    return HALYARD_OK;
}

void set_positions_to_rows(bool is_shared, Positions &positions) noexcept {
    const std::int64_t stride = is_shared ? 0 : positions.one_token_rows ? 1 : positions.n_tokens;
    (positions.one_token_rows ? positions.stride_token : positions.stride_batch) = stride;
}

}  // namespace halyard

#include "angles/positions.h"

#include "base/error.h"
#include "base/versioned.h"

#include <cstdint>

namespace halyard {

halyard_status check_within(const PositionRange &range, const CheckedPositions &positions, std::int32_t n_axes,
                            const Tokens &tokens, const char *name, halyard_error *error) noexcept {
    const auto &[n_batch, n_tokens, slots] = tokens;
    if (n_batch == 0 || n_tokens == 0) {
        return HALYARD_OK;
    }
    // Of batch rows that share their positions, some may not write a token that others write.
    const std::int64_t n_distinct = positions.stride_batch == 0 && slots == nullptr ? 1 : n_batch;
    for (std::int64_t i = 0; i < n_axes * n_distinct; ++i) {
        const auto axis = static_cast<std::int32_t>(i / n_distinct);
        const std::int64_t batch = i % n_distinct;
        // A range that holds both ends of consecutive positions holds them all.
        if (positions.consecutive && range.has(positions.at(batch, 0, axis)) &&
            range.has(positions.at(batch, n_tokens - 1, axis))) {
            continue;
        }
        for (std::int64_t token = 0; token < n_tokens; ++token) {
            const std::int64_t position = positions.at(batch, token, axis);
            if (!range.has(position) && tokens.are_written(batch, token)) {
                const bool has_axes = n_axes > 1;
                return fail(error, HALYARD_ERROR_POSITION, name, has_axes ? "[axis " : "[",
                            has_axes ? Part(axis) : Part(""), has_axes ? ", batch " : "batch ", batch, ", token ",
                            token, "] is ", position, ", but ", range.whose, range.first, " to ", range.last);
            }
        }
    }
    return HALYARD_OK;
}

halyard_status read_positions(const halyard_positions *positions, std::int64_t n_batch, std::int64_t n_tokens,
                              std::int32_t n_axes, CheckedPositions *out, halyard_error *error,
                              const char *name) noexcept {
    if (positions == nullptr && n_batch > 1 && n_tokens == 1) {
        return fail(error, HALYARD_ERROR_MISMATCH, name, " is NULL, but each of ", n_batch,
                    " sequences has one token: name each sequence's position, or a start");
    }
    if (positions == nullptr) {
        *out = positions_in_order;
        return HALYARD_OK;
    }
    out->memory.begin = out->memory.end = 0;
    HALYARD_TRY(check_struct(positions, name, error));
    const halyard_positions &read = *positions;
    if (read.data == nullptr && read.shape[0] != 0 && read.shape[1] != 0) {
        return fail(error, HALYARD_ERROR_NULL_POINTER, name, ".data is NULL");
    }
    HALYARD_TRY(read_form(read, name, out, error));
    const std::int64_t n_columns = read.consecutive != 0 ? 1 : n_tokens;
    if (read.shape[0] < 0 || read.shape[1] < 0) {
        return fail(error, HALYARD_ERROR_SHAPE, name, ".shape is {", read.shape[0], ", ", read.shape[1],
                    "}, but neither may be negative");
    }
    if ((read.shape[0] != 1 && read.shape[0] != n_batch) || read.shape[1] != n_columns) {
        return fail(error, HALYARD_ERROR_SHAPE, name, ".shape is {", read.shape[0], ", ", read.shape[1],
                    n_batch == 1 ? "}, but it must be {" : "}, but it must be {1 or ", n_batch, ", ", n_columns,
                    "}, batch and tokens, on ", n_axes == 1 ? "the one axis that there is" : "every axis");
    }
    if (read.n_axes != n_axes && read.n_axes != 0 && read.n_axes != 1) {
        return fail(error, HALYARD_ERROR_SHAPE, name, ".n_axes is ", read.n_axes, ", but it must be ", n_axes,
                    n_axes > 1 ? ", or 1 where all axes are equal" : "");
    }
    const std::int64_t own_axes = read.n_axes > 1 ? n_axes : 1;
    const std::int64_t shape[] = {read.shape[0], read.shape[1], own_axes};
    const std::int64_t strides[] = {read.strides[0], read.strides[1], read.stride_axis};
    const bool is_empty = read.shape[0] == 0 || read.shape[1] == 0;
    const bool is_single = read.shape[0] == 1 && read.shape[1] == 1 && own_axes == 1;  // a decoding step's
    if (is_single) {
        out->memory.begin = reinterpret_cast<std::uintptr_t>(read.data);
        out->memory.end = out->memory.begin + static_cast<std::uintptr_t>(out->element_bytes());
    } else if (!is_empty && !find_memory_range(read.data, shape, strides, out->element_bytes(), &out->memory)) {
        return fail(error, HALYARD_ERROR_OVERFLOW, name, " of shape {", read.shape[0], ", ", read.shape[1],
                    "}, strides {", read.strides[0], ", ", read.strides[1], "}, n_axes ", n_axes, " and stride_axis ",
                    read.stride_axis, " leave the address space");
    }
    out->stride_axis = own_axes > 1 ? read.stride_axis : 0;
    return HALYARD_OK;
}

}  // namespace halyard

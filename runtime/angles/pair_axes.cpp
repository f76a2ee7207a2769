#include "angles/pair_axes.h"

#include "base/error.h"

#include <algorithm>
#include <cstddef>
#include <new>

namespace halyard {

namespace {

/// Checks axis_counts of HALYARD_AXIS_MAP_SECTIONS or _INTERLEAVED.
halyard_status check_counts(const halyard_angle_source_desc &desc, std::int64_t n_pairs, halyard_error *error) {
    std::int64_t sum = 0;
    for (std::int32_t axis = 0; axis < desc.n_axes; ++axis) {
        const std::int64_t count = desc.axis_counts[axis];
        if (count < 0 || count > n_pairs) {
            return fail(error, HALYARD_ERROR_SHAPE, "desc.axis_counts[", axis, "] is ", count, ", but it must be 0 to ",
                        n_pairs);
        }
        sum += count;
    }
    if (sum != n_pairs) {
        return fail(error, HALYARD_ERROR_SHAPE, "desc.axis_counts add up to ", sum, ", but rotary_dim / 2 is ",
                    n_pairs);
    }
    for (std::int32_t axis = 1; axis < desc.n_axes && desc.axis_map == HALYARD_AXIS_MAP_INTERLEAVED; ++axis) {
        const std::int64_t most = (n_pairs - axis + desc.n_axes - 1) / desc.n_axes;
        if (desc.axis_counts[axis] > most) {
            return fail(error, HALYARD_ERROR_SHAPE, "desc.axis_counts[", axis, "] is ", desc.axis_counts[axis],
                        ", but of ", n_pairs, " pairs taken in turns by ", desc.n_axes, " axes, axis ", axis, " has ",
                        most);
        }
    }
    return HALYARD_OK;
}

halyard_status check_list(const halyard_angle_source_desc &desc, std::int64_t n_pairs, halyard_error *error) {
    HALYARD_TRY(check_given(desc.axis_of_pair, "desc.axis_of_pair", error));
    for (std::int64_t pair = 0; pair < n_pairs; ++pair) {
        if (desc.axis_of_pair[pair] < 0 || desc.axis_of_pair[pair] >= desc.n_axes) {
            return fail(error, HALYARD_ERROR_SHAPE, "desc.axis_of_pair[", pair, "] is ", desc.axis_of_pair[pair],
                        ", but it must be 0 to ", desc.n_axes - 1);
        }
    }
    return HALYARD_OK;
}

std::int32_t axis_of_pair(const halyard_angle_source_desc &desc, std::int64_t pair) {
    std::int32_t axis = 0;
    switch (desc.axis_map) {
    case HALYARD_AXIS_MAP_SECTIONS:
        for (std::int64_t end = desc.axis_counts[0]; pair >= end; end += desc.axis_counts[axis]) {
            ++axis;
        }
        return axis;
    case HALYARD_AXIS_MAP_INTERLEAVED:
        axis = static_cast<std::int32_t>(pair % desc.n_axes);
        return pair < desc.n_axes * desc.axis_counts[axis] ? axis : 0;
    default: return desc.axis_of_pair[pair];
    }
}

/// Finds the span of an axis' pairs, and lists the pairs in own.
PairAxes::Span find_span(const PairAxes &axes, std::int32_t axis, std::int64_t n_pairs, std::int32_t *own) {
    PairAxes::Span span = {n_pairs, 0, true, own, 0};
    for (std::int64_t pair = 0; pair < n_pairs; ++pair) {
        if (axes.of(pair) == axis) {
            span.first = std::min(span.first, pair);
            span.last = pair + 1;
            own[span.n_own++] = static_cast<std::int32_t>(pair);
        }
    }
    for (std::int64_t pair = span.first; pair < span.last; ++pair) {
        span.comes_first = span.comes_first && axes.of(pair) >= axis;
    }
    return span;
}

}  // namespace

halyard_status read_pair_axes(const halyard_angle_source_desc &desc, std::int64_t n_pairs, PairAxes *out,
                              halyard_error *error) noexcept {
    if (desc.axis_map < HALYARD_AXIS_MAP_NONE || desc.axis_map > HALYARD_AXIS_MAP_LIST) {
        return fail(error, HALYARD_ERROR_UNKNOWN_VALUE, "desc.axis_map is ", desc.axis_map, ", which is no axis map");
    }
    const bool has_map = desc.axis_map != HALYARD_AXIS_MAP_NONE;
    if (desc.n_axes < (has_map ? 1 : 0) || desc.n_axes > (has_map ? HALYARD_MAX_AXES : 1)) {
        return fail(error, HALYARD_ERROR_SHAPE, "desc.n_axes is ", desc.n_axes, ", but it must be ",
                    has_map ? "1 to 4" : "0 or 1 without an axis map");
    }
    if (!has_map) {
        return HALYARD_OK;
    }
    const bool is_list = desc.axis_map == HALYARD_AXIS_MAP_LIST;
    HALYARD_TRY(is_list ? check_list(desc, n_pairs, error) : check_counts(desc, n_pairs, error));
    if (desc.n_axes == 1) {
        return HALYARD_OK;
    }
    out->n_axes = desc.n_axes;
    out->of_pair.reset(new (std::nothrow) std::uint8_t[static_cast<std::size_t>(n_pairs)]);
    out->by_axis.reset(new (std::nothrow) std::int32_t[static_cast<std::size_t>(n_pairs)]);
    if (out->of_pair == nullptr || out->by_axis == nullptr) {
        return fail(error, HALYARD_ERROR_OUT_OF_MEMORY, "no memory for the axes of ", n_pairs, " pairs");
    }
    for (std::int64_t pair = 0; pair < n_pairs; ++pair) {
        out->of_pair.get()[pair] = static_cast<std::uint8_t>(axis_of_pair(desc, pair));
    }
    std::int32_t *own = out->by_axis.get();
    for (std::int32_t axis = 0; axis < desc.n_axes; ++axis) {
        out->spans[axis] = find_span(*out, axis, n_pairs, own);
        own += out->spans[axis].n_own;
    }
    return HALYARD_OK;
}

}  // namespace halyard

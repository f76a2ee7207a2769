#include "angles/angle_source.h"

#include "base/error.h"
#include "base/versioned.h"

#include <cstdint>
#include <cstring>

using namespace halyard;

namespace {

halyard_status fail_position(const halyard_angle_source &source, std::int64_t position, std::int32_t axis,
                             std::int64_t batch, std::int64_t token, halyard_error *error) noexcept {
    char where[96];
    Sentence sentence(where, sizeof(where));
    sentence.add("positions[");
    if (source.axes.n_axes > 1) {
        sentence.add("axis ");
        sentence.add(axis);
        sentence.add(", ");
    }
    sentence.add("batch ");
    sentence.add(batch);
    sentence.add(", token ");
    sentence.add(token);
    sentence.add("]");
    return fail(error, HALYARD_ERROR_POSITION, where, " is ", position, ", but the angle source covers ", source.first,
                " to ", source.last);
}

}  // namespace

halyard_status halyard::check_positions(const halyard_angle_source &source, const CheckedPositions &positions,
                                        BadPosition bad_position, std::int64_t n_batch, std::int64_t n_tokens,
                                        halyard_error *error) noexcept {
    if (bad_position != BadPosition::error || n_batch == 0 || n_tokens == 0) {
        return HALYARD_OK;
    }
    const std::int64_t n_distinct = positions.stride_batch == 0 ? 1 : n_batch;
    for (std::int64_t i = 0; i < source.axes.n_axes * n_distinct; ++i) {
        const auto axis = static_cast<std::int32_t>(i / n_distinct);
        const std::int64_t batch = i % n_distinct;
        // A range that holds both ends of consecutive positions holds them all.
        if (positions.consecutive && source.covers(positions.at(batch, 0, axis)) &&
            source.covers(positions.at(batch, n_tokens - 1, axis))) {
            continue;
        }
        for (std::int64_t token = 0; token < n_tokens; ++token) {
            const std::int64_t position = positions.at(batch, token, axis);
            if (!source.covers(position)) {
                return fail_position(source, position, axis, batch, token, error);
            }
        }
    }
    return HALYARD_OK;
}

const char *halyard::find_difference(const halyard_angle_source &a, const halyard_angle_source &b) noexcept {
    const auto n_pairs = static_cast<std::size_t>(a.rotary_dim / 2);
    const bool same_axes =
        a.axes.n_axes == b.axes.n_axes && a.rotary_dim == b.rotary_dim &&
        (a.axes.n_axes == 1 || std::memcmp(a.axes.of_pair.get(), b.axes.of_pair.get(), n_pairs) == 0);
    return a.kind != AngleKind::given || b.kind != AngleKind::given ? "kind"
           : a.rotary_dim != b.rotary_dim                           ? "rotary_dim"
           : a.rows_dtype != b.rows_dtype                           ? "rows_dtype"
           : a.n_rows != b.n_rows                                   ? "n_rows"
           : a.first != b.first                                     ? "first"
           : a.stride_row != b.stride_row                           ? "stride_row"
           : a.by_token != b.by_token || a.is_shared != b.is_shared ? "by_token"
           : same_axes                                              ? nullptr
                                                                    : "axis_map";
}

extern "C" halyard_status halyard_get_angle_source_info(const halyard_angle_source *source,
                                                        halyard_angle_source_info *info, halyard_error *error) {
    HALYARD_TRY(check_error(error));
    HALYARD_TRY(check_given(source, "source", error));
    halyard_angle_source_info value = {};
    value.kind = static_cast<std::int32_t>(source->kind);
    value.rotary_dim = source->rotary_dim;
    value.first = source->first;
    value.last = source->last;
    value.n_rows = source->n_rows;
    value.bytes = source->bytes;
    return write_struct(value, "info", info, error);
}

#include "angles/angle_source.h"

#include "base/error.h"
#include "base/versioned.h"

#include <cstdint>
#include <cstring>

using namespace halyard;

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

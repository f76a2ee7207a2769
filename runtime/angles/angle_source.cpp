// Makes angle sources, from frequencies or from the caller's own rows, and fills in their info.
#include "angles/angle_source.h"
#include "angles/tables.h"
#include "base/error.h"
#include "base/versioned.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <memory>
#include <new>
#include <optional>

using namespace halyard;

namespace {

/// If a description has no axis map, sets it to that of the frequencies' config. frequencies may be NULL.
halyard_status set_default_axes(const halyard_frequencies *frequencies, halyard_angle_source_desc &desc,
                                halyard_error *error) noexcept {
    if (desc.axis_map != 0) {
        return HALYARD_OK;
    }
    if (desc.n_axes != 0) {
        return fail(error, HALYARD_ERROR_MISMATCH, "desc.n_axes is ", desc.n_axes, ", but desc.axis_map is not set");
    }
    desc.axis_map = HALYARD_AXIS_MAP_NONE;
    if (frequencies != nullptr) {
        const halyard_frequencies_info &about = frequencies->about;
        desc.axis_map = about.axis_map;
        desc.n_axes = about.n_axes;
        std::copy(std::begin(about.axis_counts), std::end(about.axis_counts), desc.axis_counts);
    }
    return HALYARD_OK;
}

/// The kind of source that is made: for AUTO, a table if it is small enough, else phase.
AngleKind resolve_kind(const halyard_frequencies &frequencies, const halyard_angle_source_desc &desc) noexcept {
    if (desc.kind != HALYARD_ANGLES_AUTO) {
        return AngleKind(desc.kind);
    }
    constexpr std::int64_t most_floats = (64 << 20) / sizeof(float);
    const bool needs_table = desc.reference != HALYARD_REFERENCE_EXACT;
    const bool fits = desc.n_positions * 2 * frequencies.n_pairs <= most_floats;
    return needs_table || fits ? AngleKind::table : AngleKind::phase;
}

halyard_status make_from_frequencies(const halyard_frequencies *frequencies, const halyard_angle_source_desc &desc,
                                     halyard_angle_source &source, halyard_error *error) noexcept {
    HALYARD_TRY(check_given(frequencies, "frequencies", error));
    const std::int64_t most = std::int64_t{1} + INT32_MAX - desc.first;
    if (desc.n_positions < 1 || desc.n_positions > most) {
        return fail(error, HALYARD_ERROR_POSITION, "desc.n_positions is ", desc.n_positions, ", but must be 1 to ",
                    most, " where desc.first is ", desc.first);
    }
    source.kind = resolve_kind(*frequencies, desc);
    source.rotary_dim = 2 * frequencies->n_pairs;
    source.first = desc.first;
    source.last = desc.first + desc.n_positions - 1;
    source.reference = Reference(desc.reference);
    HALYARD_TRY(read_pair_axes(desc, source.rotary_dim / 2, &source.axes, error));
    if (desc.reference != HALYARD_REFERENCE_EXACT && source.kind != AngleKind::table) {
        return fail(error, HALYARD_ERROR_MISMATCH,
                    "desc.reference is HALYARD_REFERENCE_HF_F32, which HALYARD_ANGLES_PHASE cannot reproduce");
    }
    if (source.kind == AngleKind::table) {
        HALYARD_TRY(make_table(*frequencies, source, error));
    }
    return desc.reference == HALYARD_REFERENCE_EXACT ? make_turns(*frequencies, source, error) : HALYARD_OK;
}

halyard_status use_given_rows(const halyard_angle_source_desc &desc, halyard_angle_source &source,
                              halyard_error *error) noexcept {
    HALYARD_TRY(check_given(desc.cos_rows, "desc.cos_rows", error));
    HALYARD_TRY(check_given(desc.sin_rows, "desc.sin_rows", error));
    const std::optional<Dtype> rows_dtype = desc.rows_dtype == 0 ? Dtype::f32 : to_dtype(desc.rows_dtype);
    HALYARD_TRY(check_fields(
        "desc",
        {{desc.rotary_dim < 2 || desc.rotary_dim > max_rotary_dim || desc.rotary_dim % 2 != 0, HALYARD_ERROR_ROTARY_DIM,
          "rotary_dim", desc.rotary_dim, ", but it must be even and in 2 to ", max_rotary_dim},
         {desc.n_rows < 1, HALYARD_ERROR_SHAPE, "n_rows", desc.n_rows, ", but it must be at least 1"},
         {desc.stride_row < desc.rotary_dim / 2, HALYARD_ERROR_SHAPE, "stride_row", desc.stride_row,
          ", but rows of rotary_dim ", desc.rotary_dim, " need at least ", desc.rotary_dim / 2},
         {!is_input_dtype(rows_dtype), HALYARD_ERROR_UNKNOWN_VALUE, "rows_dtype", desc.rows_dtype,
          ", which is no dtype", rows_dtype ? " of rows" : ""}},
        error));
    if (desc.n_rows > max_rows) {
        return fail_too_many_rows(desc.n_rows, error);
    }
    source.kind = AngleKind::given;
    source.rows_dtype = *rows_dtype;
    source.by_token = desc.by_token != 0;
    source.is_shared = desc.by_token == 2;
    source.rotary_dim = desc.rotary_dim;
    source.last = desc.n_rows - 1;
    source.n_rows = desc.n_rows;
    source.stride_row = desc.stride_row;
    source.cos_rows = desc.cos_rows;
    source.sin_rows = desc.sin_rows;
    if (!find_rows_memory(source)) {
        return fail(error, HALYARD_ERROR_OVERFLOW, "desc.n_rows is ", desc.n_rows, " with a desc.stride_row of ",
                    desc.stride_row, ": the rows leave the address space");
    }
    return read_pair_axes(desc, source.rotary_dim / 2, &source.axes, error);
}

}  // namespace

extern "C" halyard_status halyard_create_angle_source(const halyard_frequencies *frequencies,
                                                      const halyard_angle_source_desc *desc, halyard_angle_source **out,
                                                      halyard_error *error) {
    HALYARD_TRY(check_error_size(error));
    HALYARD_TRY(check_given(out, "out", error));
    halyard_angle_source_desc read = {};
    HALYARD_TRY(read_struct(desc, "desc", &read, error));
    const bool is_given = read.kind == HALYARD_ANGLES_GIVEN;
    HALYARD_TRY(
        check_fields("desc",
                     {{read.kind < HALYARD_ANGLES_AUTO || read.kind > HALYARD_ANGLES_PHASE, HALYARD_ERROR_UNKNOWN_VALUE,
                       "kind", read.kind, ", but it must be HALYARD_ANGLES_AUTO (0) to HALYARD_ANGLES_PHASE (3)"},
                      {read.by_token < 0 || read.by_token > (is_given ? 2 : 0), HALYARD_ERROR_UNKNOWN_VALUE, "by_token",
                       read.by_token, ", but it must be 0", is_given ? " to 2" : " where rows are not given"},
                      {read.reference < HALYARD_REFERENCE_EXACT || read.reference > HALYARD_REFERENCE_HF_F32,
                       HALYARD_ERROR_UNKNOWN_VALUE, "reference", read.reference, ", which is no reference"}},
                     error));
    HALYARD_TRY(set_default_axes(is_given ? nullptr : frequencies, read, error));
    std::unique_ptr<halyard_angle_source> result(new (std::nothrow) halyard_angle_source);
    if (result == nullptr) {
        return fail(error, HALYARD_ERROR_OUT_OF_MEMORY, "no memory for an angle source");
    }
    HALYARD_TRY(is_given ? use_given_rows(read, *result, error)
                         : make_from_frequencies(frequencies, read, *result, error));
    result->bytes += result->axes.n_bytes(result->rotary_dim / 2);
    result->is_direct = result->has_rows() && result->rows_dtype == Dtype::f32 && result->axes.n_axes == 1;
    *out = result.release();
    return HALYARD_OK;
}

extern "C" void halyard_destroy_angle_source(halyard_angle_source *source) { delete source; }

extern "C" halyard_status halyard_get_angle_source_info(const halyard_angle_source *source,
                                                        halyard_angle_source_info *info, halyard_error *error) {
    HALYARD_TRY(check_error_size(error));
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

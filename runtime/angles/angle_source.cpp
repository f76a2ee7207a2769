// Angle sources: what they are made of, and which positions they cover.
#include "angles/tables.h"
#include "base/error.h"
#include "rotate/rows.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>

using namespace halyard;

namespace {

/// How far apart two positions are, a <= b; never overflows.
std::uint64_t distance(std::int64_t a, std::int64_t b) noexcept {
    return static_cast<std::uint64_t>(b) - static_cast<std::uint64_t>(a);
}

halyard_status read_axes(const halyard_angle_source_desc &desc, halyard_angle_source &source,
                         halyard_error *error) noexcept {
    if (desc.axis_map < HALYARD_AXIS_MAP_NONE || desc.axis_map > HALYARD_AXIS_MAP_INTERLEAVED) {
        return fail(error, HALYARD_ERROR_UNKNOWN_VALUE, "desc.axis_map is ", desc.axis_map, ", which is no axis map");
    }
    const bool has_map = desc.axis_map != HALYARD_AXIS_MAP_NONE;
    if (desc.n_axes < (has_map ? 1 : 0) || desc.n_axes > (has_map ? HALYARD_MAX_AXES : 1)) {
        return fail(error, HALYARD_ERROR_SHAPE, "desc.n_axes is ", desc.n_axes, ", but it must be ",
                    has_map ? "1 to 4" : "0 or 1 without an axis map");
    }
    const std::int64_t n_pairs = source.rotary_dim / 2;
    std::int64_t sum = 0;
    for (std::int32_t axis = 0; has_map && axis < desc.n_axes; ++axis) {
        const std::int64_t count = desc.axis_counts[axis];
        if (count < 0 || count > n_pairs) {
            return fail(error, HALYARD_ERROR_SHAPE, "desc.axis_counts[", axis, "] is ", count, ", but it must be 0 to ",
                        n_pairs);
        }
        sum += count;
        source.axes.counts[axis] = count;
    }
    if (has_map && sum != n_pairs) {
        return fail(error, HALYARD_ERROR_SHAPE, "desc.axis_counts add up to ", sum, ", but rotary_dim / 2 is ",
                    n_pairs);
    }
    if (desc.axis_map == HALYARD_AXIS_MAP_INTERLEAVED) {
        for (std::int32_t axis = 1; axis < desc.n_axes; ++axis) {
            if (desc.n_axes * (desc.axis_counts[axis] - 1) + axis >= n_pairs) {
                return fail(error, HALYARD_ERROR_SHAPE, "desc.axis_counts[", axis, "] is ", desc.axis_counts[axis],
                            ", but every ", desc.n_axes, "th of ", n_pairs, " pairs is fewer");
            }
        }
    }
    source.axes.kind = desc.n_axes > 1 ? desc.axis_map : HALYARD_AXIS_MAP_NONE;
    source.axes.n_axes = has_map ? desc.n_axes : 1;
    return HALYARD_OK;
}

/// What AUTO stands for. The rows of a list are as many as the caller asks for.
std::int32_t resolve_kind(const halyard_frequencies &frequencies, const halyard_angle_source_desc &desc) noexcept {
    if (desc.kind != HALYARD_ANGLES_AUTO) {
        return desc.kind;
    }
    constexpr std::int64_t most_floats = (64 << 20) / sizeof(float);
    const std::int64_t n_rows = static_cast<std::int64_t>(desc.last) - desc.first + 1;
    const bool needs_table = desc.listed != nullptr || desc.reference != HALYARD_REFERENCE_EXACT;
    return needs_table || n_rows * 2 * frequencies.n_pairs <= most_floats ? HALYARD_ANGLES_TABLE : HALYARD_ANGLES_PHASE;
}

halyard_status make_from_frequencies(const halyard_frequencies *frequencies, const halyard_angle_source_desc &desc,
                                     halyard_angle_source &source, halyard_error *error) noexcept {
    if (frequencies == nullptr) {
        return fail_null(error, "frequencies");
    }
    if (desc.last < desc.first) {
        return fail(error, HALYARD_ERROR_POSITION, "desc.last is ", desc.last, ", before desc.first, which is ",
                    desc.first);
    }
    source.kind = resolve_kind(*frequencies, desc);
    source.rotary_dim = 2 * frequencies->n_pairs;
    source.first = desc.first;
    source.last = desc.last;
    if (const halyard_status status = read_axes(desc, source, error)) {
        return status;
    }
    if (source.kind == HALYARD_ANGLES_TABLE) {
        return make_table(*frequencies, desc, source, error);
    }
    const char *const name = source.kind == HALYARD_ANGLES_PHASE ? "PHASE" : "FACTORED";
    if (desc.listed != nullptr) {
        return fail(error, HALYARD_ERROR_MISMATCH, "desc.listed is given, but HALYARD_ANGLES_", name, " lists nothing");
    }
    if (desc.reference != HALYARD_REFERENCE_EXACT) {
        return fail(error, HALYARD_ERROR_MISMATCH, "desc.reference is HALYARD_REFERENCE_HF_F32, which HALYARD_ANGLES_",
                    name, " cannot reproduce");
    }
    return source.kind == HALYARD_ANGLES_PHASE ? make_phase(*frequencies, source, error)
                                               : make_factored(*frequencies, source, error);
}

halyard_status use_given(const halyard_angle_source_desc &desc, halyard_angle_source &source,
                         halyard_error *error) noexcept {
    if (desc.cos_rows == nullptr) {
        return fail_null(error, "desc.cos_rows");
    }
    if (desc.sin_rows == nullptr) {
        return fail_null(error, "desc.sin_rows");
    }
    if (desc.rotary_dim < 2 || desc.rotary_dim > max_rotary_dim || desc.rotary_dim % 2 != 0) {
        return fail(error, HALYARD_ERROR_ROTARY_DIM, "desc.rotary_dim is ", desc.rotary_dim,
                    ", but it must be even and in 2 to ", max_rotary_dim);
    }
    if (desc.n_rows > max_rows) {
        return fail_rows(desc.n_rows, error);
    }
    if (desc.n_rows < 1) {
        return fail(error, HALYARD_ERROR_SHAPE, "desc.n_rows is ", desc.n_rows, ", but it must be at least 1");
    }
    if (desc.stride_row < desc.rotary_dim / 2) {
        return fail(error, HALYARD_ERROR_SHAPE, "desc.stride_row is ", desc.stride_row, ", but rows of rotary_dim ",
                    desc.rotary_dim, " need at least ", desc.rotary_dim / 2);
    }
    if (element_bytes(desc.rows_dtype) == 0) {
        return fail(error, HALYARD_ERROR_UNKNOWN_VALUE, "desc.rows_dtype is ", desc.rows_dtype, ", which is no dtype");
    }
    source.kind = HALYARD_ANGLES_GIVEN;
    source.rows_dtype = desc.rows_dtype;
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
    return read_axes(desc, source, error);
}

}  // namespace

std::int32_t halyard_angle_source::find_other_row(std::int64_t position, std::int32_t bad_position) const noexcept {
    if (listed != nullptr) {
        const std::int32_t *const begin = listed.get();
        const std::int32_t *const end = begin + n_listed;
        const std::int32_t *const above = std::lower_bound(begin, end, position);
        if (above != end && *above == position) {
            return static_cast<std::int32_t>(above - begin);
        }
        if (bad_position == HALYARD_BAD_POSITION_CLAMP && n_listed > 0) {
            if (above == end) {
                return static_cast<std::int32_t>(n_listed - 1);
            }
            const bool lower_is_nearer = above != begin && distance(above[-1], position) <= distance(position, *above);
            return static_cast<std::int32_t>((lower_is_nearer ? above - 1 : above) - begin);
        }
    } else if (bad_position == HALYARD_BAD_POSITION_CLAMP) {
        return position < first ? 0 : static_cast<std::int32_t>(last - first);
    }
    return bad_position == HALYARD_BAD_POSITION_ERROR ? -1 : identity_row;
}

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
    if (source.listed != nullptr) {
        return fail(error, HALYARD_ERROR_POSITION, where, " is ", position, ", which is none of the ", source.n_listed,
                    " positions that the angle source lists");
    }
    return fail(error, HALYARD_ERROR_POSITION, where, " is ", position, ", but the angle source covers ", source.first,
                " to ", source.last);
}

}  // namespace

halyard_status halyard::check_positions(const halyard_angle_source &source, const Positions &positions,
                                        std::int32_t bad_position, std::int64_t n_batch, std::int64_t n_tokens,
                                        halyard_error *error) noexcept {
    if (bad_position != HALYARD_BAD_POSITION_ERROR || n_batch == 0 || n_tokens == 0) {
        return HALYARD_OK;
    }
    const std::int64_t n_distinct = positions.stride_batch == 0 ? 1 : n_batch;
    for (std::int64_t i = 0; i < source.axes.n_axes * n_distinct; ++i) {
        const auto axis = static_cast<std::int32_t>(i / n_distinct);
        const std::int64_t batch = i % n_distinct;
        // A range that holds both ends of consecutive positions holds them all.
        if (positions.consecutive && source.listed == nullptr && source.covers(positions.at(batch, 0, axis)) &&
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

extern "C" halyard_status halyard_create_angle_source(const halyard_frequencies *frequencies,
                                                      const halyard_angle_source_desc *desc, halyard_angle_source **out,
                                                      halyard_error *error) {
    if (out == nullptr) {
        return fail_null(error, "out");
    }
    halyard_angle_source_desc read = {};
    halyard_status status = read_struct(desc, sizeof(read), "desc", &read, error);
    if (status != HALYARD_OK) {
        return status;
    }
    if (read.kind < HALYARD_ANGLES_AUTO || read.kind > HALYARD_ANGLES_PHASE) {
        return fail(error, HALYARD_ERROR_UNKNOWN_VALUE, "desc.kind is ", read.kind,
                    ", but it must be HALYARD_ANGLES_AUTO (0) to HALYARD_ANGLES_PHASE (4)");
    }
    if (read.reference != HALYARD_REFERENCE_EXACT && read.reference != HALYARD_REFERENCE_HF_F32) {
        return fail(error, HALYARD_ERROR_UNKNOWN_VALUE, "desc.reference is ", read.reference,
                    ", which is no reference");
    }
    std::unique_ptr<halyard_angle_source> result(new (std::nothrow) halyard_angle_source);
    if (result == nullptr) {
        return fail(error, HALYARD_ERROR_OUT_OF_MEMORY, "no memory for an angle source");
    }
    status = read.kind == HALYARD_ANGLES_GIVEN ? use_given(read, *result, error)
                                               : make_from_frequencies(frequencies, read, *result, error);
    if (status == HALYARD_OK) {
        const bool has_rows = result->kind == HALYARD_ANGLES_TABLE || result->kind == HALYARD_ANGLES_GIVEN;
        result->is_direct = has_rows && result->rows_dtype == HALYARD_F32 && result->axes.n_axes == 1;
        *out = result.release();
    }
    return status;
}

extern "C" halyard_status halyard_get_angle_source_info(const halyard_angle_source *source,
                                                        halyard_angle_source_info *info, halyard_error *error) {
    if (source == nullptr) {
        return fail_null(error, "source");
    }
    halyard_angle_source_info value = {};
    value.kind = source->kind;
    value.rotary_dim = source->rotary_dim;
    value.first = source->first;
    value.last = source->last;
    value.n_rows = source->n_rows;
    value.bytes = source->bytes;
    return write_struct(value, sizeof(value), "info", info, error);
}

extern "C" void halyard_destroy_angle_source(halyard_angle_source *source) { delete source; }

extern "C" halyard_status halyard_make_rows(const halyard_angle_source *source, const halyard_positions *positions,
                                            int32_t bad_position, int64_t n_batch, int64_t n_tokens, float *rows,
                                            int64_t n_floats, halyard_error *error) {
    if (source == nullptr) {
        return fail_null(error, "source");
    }
    if (rows == nullptr && n_batch != 0 && n_tokens != 0) {
        return fail_null(error, "rows");
    }
    if (bad_position < HALYARD_BAD_POSITION_ERROR || bad_position > HALYARD_BAD_POSITION_IDENTITY) {
        return fail(error, HALYARD_ERROR_UNKNOWN_VALUE, "bad_position is ", bad_position,
                    ", but it must be HALYARD_BAD_POSITION_ERROR (0), _CLAMP (1) or _IDENTITY (2)");
    }
    if (n_batch < 0 || n_tokens < 0) {
        return fail(error, HALYARD_ERROR_SHAPE, "n_batch is ", n_batch, " and n_tokens is ", n_tokens,
                    ", but neither may be negative");
    }
    Positions checked;
    halyard_status status = read_positions(positions, n_batch, n_tokens, source->axes.n_axes, &checked, error);
    if (status != HALYARD_OK) {
        return status;
    }
    std::int64_t n_needed = 0;
    MemoryRange written = {0, 0};
    const bool is_empty = n_batch == 0 || n_tokens == 0;
    const std::int64_t dense[] = {1};
    if (!is_empty && (__builtin_mul_overflow(n_tokens, source->rotary_dim, &n_needed) ||
                      __builtin_mul_overflow(n_batch, n_needed, &n_needed) ||
                      !find_memory_range<1>(rows, {n_needed}, dense, sizeof(float), &written))) {
        return fail(error, HALYARD_ERROR_OVERFLOW, "the rows of ", n_batch, " x ", n_tokens, " tokens of rotary_dim ",
                    source->rotary_dim, " leave the address space");
    }
    if (n_floats < n_needed) {
        return fail(error, HALYARD_ERROR_SHAPE, "n_floats is ", n_floats, ", but the rows need ", n_needed);
    }
    if (written.overlaps(source->cos_memory) || written.overlaps(source->sin_memory)) {
        return fail(error, HALYARD_ERROR_OVERLAP, "rows shares memory with the rows of the angle source");
    }
    if (written.overlaps(checked.memory)) {
        return fail(error, HALYARD_ERROR_OVERLAP, "rows shares memory with positions.data");
    }
    status = check_positions(*source, checked, bad_position, n_batch, n_tokens, error);
    if (status != HALYARD_OK) {
        return status;
    }
    TargetSet allowed = 0;
    status = allowed_targets(nullptr, nullptr, &allowed, error);
    if (status != HALYARD_OK) {
        return status;
    }
    const RowKernels kernels = select_row_kernels(allowed);
    const std::int64_t n_pairs = source->rotary_dim / 2, n = n_batch * n_tokens;
    const RowBlock block = row_block(source->rotary_dim);
    for (std::int64_t at = 0; at < n; at += block.n_tokens) {
        // Positions are read again, and another thread may have changed them: a bad one counts as 0.
        const RowTokens tokens = {&checked, bad_position, n_tokens, at, std::min(block.n_tokens, n - at)};
        for (std::int64_t pair = 0; pair < n_pairs; pair += block.n_pairs) {
            make_rows(*source, kernels, tokens, pair, std::min(block.n_pairs, n_pairs - pair),
                      {rows + at * source->rotary_dim + pair, source->rotary_dim, n_pairs});
        }
    }
    return HALYARD_OK;
}

// Angle sources: tables of rows, rows given by the caller, and which row serves a position.
#include "angles.h"
#include "error.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <new>

using namespace halyard;

namespace {

constexpr std::int64_t max_rotary_dim = std::int64_t{1} << 20;

constexpr std::int64_t max_rows = std::numeric_limits<std::int32_t>::max();  // kernels count them in 32 bits

halyard_status fail_rows(std::int64_t n_rows, halyard_error *error) noexcept {
    return fail(error, HALYARD_ERROR_OVERFLOW, "the angle source would have %lld rows, but at most %lld are possible",
                static_cast<long long>(n_rows), static_cast<long long>(max_rows));
}

/// How far apart two positions are, a <= b; never overflows.
std::uint64_t distance(std::int64_t a, std::int64_t b) noexcept {
    return static_cast<std::uint64_t>(b) - static_cast<std::uint64_t>(a);
}

/// Lists what the caller lists: moved into first … last, ascending, each once.
halyard_status read_listed(const halyard_angle_source_desc &desc, halyard_angle_source &source,
                           halyard_error *error) noexcept {
    halyard_positions shape = {};
    halyard_status status = read_struct(desc.listed, sizeof(shape), "desc.listed", &shape, error);
    if (status != HALYARD_OK) {
        return status;
    }
    if (shape.consecutive == 1) {
        return fail(error, HALYARD_ERROR_MISMATCH,
                    "desc.listed.consecutive is 1, but a list names each position: desc.first and desc.last say a range");
    }
    Positions positions;
    status = read_positions(&shape, shape.shape[0], shape.shape[1], &positions, error, "desc.listed");
    if (status != HALYARD_OK) {
        return status;
    }
    std::int64_t count = 0;
    if (__builtin_mul_overflow(shape.shape[0], shape.shape[1], &count) ||
        count > std::numeric_limits<std::ptrdiff_t>::max() / std::int64_t{sizeof(std::int32_t)}) {
        return fail(error, HALYARD_ERROR_OVERFLOW, "desc.listed.shape is {%lld, %lld}, more than memory can hold",
                    static_cast<long long>(shape.shape[0]), static_cast<long long>(shape.shape[1]));
    }
    std::unique_ptr<std::int32_t[]> sorted(new (std::nothrow) std::int32_t[static_cast<std::size_t>(count)]);
    if (sorted == nullptr) {
        return fail(error, HALYARD_ERROR_OUT_OF_MEMORY, "no memory for %lld listed positions",
                    static_cast<long long>(count));
    }
    std::int32_t *next = sorted.get();
    for (std::int64_t batch = 0; count > 0 && batch < shape.shape[0]; ++batch) {
        for (std::int64_t token = 0; token < shape.shape[1]; ++token) {
            const std::int64_t position = positions.at(batch, token);
            *next++ = static_cast<std::int32_t>(std::clamp<std::int64_t>(position, desc.first, desc.last));
        }
    }
    std::sort(sorted.get(), next);
    source.n_listed = std::unique(sorted.get(), next) - sorted.get();
    if (source.n_listed > 0) {
        source.first = sorted[0];
        source.last = sorted.get()[source.n_listed - 1];
        if (source.last - source.first + 1 == source.n_listed) {
            source.n_listed = 0;
            return HALYARD_OK;  // no gaps: subtraction finds the row
        }
    }
    source.listed.reset(new (std::nothrow) std::int32_t[static_cast<std::size_t>(source.n_listed)]);
    if (source.listed == nullptr) {
        return fail(error, HALYARD_ERROR_OUT_OF_MEMORY, "no memory for %lld listed positions",
                    static_cast<long long>(source.n_listed));
    }
    std::copy_n(sorted.get(), source.n_listed, source.listed.get());
    return HALYARD_OK;
}

/// Finds what the rows span; false where they leave the address space.
bool find_rows_memory(halyard_angle_source &source) noexcept {
    const std::int64_t shape[] = {source.n_rows, source.rotary_dim / 2};
    const std::int64_t strides[] = {source.stride_row, 1};
    return find_memory_range(source.cos_rows, shape, strides, sizeof(float), &source.cos_memory) &&
           find_memory_range(source.sin_rows, shape, strides, sizeof(float), &source.sin_memory);
}

halyard_status make_table(const halyard_frequencies *frequencies, const halyard_angle_source_desc &desc,
                          halyard_angle_source &source, halyard_error *error) noexcept {
    if (frequencies == nullptr) {
        return fail_null(error, "frequencies");
    }
    if (desc.last < desc.first) {
        return fail(error, HALYARD_ERROR_POSITION, "desc.last is %d, before desc.first, which is %d", desc.last,
                    desc.first);
    }
    source.kind = HALYARD_ANGLES_TABLE;
    source.rotary_dim = 2 * frequencies->n_pairs;
    source.first = desc.first;
    source.last = desc.last;
    if (desc.listed != nullptr) {
        const halyard_status status = read_listed(desc, source, error);
        if (status != HALYARD_OK) {
            return status;
        }
    }
    const std::int64_t n_covered = source.listed != nullptr ? source.n_listed : source.last - source.first + 1;
    const std::int32_t row_of_zero = source.find_row(0, HALYARD_BAD_POSITION_ERROR);
    source.n_rows = row_of_zero >= 0 ? n_covered : n_covered + 1;
    if (source.n_rows > max_rows) {
        return fail_rows(source.n_rows, error);
    }
    source.identity_row = row_of_zero >= 0 ? row_of_zero : static_cast<std::int32_t>(n_covered);
    source.stride_row = source.rotary_dim;
    std::int64_t n_bytes = 0;
    if (__builtin_mul_overflow(source.n_rows, source.rotary_dim * std::int64_t{sizeof(float)}, &n_bytes) ||
        n_bytes > std::numeric_limits<std::ptrdiff_t>::max()) {
        return fail(error, HALYARD_ERROR_OVERFLOW, "a table of %lld rows and rotary_dim %lld leaves the address space",
                    static_cast<long long>(source.n_rows), static_cast<long long>(source.rotary_dim));
    }
    source.owned_rows.reset(
        static_cast<float *>(::operator new(static_cast<std::size_t>(n_bytes), row_alignment, std::nothrow)));
    if (source.owned_rows == nullptr) {
        return fail(error, HALYARD_ERROR_OUT_OF_MEMORY, "no memory for a table of %lld rows (%lld bytes)",
                    static_cast<long long>(source.n_rows), static_cast<long long>(n_bytes));
    }
    source.bytes =
        static_cast<std::uint64_t>(n_bytes) + static_cast<std::uint64_t>(source.n_listed) * sizeof(std::int32_t);
    source.cos_rows = source.owned_rows.get();
    source.sin_rows = source.owned_rows.get() + frequencies->n_pairs;
    find_rows_memory(source);  // it was just allocated, so it is in the address space
    for (std::int64_t row = 0; row < source.n_rows; ++row) {
        const std::int64_t position = row >= n_covered            ? 0
                                      : source.listed != nullptr ? source.listed.get()[row]
                                                                 : source.first + row;
        float *const cos_row = source.owned_rows.get() + row * source.stride_row;
        make_row(*frequencies, static_cast<std::int32_t>(position), cos_row, cos_row + frequencies->n_pairs);
    }
    return HALYARD_OK;
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
        return fail(error, HALYARD_ERROR_ROTARY_DIM, "desc.rotary_dim is %lld, but it must be even and in 2 to %lld",
                    static_cast<long long>(desc.rotary_dim), static_cast<long long>(max_rotary_dim));
    }
    if (desc.n_rows > max_rows) {
        return fail_rows(desc.n_rows, error);
    }
    if (desc.n_rows < 1) {
        return fail(error, HALYARD_ERROR_SHAPE, "desc.n_rows is %lld, but it must be at least 1",
                    static_cast<long long>(desc.n_rows));
    }
    if (desc.stride_row < desc.rotary_dim / 2) {
        return fail(error, HALYARD_ERROR_SHAPE,
                    "desc.stride_row is %lld, but rows of rotary_dim %lld need at least %lld",
                    static_cast<long long>(desc.stride_row), static_cast<long long>(desc.rotary_dim),
                    static_cast<long long>(desc.rotary_dim / 2));
    }
    source.kind = HALYARD_ANGLES_GIVEN;
    source.rotary_dim = desc.rotary_dim;
    source.last = desc.n_rows - 1;
    source.n_rows = desc.n_rows;
    source.stride_row = desc.stride_row;
    source.cos_rows = desc.cos_rows;
    source.sin_rows = desc.sin_rows;
    if (!find_rows_memory(source)) {
        return fail(error, HALYARD_ERROR_OVERFLOW,
                    "desc.n_rows is %lld with a desc.stride_row of %lld: the rows leave the address space",
                    static_cast<long long>(desc.n_rows), static_cast<long long>(desc.stride_row));
    }
    return HALYARD_OK;
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

halyard_status halyard::check_positions(const halyard_angle_source &source, const Positions &positions,
                                        std::int32_t bad_position, std::int64_t n_batch, std::int64_t n_tokens,
                                        halyard_error *error) noexcept {
    if (bad_position != HALYARD_BAD_POSITION_ERROR || n_batch == 0 || n_tokens == 0) {
        return HALYARD_OK;
    }
    const std::int64_t n_distinct = positions.stride_batch == 0 ? 1 : n_batch;
    for (std::int64_t batch = 0; batch < n_distinct; ++batch) {
        // A range that holds both ends of consecutive positions holds them all.
        if (positions.consecutive && source.listed == nullptr && source.covers(positions.at(batch, 0)) &&
            source.covers(positions.at(batch, n_tokens - 1))) {
            continue;
        }
        for (std::int64_t token = 0; token < n_tokens; ++token) {
            const std::int64_t position = positions.at(batch, token);
            if (source.covers(position)) {
                continue;
            }
            const auto where = static_cast<long long>(position);
            const auto b = static_cast<long long>(batch), t = static_cast<long long>(token);
            if (source.listed == nullptr) {
                return fail(error, HALYARD_ERROR_POSITION,
                            "positions[batch %lld, token %lld] is %lld, but the angle source covers %lld to %lld", b, t,
                            where, static_cast<long long>(source.first), static_cast<long long>(source.last));
            }
            return fail(error, HALYARD_ERROR_POSITION,
                        "positions[batch %lld, token %lld] is %lld, which is none of the %lld positions that the angle "
                        "source lists", b, t, where, static_cast<long long>(source.n_listed));
        }
    }
    return HALYARD_OK;
}

extern "C" halyard_status halyard_create_angle_source(const halyard_frequencies *frequencies,
                                                      const halyard_angle_source_desc *desc,
                                                      halyard_angle_source **out, halyard_error *error) {
    if (out == nullptr) {
        return fail_null(error, "out");
    }
    halyard_angle_source_desc read = {};
    halyard_status status = read_struct(desc, sizeof(read), "desc", &read, error);
    if (status != HALYARD_OK) {
        return status;
    }
    if (read.kind != HALYARD_ANGLES_AUTO && read.kind != HALYARD_ANGLES_TABLE && read.kind != HALYARD_ANGLES_GIVEN) {
        return fail(error, HALYARD_ERROR_UNKNOWN_VALUE,
                    "desc.kind is %d, but it must be HALYARD_ANGLES_AUTO (0), _TABLE (1) or _GIVEN (2)", read.kind);
    }
    std::unique_ptr<halyard_angle_source> result(new (std::nothrow) halyard_angle_source);
    if (result == nullptr) {
        return fail(error, HALYARD_ERROR_OUT_OF_MEMORY, "no memory for an angle source");
    }
    status = read.kind == HALYARD_ANGLES_GIVEN ? use_given(read, *result, error)
                                               : make_table(frequencies, read, *result, error);
    if (status == HALYARD_OK) {
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
        return fail(error, HALYARD_ERROR_UNKNOWN_VALUE,
                    "bad_position is %d, but it must be HALYARD_BAD_POSITION_ERROR (0), _CLAMP (1) or _IDENTITY (2)",
                    bad_position);
    }
    if (n_batch < 0 || n_tokens < 0) {
        return fail(error, HALYARD_ERROR_SHAPE, "n_batch is %lld and n_tokens is %lld, but neither may be negative",
                    static_cast<long long>(n_batch), static_cast<long long>(n_tokens));
    }
    Positions checked;
    halyard_status status = read_positions(positions, n_batch, n_tokens, &checked, error);
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
        return fail(error, HALYARD_ERROR_OVERFLOW,
                    "the rows of %lld x %lld tokens of rotary_dim %lld leave the address space",
                    static_cast<long long>(n_batch), static_cast<long long>(n_tokens),
                    static_cast<long long>(source->rotary_dim));
    }
    if (n_floats < n_needed) {
        return fail(error, HALYARD_ERROR_SHAPE, "n_floats is %lld, but the rows need %lld",
                    static_cast<long long>(n_floats), static_cast<long long>(n_needed));
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
    if (n_needed == 0) {
        return HALYARD_OK;  // without tokens, n_batch may be anything
    }
    const std::int64_t n_pairs = source->rotary_dim / 2;
    const std::size_t row_bytes = static_cast<std::size_t>(n_pairs) * sizeof(float);
    for (std::int64_t batch = 0; batch < n_batch; ++batch) {
        for (std::int64_t token = 0; token < n_tokens; ++token) {
            // Positions are read again, and another thread may have changed them: never below row 0.
            const std::int64_t found = source->find_row(checked.at(batch, token), bad_position);
            const std::int64_t offset = (found < 0 ? source->identity_row : found) * source->stride_row;
            float *const row = rows + (batch * n_tokens + token) * source->rotary_dim;
            std::memcpy(row, source->cos_rows + offset, row_bytes);
            std::memcpy(row + n_pairs, source->sin_rows + offset, row_bytes);
        }
    }
    return HALYARD_OK;
}

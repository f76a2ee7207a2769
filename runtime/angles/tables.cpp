#include "angles/tables.h"

#include "base/error.h"
#include "base/versioned.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>

namespace halyard {

namespace {

/// Reads the positions that the caller lists: moved into first … last, sorted, without repeats.
halyard_status read_listed(const halyard_angle_source_desc &desc, halyard_angle_source &source,
                           halyard_error *error) noexcept {
    halyard_positions shape = {};
    HALYARD_TRY(read_struct(desc.listed, "desc.listed", &shape, error));
    if (shape.n_axes > 1) {
        return fail(error, HALYARD_ERROR_MISMATCH, "desc.listed.n_axes is ", shape.n_axes, ", but a list has one axis");
    }
    if (shape.consecutive == 1) {
        return fail(
            error, HALYARD_ERROR_MISMATCH,
            "desc.listed.consecutive is 1, but a list names each position: desc.first and desc.last say a range");
    }
    CheckedPositions positions;
    HALYARD_TRY(read_positions(&shape, shape.shape[0], shape.shape[1], 1, &positions, error, "desc.listed"));
    std::int64_t count = 0;
    if (__builtin_mul_overflow(shape.shape[0], shape.shape[1], &count) ||
        count > std::numeric_limits<std::ptrdiff_t>::max() / std::int64_t{sizeof(std::int32_t)}) {
        return fail(error, HALYARD_ERROR_OVERFLOW, "desc.listed.shape is {", shape.shape[0], ", ", shape.shape[1],
                    "}, more than memory can hold");
    }
    std::unique_ptr<std::int32_t[]> sorted(new (std::nothrow) std::int32_t[static_cast<std::size_t>(count)]);
    if (sorted == nullptr) {
        return fail(error, HALYARD_ERROR_OUT_OF_MEMORY, "no memory for ", count, " listed positions");
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
        return fail(error, HALYARD_ERROR_OUT_OF_MEMORY, "no memory for ", source.n_listed, " listed positions");
    }
    std::copy_n(sorted.get(), source.n_listed, source.listed.get());
    return HALYARD_OK;
}

/// Allocates at most max_rows rows of rotary_dim floats each.
halyard_status allocate_rows(std::int64_t n_rows, std::int64_t rotary_dim, std::unique_ptr<float[], DeleteRows> *out,
                             halyard_error *error) noexcept {
    static_assert(max_rows <=
                  std::numeric_limits<std::ptrdiff_t>::max() / std::int64_t{sizeof(float)} / max_rotary_dim);
    const std::int64_t n_bytes = n_rows * rotary_dim * std::int64_t{sizeof(float)};
    out->reset(static_cast<float *>(::operator new(static_cast<std::size_t>(n_bytes), row_alignment, std::nothrow)));
    return *out != nullptr ? HALYARD_OK
                           : fail(error, HALYARD_ERROR_OUT_OF_MEMORY, "no memory for a table of ", n_rows, " rows (",
                                  n_bytes, " bytes)");
}

void point_at_owned_rows(halyard_angle_source &source) noexcept {
    source.stride_row = source.rotary_dim;
    source.cos_rows = source.owned_rows.get();
    source.sin_rows = source.owned_rows.get() + source.rotary_dim / 2;
    find_rows_memory(source);  // it was just allocated, so it is in the address space
}

/// transformers' LlamaRotaryEmbedding.forward: freqs = inv_freq @ position, cos = freqs.cos() * attention_scaling, all
/// in float32.
void make_hf_row(const halyard_frequencies &frequencies, const CosSinOfAngle &cos_sin, std::int32_t position,
                 float *cos_row, float *sin_row) noexcept {
    // attention_factor goes in before the one rounding: theirs rounds cos, which is itself not quite the nearest
    // float, and then the product, so that doing the same would now and then be 2 ulp from it.
    const double factor = static_cast<float>(frequencies.attention_factor);
    for (std::int64_t pair = 0; pair < frequencies.n_pairs; ++pair) {
        const auto inv_freq = static_cast<float>(frequencies.rounded_inv_freq.get()[pair]);
        const CosSin value = cos_sin(static_cast<float>(position) * inv_freq, factor);
        cos_row[pair] = value.cos;
        sin_row[pair] = value.sin;
    }
}

}  // namespace

halyard_status fail_rows(std::int64_t n_rows, halyard_error *error) noexcept {
    return fail(error, HALYARD_ERROR_OVERFLOW, "the angle source would have ", n_rows, " rows, but at most ", max_rows,
                " are possible");
}

bool find_rows_memory(halyard_angle_source &source) noexcept {
    const std::int64_t shape[] = {source.n_rows, source.rotary_dim / 2};
    const std::int64_t strides[] = {source.stride_row, 1};
    const std::int64_t bytes = element_bytes(source.rows_dtype);
    return find_memory_range(source.cos_rows, shape, strides, bytes, &source.cos_memory) &&
           find_memory_range(source.sin_rows, shape, strides, bytes, &source.sin_memory);
}

halyard_status make_table(const halyard_frequencies &frequencies, const halyard_angle_source_desc &desc,
                          halyard_angle_source &source, halyard_error *error) noexcept {
    if (desc.listed != nullptr) {
        HALYARD_TRY(read_listed(desc, source, error));
    }
    const std::int64_t n_covered = source.listed != nullptr ? source.n_listed : source.last - source.first + 1;
    const std::int32_t row_of_zero = source.find_row(0, BadPosition::error);
    source.n_rows = row_of_zero >= 0 ? n_covered : n_covered + 1;
    if (source.n_rows > max_rows) {
        return fail_rows(source.n_rows, error);
    }
    source.identity_row = row_of_zero >= 0 ? row_of_zero : static_cast<std::int32_t>(n_covered);
    HALYARD_TRY(allocate_rows(source.n_rows, source.rotary_dim, &source.owned_rows, error));
    source.bytes = static_cast<std::uint64_t>(source.n_rows * source.rotary_dim) * sizeof(float) +
                   static_cast<std::uint64_t>(source.n_listed) * sizeof(std::int32_t);
    point_at_owned_rows(source);
    const CosSinOfAngle cos_sin;
    for (std::int64_t row = 0; row < source.n_rows; ++row) {
        const std::int64_t position = row >= n_covered           ? 0
                                      : source.listed != nullptr ? source.listed.get()[row]
                                                                 : source.first + row;
        float *const cos_row = source.owned_rows.get() + row * source.stride_row;
        float *const sin_row = cos_row + frequencies.n_pairs;
        if (source.reference == Reference::exact) {
            make_row(frequencies, static_cast<std::int32_t>(position), cos_row, sin_row);
        } else {
            make_hf_row(frequencies, cos_sin, static_cast<std::int32_t>(position), cos_row, sin_row);
        }
    }
    return HALYARD_OK;
}

halyard_status make_turns(const halyard_frequencies &frequencies, halyard_angle_source &source,
                          halyard_error *error) noexcept {
    const auto n_pairs = static_cast<std::size_t>(frequencies.n_pairs);
    source.turns_high.reset(new (std::nothrow) std::uint32_t[n_pairs]);
    source.turns_low.reset(new (std::nothrow) std::uint32_t[n_pairs]);
    if (source.turns_high == nullptr || source.turns_low == nullptr) {
        return fail(error, HALYARD_ERROR_OUT_OF_MEMORY, "no memory for the phases of ", n_pairs, " pairs");
    }
    source.bytes += 2 * n_pairs * sizeof(std::uint32_t);
    for (std::size_t pair = 0; pair < n_pairs; ++pair) {
        const std::uint64_t turns = turns_of(frequencies, static_cast<std::int64_t>(pair));
        source.turns_high.get()[pair] = static_cast<std::uint32_t>(turns >> 32);
        source.turns_low.get()[pair] = static_cast<std::uint32_t>(turns);
    }
    source.attention_factor = frequencies.attention_factor;
    source.scale_high = static_cast<float>(frequencies.attention_factor);
    source.scale_low = static_cast<float>(frequencies.attention_factor - static_cast<double>(source.scale_high));
    return HALYARD_OK;
}

}  // namespace halyard

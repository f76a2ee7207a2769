#include "angles/tables.h"

#include "base/error.h"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>

namespace halyard {

namespace {

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

/// transformers' LlamaRotaryEmbedding.forward: freqs = inv_freq @ position, cos = freqs.cos() * attention_scaling, all
/// in float32.
void make_hf_row(const halyard_frequencies &frequencies, std::int32_t position, float *cos_row,
                 float *sin_row) noexcept {
    // attention_factor is applied before the only rounding. transformers rounds twice: cos, by a cosf that is not
    // correctly rounded, and then the product. So rounding twice here would sometimes be 2 ulp from transformers.
    const double factor = static_cast<float>(frequencies.attention_factor);
    for (std::int64_t pair = 0; pair < frequencies.n_pairs; ++pair) {
        const auto inv_freq = static_cast<float>(frequencies.rounded_inv_freq.get()[pair]);
        const CosSin value = cos_sin_of_angle(static_cast<float>(position) * inv_freq, factor);
        cos_row[pair] = value.cos;
        sin_row[pair] = value.sin;
    }
}

}  // namespace

halyard_status fail_too_many_rows(std::int64_t n_rows, halyard_error *error) noexcept {
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

halyard_status make_table(const halyard_frequencies &frequencies, halyard_angle_source &source,
                          halyard_error *error) noexcept {
    const std::int64_t n_covered = source.last - source.first + 1;
    const bool covers_zero = source.first <= 0 && source.last >= 0;
    source.n_rows = covers_zero ? n_covered : n_covered + 1;
    if (source.n_rows > max_rows) {
        return fail_too_many_rows(source.n_rows, error);
    }
    source.identity_row = static_cast<std::int32_t>(covers_zero ? -source.first : n_covered);
    HALYARD_TRY(allocate_rows(source.n_rows, source.rotary_dim, &source.owned_rows, error));
    source.bytes = static_cast<std::uint64_t>(source.n_rows * source.rotary_dim) * sizeof(float);
    source.stride_row = source.rotary_dim;
    source.cos_rows = source.owned_rows.get();
    source.sin_rows = source.owned_rows.get() + source.rotary_dim / 2;
    find_rows_memory(source);  // cannot fail: the memory was just allocated
    for (std::int64_t row = 0; row < source.n_rows; ++row) {
        const auto position = static_cast<std::int32_t>(row >= n_covered ? 0 : source.first + row);
        float *const cos_row = source.owned_rows.get() + row * source.stride_row;
        float *const sin_row = cos_row + frequencies.n_pairs;
        (source.reference == Reference::exact ? make_row : make_hf_row)(frequencies, position, cos_row, sin_row);
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

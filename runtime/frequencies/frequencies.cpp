// Inverse frequencies: their storage, and frequencies from a caller's list. scaling.cpp computes them by formulas.
#include "frequencies/frequencies.h"

#include "base/error.h"
#include "base/versioned.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>

namespace halyard {
namespace {

constexpr std::int64_t max_pairs = max_rotary_dim / 2;

/// Sets the context lengths for which frequencies are valid. Frequencies of dynamic NTK that were made for a
/// seq_len beyond the trained context are valid from the trained length to seq_len, as in transformers'
/// dynamic_frequency_update.
void find_seq_lens(const halyard_scaling &scaling, halyard_frequencies &frequencies) noexcept {
    const std::int64_t trained = scaling.original_max_position;
    if (scaling.method != HALYARD_SCALING_DYNAMIC_NTK && scaling.method != HALYARD_SCALING_LONGROPE) {
        return;
    }
    if (scaling.seq_len <= trained) {
        frequencies.last_seq_len = trained;
        return;
    }
    const bool is_dynamic = scaling.method == HALYARD_SCALING_DYNAMIC_NTK;
    frequencies.first_seq_len = is_dynamic ? trained : trained + 1;
    frequencies.last_seq_len = is_dynamic ? scaling.seq_len : max_tokens;
}

}  // namespace

std::unique_ptr<halyard_frequencies> allocate_frequencies(std::int64_t n_pairs, const char *method) noexcept {
    std::unique_ptr<halyard_frequencies> result(new (std::nothrow) halyard_frequencies);
    if (result != nullptr) {
        const auto count = static_cast<std::size_t>(n_pairs);
        result->n_pairs = n_pairs;
        result->about.axis_map = HALYARD_AXIS_MAP_NONE;
        result->about.method = method;
        result->inv_freq.reset(new (std::nothrow) DoubleDouble[count]);
        result->rounded_inv_freq.reset(new (std::nothrow) double[count]);
        result->quarter_turns.reset(new (std::nothrow) QuarterTurns[count]);
        if (result->inv_freq == nullptr || result->rounded_inv_freq == nullptr || result->quarter_turns == nullptr) {
            result.reset();
        }
    }
    return result;
}

bool keep_origin(halyard_frequencies &frequencies, const halyard_scaling &scaling) noexcept {
    std::unique_ptr<Origin> origin(new (std::nothrow) Origin);
    if (origin == nullptr) {
        return false;
    }
    origin->scaling = scaling;
    if (scaling.method == HALYARD_SCALING_LONGROPE) {
        const auto count = static_cast<std::size_t>(scaling.n_factors);
        origin->factors.reset(new (std::nothrow) double[2 * count]);
        if (origin->factors == nullptr) {
            return false;
        }
        std::copy_n(scaling.short_factor, count, origin->factors.get());
        std::copy_n(scaling.long_factor, count, origin->factors.get() + count);
    }
    origin->scaling.short_factor = nullptr;
    origin->scaling.long_factor = nullptr;
    find_seq_lens(scaling, frequencies);
    frequencies.origin = std::move(origin);
    return true;
}

void set_inv_freq(halyard_frequencies &frequencies, std::int64_t pair, DoubleDouble inv_freq) noexcept {
    // For any smaller frequency cos is just under 1, sin rounds to zero with the sign of the angle (attention_factor
    // is at most 2^60), and products could underflow. So this frequency replaces smaller ones: results are the same.
    constexpr double smallest = 0x1p-300;
    frequencies.rounded_inv_freq.get()[pair] = inv_freq.hi;
    if (inv_freq.hi != 0.0 && std::fabs(inv_freq.hi) < smallest) {
        inv_freq = {std::copysign(smallest, inv_freq.hi), 0.0};
    }
    frequencies.inv_freq.get()[pair] = inv_freq;
    frequencies.quarter_turns.get()[pair] = to_quarter_turns(inv_freq);
}

}  // namespace halyard

using namespace halyard;

extern "C" halyard_status halyard_create_frequencies_from_list(const double *inv_freq, int64_t n_pairs,
                                                               double attention_factor, halyard_frequencies **out,
                                                               halyard_error *error) {
    HALYARD_TRY(check_error_size(error));
    HALYARD_TRY(check_given(inv_freq, "inv_freq", error));
    HALYARD_TRY(check_given(out, "out", error));
    if (n_pairs < 1 || n_pairs > max_pairs) {
        return fail(error, HALYARD_ERROR_ROTARY_DIM, "n_pairs is ", n_pairs, ", but it must be in 1 to ", max_pairs);
    }
    if (!is_attention_factor(attention_factor)) {
        return fail(error, HALYARD_ERROR_FREQUENCY, "attention_factor is ", attention_factor, ", but it must be ",
                    attention_factor_range);
    }
    auto result = allocate_frequencies(n_pairs, "list");
    if (result == nullptr) {
        return fail(error, HALYARD_ERROR_OUT_OF_MEMORY, "no memory for ", n_pairs, " inverse frequencies");
    }
    result->attention_factor = attention_factor;
    for (std::int64_t pair = 0; pair < n_pairs; ++pair) {
        const double value = inv_freq[pair];
        if (!(std::fabs(value) <= max_inv_freq)) {
            return fail(error, HALYARD_ERROR_FREQUENCY, "inv_freq[", pair, "] is ", value,
                        ", but it must be finite and within 2^20");
        }
        set_inv_freq(*result, pair, {value, 0.0});
    }
    *out = result.release();
    return HALYARD_OK;
}

extern "C" halyard_status halyard_get_frequencies_info(const halyard_frequencies *frequencies,
                                                       halyard_frequencies_info *info, halyard_error *error) {
    HALYARD_TRY(check_error_size(error));
    HALYARD_TRY(check_given(frequencies, "frequencies", error));
    halyard_frequencies_info value = frequencies->about;
    value.rotary_dim = 2 * frequencies->n_pairs;
    value.attention_factor = frequencies->attention_factor;
    value.inv_freq = frequencies->rounded_inv_freq.get();
    value.first_seq_len = frequencies->first_seq_len;
    value.last_seq_len = frequencies->last_seq_len;
    return write_struct(value, "info", info, error);
}

extern "C" void halyard_destroy_frequencies(halyard_frequencies *frequencies) { delete frequencies; }

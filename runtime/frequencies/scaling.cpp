// The scaling methods, computed in double-double. halyard.h has their formulas and the papers that they come from.
#include "frequencies/scaling.h"

#include "base/error.h"
#include "base/versioned.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <string_view>
#include <tuple>
#include <utility>

namespace halyard {
namespace {

const char *name_of_method(std::int32_t method) noexcept {
    static const char *const names[] = {"default", "linear", "ntk",      "dynamic",
                                        "yarn",    "llama3", "longrope", "proportional"};
    return method >= 0 && method < static_cast<std::int32_t>(std::size(names)) ? names[method] : nullptr;
}

// ---- Checks --------------------------------------------------------------------------------------------------

// These bounds are far beyond any use, and no formula overflows within them.
constexpr double greatest = 0x1p60;
constexpr double least = 0x1p-60;

bool is_in_range(double value) noexcept { return value >= least && value <= greatest; }

/// Checks dimensions and the fields that several methods read. A field that the method does not read may be anything.
halyard_status check_common(const halyard_scaling &s, const ScalingNames &names, halyard_error *error) noexcept {
    const bool is_dynamic = s.method == HALYARD_SCALING_DYNAMIC_NTK, is_longrope = s.method == HALYARD_SCALING_LONGROPE;
    const bool reads_trained = s.method >= HALYARD_SCALING_DYNAMIC_NTK && s.method <= HALYARD_SCALING_LONGROPE;
    const bool reads_longest = s.factor == 0.0 && (s.method == HALYARD_SCALING_YARN || is_longrope);
    const auto is_count = [](std::int64_t n) { return n >= 1 && n <= max_tokens; };
    const auto is_width = [](std::int64_t n, std::int64_t most) { return n >= 2 && n <= most && n % 2 == 0; };
    const char *const must_be_count = ", but it must be in 1 to 2^53";
    return check_fields(
        "",
        {{!is_width(s.rotary_dim, max_rotary_dim), HALYARD_ERROR_ROTARY_DIM, names.rotary_dim, s.rotary_dim,
          ", but it must be even and in 2 to 2^20"},
         {s.exponent_dim < 2 || s.exponent_dim > max_rotary_dim, HALYARD_ERROR_ROTARY_DIM, "scaling.exponent_dim",
          s.exponent_dim, ", but it must be in 2 to 2^20"},
         {s.method == HALYARD_SCALING_PROPORTIONAL && !is_width(s.rotated_dim, s.rotary_dim), HALYARD_ERROR_ROTARY_DIM,
          names.rotated_dim, s.rotated_dim, ", but it must be even and in 2 to rotary_dim"},
         {!(std::isfinite(s.base) && s.base > 0.0), HALYARD_ERROR_FREQUENCY, names.base, s.base,
          ", but it must be finite and greater than 0"},
         {s.attention_factor != 0.0 && !is_attention_factor(s.attention_factor), HALYARD_ERROR_FREQUENCY,
          names.attention_factor, s.attention_factor, ", but it must be ", attention_factor_range},
         {reads_trained && !is_count(s.original_max_position), HALYARD_ERROR_SHAPE, names.original_max_position,
          s.original_max_position, must_be_count},
         {reads_longest && !is_count(s.max_position), HALYARD_ERROR_SHAPE, names.max_position, s.max_position,
          must_be_count},
         {(is_dynamic || is_longrope) && (s.seq_len < 0 || s.seq_len > max_tokens), HALYARD_ERROR_SHAPE, names.seq_len,
          s.seq_len, ", but it must be in 0 to 2^53"},
         {(is_dynamic || s.method == HALYARD_SCALING_NTK) && s.rotary_dim < 4, HALYARD_ERROR_ROTARY_DIM,
          names.rotary_dim, s.rotary_dim, ", but it must be at least 4 for an NTK-aware method"}},
        error);
}

/// Fills in the factor, and checks it.
halyard_status find_factor(halyard_scaling &s, const ScalingNames &names, halyard_error *error) noexcept {
    const bool is_yarn = s.method == HALYARD_SCALING_YARN;
    const bool divides = s.factor == 0.0 && (is_yarn || s.method == HALYARD_SCALING_LONGROPE);
    if (divides) {
        s.factor = static_cast<double>(s.max_position) / static_cast<double>(s.original_max_position);
    } else if (s.factor == 0.0 && s.method == HALYARD_SCALING_PROPORTIONAL) {
        s.factor = 1.0;
    }
    // A quotient below 1 is allowed for LongRoPE: attention_factor is 1 then.
    return check_fields(
        "",
        {{divides && is_yarn && s.factor < 1.0, HALYARD_ERROR_SHAPE, names.max_position, s.max_position,
          ", but it must be at least ", names.original_max_position, ", which is ", s.original_max_position},
         {!divides && s.method != HALYARD_SCALING_DEFAULT && !(s.factor >= 1.0 && s.factor <= greatest),
          HALYARD_ERROR_FREQUENCY, names.factor, s.factor, ", but it must be at least 1 and at most 2^60"}},
        error);
}

halyard_status check_yarn(halyard_scaling &s, const ScalingNames &names, halyard_error *error) noexcept {
    s.beta_fast = s.beta_fast == 0.0 ? 32.0 : s.beta_fast;
    s.beta_slow = s.beta_slow == 0.0 ? 1.0 : s.beta_slow;
    const char *const must_be_in_range = ", but it must be in 2^-60 to 2^60";
    const char *const must_be_finite = ", but it must be finite and within 2^60";
    HALYARD_TRY(check_fields(
        "",
        {{!(s.base > 1.0), HALYARD_ERROR_FREQUENCY, names.base, s.base, ", but it must be greater than 1 for YaRN"}},
        error));
    return check_fields(
        names.whole(),
        {{!is_in_range(s.beta_fast), HALYARD_ERROR_FREQUENCY, "beta_fast", s.beta_fast, must_be_in_range},
         {!is_in_range(s.beta_slow), HALYARD_ERROR_FREQUENCY, "beta_slow", s.beta_slow, must_be_in_range},
         {s.beta_fast < s.beta_slow, HALYARD_ERROR_FREQUENCY, "beta_fast", s.beta_fast,
          ", but it must be at least beta_slow, which is ", s.beta_slow},
         {!(std::fabs(s.mscale) <= greatest), HALYARD_ERROR_FREQUENCY, "mscale", s.mscale, must_be_finite},
         {!(std::fabs(s.mscale_all_dim) <= greatest), HALYARD_ERROR_FREQUENCY, "mscale_all_dim", s.mscale_all_dim,
          must_be_finite}},
        error);
}

halyard_status check_llama3(const halyard_scaling &s, const ScalingNames &names, halyard_error *error) noexcept {
    const bool is_ascending = s.high_freq_factor >= s.low_freq_factor && s.high_freq_factor <= greatest;
    return check_fields(
        names.whole(),
        {{!is_in_range(s.low_freq_factor), HALYARD_ERROR_FREQUENCY, "low_freq_factor", s.low_freq_factor,
          ", but it must be in 2^-60 to 2^60"},
         {!is_ascending, HALYARD_ERROR_FREQUENCY, "high_freq_factor", s.high_freq_factor,
          ", but it must be at least low_freq_factor, which is ", s.low_freq_factor, ", and at most 2^60"}},
        error);
}

halyard_status check_longrope(const halyard_scaling &s, const ScalingNames &names, halyard_error *error) noexcept {
    if (s.n_factors != s.rotary_dim / 2) {
        return fail(error, HALYARD_ERROR_SHAPE, names.n_factors, " is ", s.n_factors, ", but ", names.rotary_dim,
                    " is ", s.rotary_dim, ", which makes ", s.rotary_dim / 2, " pairs");
    }
    const std::pair<const char *, const double *> lists[] = {{"short_factor", s.short_factor},
                                                             {"long_factor", s.long_factor}};
    for (const auto &[field, values] : lists) {
        if (values == nullptr) {
            return fail(error, HALYARD_ERROR_NULL_POINTER, names.object, field, " is NULL");
        }
        for (std::int64_t k = 0; k < s.n_factors; ++k) {
            if (!is_in_range(values[k])) {
                return fail(error, HALYARD_ERROR_FREQUENCY, names.object, field, "[", k, "] is ", values[k],
                            ", but it must be in 2^-60 to 2^60");
            }
        }
    }
    return check_fields(
        "",
        {{s.factor > 1.0 && s.attention_factor == 0.0 && s.original_max_position == 1, HALYARD_ERROR_SHAPE,
          names.original_max_position, 1, ", but attention_factor divides by its logarithm"}},
        error);
}

/// Checks a halyard_scaling and fills in the defaults.
halyard_status complete(halyard_scaling &s, const ScalingNames &names, halyard_error *error) noexcept {
    s.exponent_dim = s.exponent_dim == 0 ? s.rotary_dim : s.exponent_dim;
    s.rotated_dim = s.rotated_dim == 0 ? s.rotary_dim : s.rotated_dim;
    HALYARD_TRY(check_common(s, names, error));
    HALYARD_TRY(find_factor(s, names, error));
    return s.method == HALYARD_SCALING_YARN       ? check_yarn(s, names, error)
           : s.method == HALYARD_SCALING_LLAMA3   ? check_llama3(s, names, error)
           : s.method == HALYARD_SCALING_LONGROPE ? check_longrope(s, names, error)
                                                  : HALYARD_OK;
}

// ---- Formulas ------------------------------------------------------------------------------------------------

constexpr DoubleDouble one = {1.0, 0.0};

DoubleDouble log2_of(DoubleDouble value) noexcept {
    return precise_log2(value.hi) + DoubleDouble{value.lo, 0.0} / value.hi / ln_2;
}

DoubleDouble ln_of(double value) noexcept { return precise_log2(value) * ln_2; }

bool is_less(DoubleDouble a, DoubleDouble b) noexcept { return std::tie(a.hi, a.lo) < std::tie(b.hi, b.lo); }

DoubleDouble clamp_to_unit_interval(DoubleDouble value) noexcept {
    return is_less(value, {}) ? DoubleDouble{} : is_less(one, value) ? one : value;
}

DoubleDouble floor_of(DoubleDouble value) noexcept {
    const double whole = std::floor(value.hi);
    return {whole == value.hi && value.lo < 0.0 ? whole - 1.0 : whole, 0.0};
}

/// The formula of a checked halyard_scaling, with the numbers that all pairs share.
class Formula {
public:
    explicit Formula(const halyard_scaling &scaling) noexcept : s_(scaling), log2_base_(precise_log2(scaling.base)) {
        if (s_.method == HALYARD_SCALING_NTK) {
            stretch_base({s_.factor, 0.0});
        } else if (s_.method == HALYARD_SCALING_DYNAMIC_NTK) {
            const auto trained = static_cast<double>(s_.original_max_position);
            const auto length = std::max(static_cast<double>(s_.seq_len), trained);
            stretch_base(two_product(s_.factor, length) / trained - two_sum(s_.factor, -1.0));
        } else if (s_.method == HALYARD_SCALING_YARN) {
            find_ramp();
        }
    }

    /// The base-2 logarithm of an inverse frequency before its scaling.
    double log2_of_unscaled(std::int64_t k) const noexcept { return exponent(k).hi; }

    DoubleDouble inv_freq(std::int64_t k) const noexcept {
        const DoubleDouble unscaled = precise_exp2(exponent(k));
        switch (s_.method) {
        case HALYARD_SCALING_LINEAR: return unscaled / s_.factor;
        case HALYARD_SCALING_YARN: {
            const DoubleDouble r = clamp_to_unit_interval((-low_ + static_cast<double>(k)) / (high_ - low_));
            return unscaled * (r / s_.factor + (one - r));
        }
        case HALYARD_SCALING_LLAMA3: {
            const DoubleDouble turns = unscaled * static_cast<double>(s_.original_max_position) / (half_pi * 4.0);
            const DoubleDouble above = turns + -s_.low_freq_factor;
            const DoubleDouble width = two_sum(s_.high_freq_factor, -s_.low_freq_factor);
            const DoubleDouble step = is_less(above, {}) ? DoubleDouble{} : one;
            const DoubleDouble c = width.hi == 0.0 ? step : clamp_to_unit_interval(above / width);
            return unscaled * ((one - c) / s_.factor + c);
        }
        case HALYARD_SCALING_LONGROPE:
            return unscaled / (s_.seq_len > s_.original_max_position ? s_.long_factor : s_.short_factor)[k];
        case HALYARD_SCALING_PROPORTIONAL: return k < s_.rotated_dim / 2 ? unscaled / s_.factor : DoubleDouble{};
        default: return unscaled;
        }
    }

    double attention_factor() const noexcept {
        if (s_.attention_factor != 0.0) {
            return s_.attention_factor;
        }
        if (s_.method == HALYARD_SCALING_YARN) {
            const bool has_both = s_.mscale != 0.0 && s_.mscale_all_dim != 0.0;
            return has_both ? (magnitude(s_.mscale) / magnitude(s_.mscale_all_dim)).hi : magnitude(1.0).hi;
        }
        if (s_.method == HALYARD_SCALING_LONGROPE && s_.factor > 1.0) {
            const auto trained = static_cast<double>(s_.original_max_position);
            return std::sqrt((ln_of(s_.factor) / ln_of(trained) + 1.0).hi);
        }
        return 1.0;
    }

private:
    DoubleDouble exponent(std::int64_t k) const noexcept {
        return log2_base_ * (-2.0 * static_cast<double>(k)) / static_cast<double>(s_.exponent_dim);
    }

    void stretch_base(DoubleDouble stretch) noexcept {
        log2_base_ = log2_base_ +
                     log2_of(stretch) * static_cast<double>(s_.exponent_dim) / static_cast<double>(s_.rotary_dim - 2);
    }

    /// The number of the pair that makes `turns` full turns in the trained context, as a real number.
    DoubleDouble pair_number_for_turns(double turns) const noexcept {
        const auto trained = static_cast<double>(s_.original_max_position);
        const DoubleDouble ratio = DoubleDouble{trained, 0.0} / (half_pi * 4.0 * turns);
        return log2_of(ratio) * static_cast<double>(s_.exponent_dim) / (log2_base_ * 2.0);
    }

    void find_ramp() noexcept {
        low_ = pair_number_for_turns(s_.beta_fast);
        high_ = pair_number_for_turns(s_.beta_slow);
        if (s_.no_truncate == 0) {
            low_ = floor_of(low_);
            high_ = -floor_of(-high_);
        }
        const DoubleDouble last = {static_cast<double>(s_.rotary_dim - 1), 0.0};
        low_ = is_less(low_, {}) ? DoubleDouble{} : low_;
        high_ = is_less(last, high_) ? last : high_;
        if (low_.hi == high_.hi && low_.lo == high_.lo) {
            high_ = high_ + 0.001;
        }
    }

    DoubleDouble magnitude(double mscale) const noexcept { return ln_of(s_.factor) * mscale * 0.1 + 1.0; }

    const halyard_scaling &s_;
    DoubleDouble log2_base_;
    DoubleDouble low_, high_;  // YaRN's ramp
};

}  // namespace

halyard_status make_scaled_frequencies(const halyard_scaling &scaling, const ScalingNames &names,
                                       std::unique_ptr<halyard_frequencies> *out, halyard_error *error) noexcept {
    const char *method = name_of_method(scaling.method);
    if (method == nullptr) {
        return fail(error, HALYARD_ERROR_UNKNOWN_VALUE, "scaling.method is ", scaling.method, ", but there are 0 to 7");
    }
    HALYARD_TRY(check_choice("scaling", "no_truncate", scaling.no_truncate, 1, error));
    HALYARD_TRY(check_choice("scaling", "reserved", scaling.reserved, 0, error));
    halyard_scaling all = scaling;
    HALYARD_TRY(complete(all, names, error));
    const Formula formula(all);
    const double attention_factor = formula.attention_factor();
    if (!is_attention_factor(attention_factor)) {
        return fail(error, HALYARD_ERROR_FREQUENCY, names.factor, ", ", names.object, "mscale and ", names.object,
                    "mscale_all_dim make an attention_factor of ", attention_factor, ", but it must be ",
                    attention_factor_range);
    }
    const std::int64_t n_pairs = all.rotary_dim / 2;
    auto result = allocate_frequencies(n_pairs, method);
    if (result == nullptr || !keep_origin(*result, all)) {
        return fail(error, HALYARD_ERROR_OUT_OF_MEMORY, "no memory for ", n_pairs, " inverse frequencies");
    }
    result->attention_factor = attention_factor;
    result->about.base = all.base;
    result->about.original_max_position = all.original_max_position;
    result->about.max_position = all.max_position;
    for (std::int64_t k = 0; k < n_pairs; ++k) {
        // precise_exp2 needs an exponent in range. Beyond 2^1000 no factor could bring inv_freq below its limit anyway.
        DoubleDouble inv_freq = {HUGE_VAL, 0.0};
        if (formula.log2_of_unscaled(k) < 1000.0) {
            inv_freq = formula.inv_freq(k);
        }
        if (!(inv_freq.hi <= max_inv_freq)) {
            return fail(error, HALYARD_ERROR_FREQUENCY, names.base, " is ", all.base, ": with a rotary_dim of ",
                        all.rotary_dim, ", inv_freq[", k, "] exceeds 2^20");
        }
        set_inv_freq(*result, k, inv_freq);
    }
    *out = std::move(result);
    return HALYARD_OK;
}

}  // namespace halyard

using namespace halyard;

namespace {

halyard_status create(const halyard_scaling &scaling, const ScalingNames &names, halyard_frequencies **out,
                      halyard_error *error) noexcept {
    HALYARD_TRY(check_given(out, "out", error));
    std::unique_ptr<halyard_frequencies> result;
    HALYARD_TRY(make_scaled_frequencies(scaling, names, &result, error));
    *out = result.release();
    return HALYARD_OK;
}

}  // namespace

extern "C" halyard_status halyard_create_frequencies_from_scaling(const halyard_scaling *scaling,
                                                                  halyard_frequencies **out, halyard_error *error) {
    HALYARD_TRY(check_error_size(error));
    halyard_scaling copy = {};
    HALYARD_TRY(read_struct(scaling, "scaling", &copy, error));
    return create(copy, {}, out, error);
}

extern "C" halyard_status halyard_create_frequencies_from_base(double base, int64_t rotary_dim,
                                                               halyard_frequencies **out, halyard_error *error) {
    HALYARD_TRY(check_error_size(error));
    halyard_scaling scaling = {};
    scaling.method = HALYARD_SCALING_DEFAULT;
    scaling.base = base;
    scaling.rotary_dim = rotary_dim;
    ScalingNames names;
    names.base = "base";
    names.rotary_dim = "rotary_dim";
    return create(scaling, names, out, error);
}

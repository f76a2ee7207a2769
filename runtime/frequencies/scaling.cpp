// The scaling methods of halyard.h, in double-double throughout: their formulas and sources stand there.
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

// These bounds lie far beyond any use, and keep every formula clear of overflow.
constexpr double greatest = 0x1p60;
constexpr double least = 0x1p-60;

bool is_in_range(double value) noexcept { return value >= least && value <= greatest; }

/// Checks a halyard_scaling and fills in the defaults. Every function returns HALYARD_OK or has written the error.
class Check {
public:
    Check(halyard_scaling &scaling, const ScalingNames &names, halyard_error *error) noexcept
        : s_(scaling), names_(names), error_(error) {}

    halyard_status all() noexcept {
        for (const auto part : {&Check::widths, &Check::numbers, &Check::tokens, &Check::method}) {
            HALYARD_TRY((this->*part)());
        }
        return HALYARD_OK;
    }

private:
    halyard_status check(bool is_good, std::string_view name, double value, const char *must) const noexcept {
        return is_good ? HALYARD_OK
                       : fail(error_, HALYARD_ERROR_FREQUENCY, name, " is ", value, ", but it must be ", must);
    }

    /// The same for a field that every caller calls by the name that it has in halyard_scaling.
    halyard_status check_field(bool is_good, const char *field, double value, const char *must) const noexcept {
        return is_good ? HALYARD_OK
                       : fail(error_, HALYARD_ERROR_FREQUENCY, names_.object, field, " is ", value,
                              ", but it must be ", must);
    }

    halyard_status check_width(bool is_good, std::string_view name, std::int64_t value,
                               const char *must) const noexcept {
        return is_good ? HALYARD_OK
                       : fail(error_, HALYARD_ERROR_ROTARY_DIM, name, " is ", value, ", but it must be ", must);
    }

    halyard_status widths() noexcept {
        s_.exponent_dim = s_.exponent_dim == 0 ? s_.rotary_dim : s_.exponent_dim;
        s_.rotated_dim = s_.rotated_dim == 0 ? s_.rotary_dim : s_.rotated_dim;
        HALYARD_TRY(check_width(s_.rotary_dim >= 2 && s_.rotary_dim <= max_rotary_dim && s_.rotary_dim % 2 == 0,
                                names_.rotary_dim, s_.rotary_dim, "even and in 2 to 2^20"));
        HALYARD_TRY(check_width(s_.exponent_dim >= 2 && s_.exponent_dim <= max_rotary_dim, "scaling.exponent_dim",
                                s_.exponent_dim, "in 2 to 2^20"));
        return check_width(s_.method != HALYARD_SCALING_PROPORTIONAL ||
                               (s_.rotated_dim >= 2 && s_.rotated_dim <= s_.rotary_dim && s_.rotated_dim % 2 == 0),
                           names_.rotated_dim, s_.rotated_dim, "even and in 2 to rotary_dim");
    }

    halyard_status numbers() noexcept {
        HALYARD_TRY(check(std::isfinite(s_.base) && s_.base > 0.0, names_.base, s_.base, "finite and greater than 0"));
        return check(s_.attention_factor == 0.0 || is_attention_factor(s_.attention_factor), names_.attention_factor,
                     s_.attention_factor, attention_factor_range);
    }

    halyard_status tokens() noexcept {
        const struct {
            std::string_view name;
            std::int64_t value;
            bool is_read;
        } counts[] = {
            {names_.original_max_position, s_.original_max_position,
             s_.method >= HALYARD_SCALING_DYNAMIC_NTK && s_.method <= HALYARD_SCALING_LONGROPE},
            {names_.max_position, s_.max_position, s_.factor == 0.0 && divides_max_position()},
        };
        for (const auto &count : counts) {
            if (count.is_read && (count.value < 1 || count.value > max_tokens)) {
                return fail(error_, HALYARD_ERROR_SHAPE, count.name, " is ", count.value,
                            ", but it must be in 1 to 2^53");
            }
        }
        const bool reads_seq_len = s_.method == HALYARD_SCALING_DYNAMIC_NTK || s_.method == HALYARD_SCALING_LONGROPE;
        if (reads_seq_len && (s_.seq_len < 0 || s_.seq_len > max_tokens)) {
            return fail(error_, HALYARD_ERROR_SHAPE, names_.seq_len, " is ", s_.seq_len,
                        ", but it must be in 0 to 2^53");
        }
        return HALYARD_OK;
    }

    bool divides_max_position() const noexcept {
        return s_.method == HALYARD_SCALING_YARN || s_.method == HALYARD_SCALING_LONGROPE;
    }

    halyard_status method() noexcept {
        if (s_.method == HALYARD_SCALING_DEFAULT) {
            return HALYARD_OK;
        }
        const bool is_ntk = s_.method == HALYARD_SCALING_NTK || s_.method == HALYARD_SCALING_DYNAMIC_NTK;
        HALYARD_TRY(check_width(!is_ntk || s_.rotary_dim >= 4, names_.rotary_dim, s_.rotary_dim,
                                "at least 4 for an NTK-aware method"));
        HALYARD_TRY(factor());
        switch (s_.method) {
        case HALYARD_SCALING_YARN: return yarn();
        case HALYARD_SCALING_LLAMA3: return llama3();
        case HALYARD_SCALING_LONGROPE: return longrope();
        default: return HALYARD_OK;
        }
    }

    halyard_status factor() noexcept {
        if (s_.factor == 0.0 && divides_max_position()) {
            s_.factor = static_cast<double>(s_.max_position) / static_cast<double>(s_.original_max_position);
            // LongRoPE has a meaning for this: there is nothing to make up for.
            if (s_.factor < 1.0 && s_.method == HALYARD_SCALING_YARN) {
                return fail(error_, HALYARD_ERROR_SHAPE, names_.max_position, " is ", s_.max_position,
                            ", but it must be at least ", names_.original_max_position, ", which is ",
                            s_.original_max_position);
            }
            return HALYARD_OK;
        }
        if (s_.factor == 0.0 && s_.method == HALYARD_SCALING_PROPORTIONAL) {
            s_.factor = 1.0;
        }
        return check(s_.factor >= 1.0 && s_.factor <= greatest, names_.factor, s_.factor,
                     "at least 1 and at most 2^60");
    }

    halyard_status yarn() noexcept {
        s_.beta_fast = s_.beta_fast == 0.0 ? 32.0 : s_.beta_fast;
        s_.beta_slow = s_.beta_slow == 0.0 ? 1.0 : s_.beta_slow;
        HALYARD_TRY(check(s_.base > 1.0, names_.base, s_.base, "greater than 1 for YaRN"));
        HALYARD_TRY(check_field(is_in_range(s_.beta_fast), "beta_fast", s_.beta_fast, "in 2^-60 to 2^60"));
        HALYARD_TRY(check_field(is_in_range(s_.beta_slow), "beta_slow", s_.beta_slow, "in 2^-60 to 2^60"));
        if (s_.beta_fast < s_.beta_slow) {
            return fail(error_, HALYARD_ERROR_FREQUENCY, names_.object, "beta_fast is ", s_.beta_fast,
                        ", but it must be at least ", names_.object, "beta_slow, which is ", s_.beta_slow);
        }
        HALYARD_TRY(check_field(std::fabs(s_.mscale) <= greatest, "mscale", s_.mscale, "finite and within 2^60"));
        return check_field(std::fabs(s_.mscale_all_dim) <= greatest, "mscale_all_dim", s_.mscale_all_dim,
                           "finite and within 2^60");
    }

    halyard_status llama3() noexcept {
        HALYARD_TRY(check_field(is_in_range(s_.low_freq_factor), "low_freq_factor", s_.low_freq_factor,
                                "in 2^-60 to 2^60"));
        if (!(s_.high_freq_factor >= s_.low_freq_factor && s_.high_freq_factor <= greatest)) {
            return fail(error_, HALYARD_ERROR_FREQUENCY, names_.object, "high_freq_factor is ", s_.high_freq_factor,
                        ", but it must be at least ", names_.object, "low_freq_factor, which is ", s_.low_freq_factor,
                        ", and at most 2^60");
        }
        return HALYARD_OK;
    }

    halyard_status longrope() noexcept {
        if (s_.n_factors != s_.rotary_dim / 2) {
            return fail(error_, HALYARD_ERROR_SHAPE, names_.n_factors, " is ", s_.n_factors, ", but ",
                        names_.rotary_dim, " is ", s_.rotary_dim, ", which makes ", s_.rotary_dim / 2, " pairs");
        }
        const struct {
            const char *field;
            const double *values;
        } lists[] = {{"short_factor", s_.short_factor}, {"long_factor", s_.long_factor}};
        for (const auto &list : lists) {
            if (list.values == nullptr) {
                return fail(error_, HALYARD_ERROR_NULL_POINTER, names_.object, list.field, " is NULL");
            }
            for (std::int64_t k = 0; k < s_.n_factors; ++k) {
                if (!is_in_range(list.values[k])) {
                    return fail(error_, HALYARD_ERROR_FREQUENCY, names_.object, list.field, "[", k, "] is ",
                                list.values[k], ", but it must be in 2^-60 to 2^60");
                }
            }
        }
        if (s_.factor > 1.0 && s_.attention_factor == 0.0 && s_.original_max_position == 1) {
            return fail(error_, HALYARD_ERROR_SHAPE, names_.original_max_position,
                        " is 1, but attention_factor divides by its logarithm");
        }
        return HALYARD_OK;
    }

    halyard_scaling &s_;
    const ScalingNames &names_;
    halyard_error *error_;
};

// ---- Formulas ------------------------------------------------------------------------------------------------

constexpr DoubleDouble one = {1.0, 0.0};

DoubleDouble log2_of(DoubleDouble value) noexcept {
    return precise_log2(value.hi) + DoubleDouble{value.lo, 0.0} / value.hi / ln_2;
}

DoubleDouble ln_of(double value) noexcept { return precise_log2(value) * ln_2; }

bool is_less(DoubleDouble a, DoubleDouble b) noexcept { return std::tie(a.hi, a.lo) < std::tie(b.hi, b.lo); }

DoubleDouble clamp_to_one(DoubleDouble value) noexcept {
    return is_less(value, {}) ? DoubleDouble{} : is_less(one, value) ? one : value;
}

DoubleDouble floor_of(DoubleDouble value) noexcept {
    const double whole = std::floor(value.hi);
    return {whole == value.hi && value.lo < 0.0 ? whole - 1.0 : whole, 0.0};
}

/// A checked halyard_scaling with what all its pairs share worked out.
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
            const DoubleDouble r = clamp_to_one((-low_ + static_cast<double>(k)) / (high_ - low_));
            return unscaled * (r / s_.factor + (one - r));
        }
        case HALYARD_SCALING_LLAMA3: {
            const DoubleDouble turns = unscaled * static_cast<double>(s_.original_max_position) / (half_pi * 4.0);
            const DoubleDouble above = turns + -s_.low_freq_factor;
            const DoubleDouble width = two_sum(s_.high_freq_factor, -s_.low_freq_factor);
            const DoubleDouble step = is_less(above, {}) ? DoubleDouble{} : one;
            const DoubleDouble c = width.hi == 0.0 ? step : clamp_to_one(above / width);
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

    /// The real p where a pair makes so many turns in the trained context.
    DoubleDouble find_pair(double turns) const noexcept {
        const auto trained = static_cast<double>(s_.original_max_position);
        const DoubleDouble ratio = DoubleDouble{trained, 0.0} / (half_pi * 4.0 * turns);
        return log2_of(ratio) * static_cast<double>(s_.exponent_dim) / (log2_base_ * 2.0);
    }

    void find_ramp() noexcept {
        low_ = find_pair(s_.beta_fast);
        high_ = find_pair(s_.beta_slow);
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
    if (scaling.no_truncate < 0 || scaling.no_truncate > 1 || scaling.reserved != 0) {
        const bool is_reserved = scaling.reserved != 0;
        return fail(error, HALYARD_ERROR_UNKNOWN_VALUE, "scaling.", is_reserved ? "reserved" : "no_truncate", " is ",
                    is_reserved ? scaling.reserved : scaling.no_truncate, ", but it must be 0",
                    is_reserved ? "" : " or 1");
    }
    halyard_scaling complete = scaling;
    HALYARD_TRY(Check(complete, names, error).all());
    const Formula formula(complete);
    const double attention_factor = formula.attention_factor();
    if (!is_attention_factor(attention_factor)) {
        return fail(error, HALYARD_ERROR_FREQUENCY, names.factor, ", ", names.object, "mscale and ", names.object,
                    "mscale_all_dim make an attention_factor of ", attention_factor, ", but it must be ",
                    attention_factor_range);
    }
    const std::int64_t n_pairs = complete.rotary_dim / 2;
    auto result = allocate_frequencies(n_pairs, method);
    if (result == nullptr || !keep_origin(*result, complete)) {
        return fail(error, HALYARD_ERROR_OUT_OF_MEMORY, "no memory for ", n_pairs, " inverse frequencies");
    }
    result->attention_factor = attention_factor;
    result->about.base = complete.base;
    result->about.original_max_position = complete.original_max_position;
    result->about.max_position = complete.max_position;
    for (std::int64_t k = 0; k < n_pairs; ++k) {
        // The logarithm first, to stay within the range of precise_exp2; 2^1000 is beyond what a factor could make up.
        DoubleDouble inv_freq = {HUGE_VAL, 0.0};
        if (formula.log2_of_unscaled(k) < 1000.0) {
            inv_freq = formula.inv_freq(k);
        }
        if (!(inv_freq.hi <= max_inv_freq)) {
            return fail(error, HALYARD_ERROR_FREQUENCY, names.base, " is ", complete.base, ": with a rotary_dim of ",
                        complete.rotary_dim, ", inv_freq[", k, "] exceeds 2^20");
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
    HALYARD_TRY(check_error(error));
    halyard_scaling copy = {};
    HALYARD_TRY(read_struct(scaling, "scaling", &copy, error));
    return create(copy, {}, out, error);
}

extern "C" halyard_status halyard_create_frequencies_from_base(double base, int64_t rotary_dim,
                                                               halyard_frequencies **out, halyard_error *error) {
    HALYARD_TRY(check_error(error));
    halyard_scaling scaling = {};
    scaling.method = HALYARD_SCALING_DEFAULT;
    scaling.base = base;
    scaling.rotary_dim = rotary_dim;
    ScalingNames names;
    names.base = "base";
    names.rotary_dim = "rotary_dim";
    return create(scaling, names, out, error);
}

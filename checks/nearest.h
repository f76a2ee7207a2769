// The nearest element of a dtype, found in a table of all its values: another way than any code of the runtime takes.
#pragma once

#include "halyard/halyard.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace oracle {

/// A dtype of 16 or 8 bits. The magnitude of an element is its place among all magnitudes.
class Nearest {
public:
    explicit Nearest(std::int32_t dtype) : dtype_(dtype) {
        switch (dtype) {
        case HALYARD_F16: add_floats(10, -14, 15, true); break;
        case HALYARD_BF16: add_floats(7, -126, 127, true); break;
        case HALYARD_E4M3: add_floats(3, -6, 8, false); break;
        case HALYARD_E5M2: add_floats(2, -14, 15, false); break;
        default:
            for (int i = 0; i <= 128; i++) {
                values_.push_back(i);
            }
        }
        if (dtype == HALYARD_E4M3) {
            values_.pop_back();  // 480 is NaN
        }
        const std::size_t n = values_.size();
        for (std::size_t i = 0; i + 1 < n; i++) {
            middles_.push_back((values_[i] + values_[i + 1]) / 2);  // exact: doubles have bits to spare
        }
        if (has_infinity_) {  // as if the next value were there
            middles_.push_back(values_[n - 1] + (values_[n - 1] - values_[n - 2]) / 2);
            values_.push_back(INFINITY);
        }
    }

    int n_bits() const { return dtype_ == HALYARD_F16 || dtype_ == HALYARD_BF16 ? 16 : 8; }

    /// Whether a word is a right answer for a value: the nearest element, to even in a tie; any NaN for a NaN, but of
    /// 8 bits the one that halyard.h promises.
    bool is_right(float value, std::uint32_t word) const {
        if (n_bits() == 16 && std::isnan(value)) {
            return (word & 0x7fffu) > values_.size() - 1;
        }
        return word == word_of(value);
    }

    std::uint32_t word_of(float value) const {
        if (std::isnan(value)) {
            const std::uint32_t nans[] = {0x7f, 0x7e, 0};
            const std::uint32_t nan = n_bits() == 16 ? 0x7fff : nans[dtype_ - HALYARD_E4M3];
            return dtype_ == HALYARD_INT8 ? 0 : with_sign(value, nan);
        }
        return with_sign(value, magnitude_of(std::fabs(value), 0));
    }

    /// The same for a sequence of magnitudes that never falls: from the place of the one before.
    std::uint32_t magnitude_of(float magnitude, std::size_t from) const {
        const auto first = middles_.begin() + static_cast<std::ptrdiff_t>(from);
        // Few steps are needed as a rule, where magnitudes come in order.
        auto at = from > 0 && (first == middles_.end() || *first >= magnitude)
                      ? first
                      : std::lower_bound(first, middles_.end(), static_cast<double>(magnitude));
        auto place = static_cast<std::size_t>(at - middles_.begin());
        if (at != middles_.end() && *at == magnitude && place % 2 != 0) {
            place++;
        }
        return static_cast<std::uint32_t>(place);
    }

    std::uint32_t with_sign(float value, std::uint32_t magnitude) const {
        if (dtype_ == HALYARD_INT8) {
            return std::signbit(value) ? (0u - magnitude) & 0xffu : std::min(magnitude, 127u);
        }
        return magnitude | (std::signbit(value) ? 1u << (n_bits() - 1) : 0u);
    }

    /// What an element stands for.
    double value_of(std::uint32_t word) const {
        const std::uint32_t magnitude = word & ((1u << (n_bits() - 1)) - 1);
        const double value = magnitude < values_.size() ? values_[magnitude] : std::nan("");
        return word == magnitude ? value : -value;
    }

    /// Where the nearest element changes, ascending.
    const std::vector<double> &middles() const { return middles_; }
    const std::vector<double> &values() const { return values_; }

private:
    std::int32_t dtype_;
    bool has_infinity_ = false;
    std::vector<double> values_;   // of all magnitudes that are numbers, ascending; then infinity
    std::vector<double> middles_;  // between neighbours

    void add_floats(int fraction_bits, int min_exponent, int max_exponent, bool has_infinity) {
        has_infinity_ = has_infinity;
        const int n_fractions = 1 << fraction_bits;
        for (int i = 0; i < n_fractions; i++) {
            values_.push_back(std::ldexp(i, min_exponent - fraction_bits));
        }
        for (int exponent = min_exponent; exponent <= max_exponent; exponent++) {
            for (int i = 0; i < n_fractions; i++) {
                values_.push_back(std::ldexp(n_fractions + i, exponent - fraction_bits));
            }
        }
    }
};

}  // namespace oracle

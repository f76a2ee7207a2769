// The oracle: exact conversions and rotations, and error bounds, without any code of the runtime or the generators.
#pragma once

#include <cstdint>
#include <vector>

namespace oracle {

// ---- Storage -------------------------------------------------------------------------------------------------------
// A dtype is any storage type, HALYARD_F32 to HALYARD_UINT8. A word holds an element's bits in its low bits.

std::int64_t element_bytes(std::int32_t dtype);
std::uint32_t read_word(std::int32_t dtype, const void *at);
void write_word(std::int32_t dtype, void *at, std::uint32_t word);

/// The exact value of a word, which is always a float.
float widen(std::int32_t dtype, std::uint32_t word);
/// The word nearest to a value, ties to even. 8-bit dtypes saturate. A NaN becomes some NaN, in 8-bit dtypes the one
/// that halyard.h promises.
std::uint32_t narrow(std::int32_t dtype, float value);

bool is_nan(std::int32_t dtype, std::uint32_t word);
/// Half the distance between neighbours at a value, which must be below the overflow threshold.
long double half_ulp(std::int32_t dtype, long double value);
/// The largest finite number.
long double greatest(std::int32_t dtype);
/// The smallest value that rounds to infinity.
long double overflow_threshold(std::int32_t dtype);

// ---- Rotation ------------------------------------------------------------------------------------------------------

template <typename T>
struct Pair {
    T x0, x1;
};

/// Rotates in long double: exact but for its last bit.
Pair<long double> rotate_exactly(Pair<long double> x, long double cos, long double sin);

/// inv_freq[k] = base^(-2k / rotary_dim).
std::vector<long double> inv_freq_of(long double base, std::int64_t rotary_dim);

/// The error bound that halyard.h promises: 2 eps hypot(x0, x1) f + 2^-149, plus half an ulp of 16-bit storage. f is
/// the attention factor.
long double promised_bound(std::int32_t dtype, Pair<long double> x, long double attention_factor, long double exact);

/// The same for a kernel alone, whose cos and sin are exact by definition. f32 rounds three times with relative error
/// 2^-24: both products, and their sum, which is at most |x0 cos| + |x1 sin|. Below the normal numbers only the
/// products round, each by 2^-150. `magnitude` is |x0 cos| + |x1 sin|, or the same with x0 and x1 swapped.
long double kernel_bound(std::int32_t dtype, long double magnitude, long double exact);

// ---- Random bits ---------------------------------------------------------------------------------------------------

/// SplitMix64: reproducible everywhere, and a few cycles a number.
class Random {
public:
    explicit Random(std::uint64_t seed) : state_(seed) {}

    std::uint64_t bits() {
        state_ += 0x9e3779b97f4a7c15u;
        std::uint64_t z = state_;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        return z ^ (z >> 31);
    }
    /// One of the integers from first to last.
    std::int64_t in(std::int64_t first, std::int64_t last) {
        return first + static_cast<std::int64_t>(bits() % static_cast<std::uint64_t>(last - first + 1));
    }
    bool one_in(std::int64_t n) { return in(1, n) == 1; }
    /// Uniform in [-1, 1).
    double unit() { return static_cast<double>(static_cast<std::int64_t>(bits())) * 0x1p-63; }
    template <typename T, std::size_t n>
    T one_of(const T (&choices)[n]) {
        return choices[bits() % n];
    }

private:
    std::uint64_t state_;
};

/// The distribution of random elements.
enum class Values {
    ordinary,        // as large as activations are, with a few special ones
    any_bits,        // every bit pattern: NaN with any payload, infinities, denormals
    special,         // mostly the ends of ranges, zeros of both signs, NaN, and halfway cases of rounding
    short_mantissa,  // few significant bits, so that products fall halfway between bf16 or f16 numbers
};

std::uint32_t random_word(Random &random, std::int32_t dtype, Values values);
/// The bytes of n random elements.
std::vector<char> random_elements(Random &random, std::int32_t dtype, Values values, std::int64_t n);

}  // namespace oracle

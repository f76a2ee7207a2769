#include "checks/oracle.h"

#include "halyard/halyard.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace oracle {
namespace {

/// A binary floating-point format, in numbers; integers have no fraction and no exponent.
struct Format {
    int bits, fraction_bits, min_exponent;  // min_exponent is the exponent of the smallest normal number
    long double greatest;                   // the largest finite number
    std::uint32_t last;                     // the word of the largest magnitude that is not NaN
    std::uint32_t sign_bit() const { return std::uint32_t(1) << (bits - 1); }
};

const Format &format_of(std::int32_t dtype) {
    static const Format formats[] = {{32, 23, -126, 0x1.fffffep127L, 0x7f800000},
                                     {16, 10, -14, 65504, 0x7c00},
                                     {16, 7, -126, 0x1.fep127L, 0x7f80},
                                     {8, 3, -6, 448, 0x7e},
                                     {8, 2, -14, 57344, 0x7c},
                                     {8, 0, 0, 127, 0xff},
                                     {8, 0, 0, 127, 0xff}};
    return formats[dtype - HALYARD_F32];
}

/// The exponent of one ulp at a value. Values below the normal numbers have the ulp of denormals.
int ulp_exponent(const Format &format, long double value) {
    const int exponent = value == 0 ? format.min_exponent : std::ilogb(value);
    return std::max(exponent, format.min_exponent) - format.fraction_bits;
}

// Copies the lowest bytes of a word, on a little-endian host. memcpy is many times as fast with a length that the
// compiler knows.
void copy_word(std::int32_t dtype, void *to, const void *from) {
    switch (format_of(dtype).bits) {
    case 32: std::memcpy(to, from, 4); break;
    case 16: std::memcpy(to, from, 2); break;
    default: std::memcpy(to, from, 1);
    }
}

/// The exact value of a 16-bit or 8-bit word.
float decode_word(std::int32_t dtype, std::uint32_t word) {
    if (dtype == HALYARD_INT8 || dtype == HALYARD_UINT8) {
        return dtype == HALYARD_INT8 ? static_cast<std::int8_t>(word) : static_cast<float>(word);
    }
    const Format &format = format_of(dtype);
    const std::uint32_t magnitude = word & (format.sign_bit() - 1), implicit = 1u << format.fraction_bits;
    const std::uint32_t fraction = magnitude % implicit, exponent = magnitude / implicit;
    const auto place = static_cast<int>(std::max(exponent, 1u)) - 1 + format.min_exponent - format.fraction_bits;
    float value = std::ldexp(static_cast<float>(fraction + (exponent == 0 ? 0 : implicit)), place);
    value = magnitude > format.last ? NAN : value > format.greatest ? INFINITY : value;
    return (word & format.sign_bit()) != 0 ? -value : value;
}

std::vector<float> decode_all_words(std::int32_t dtype) {
    std::vector<float> values(std::size_t(1) << format_of(dtype).bits);
    for (std::size_t word = 0; word < values.size(); word++) {
        values[word] = decode_word(dtype, static_cast<std::uint32_t>(word));
    }
    return values;
}

/// The midpoints between neighbouring magnitudes of a dtype, ascending. There the nearest element changes.
std::vector<double> middles_of(std::int32_t dtype) {
    const bool is_int8 = dtype == HALYARD_INT8;
    const auto value_of = [=](std::uint32_t magnitude) {
        return double{is_int8 ? static_cast<float>(magnitude) : widen(dtype, magnitude)};
    };
    std::vector<double> middles;  // exact: doubles have bits to spare
    const std::uint32_t last = is_int8 ? 128 : format_of(dtype).last;
    for (std::uint32_t i = 0; i < last && std::isfinite(value_of(i + 1)); i++) {
        middles.push_back((value_of(i) + value_of(i + 1)) / 2);
    }
    if (format_of(dtype).bits == 16) {  // the midpoint above the largest number, where rounding gives infinity
        middles.push_back(static_cast<double>(overflow_threshold(dtype)));
    }
    return middles;
}

long double rounding_of_storage(std::int32_t dtype, long double exact) {
    return dtype == HALYARD_F32 ? 0.0L : half_ulp(dtype, exact);
}

/// A random extreme number or rounding midpoint, or a neighbour of one.
std::uint32_t special_word(Random &random, std::int32_t dtype) {
    static constexpr std::uint32_t of_f32[] = {
        0x7f7f8000, 0x477fe000, 0x477ff000,              // where bf16 overflows; largest f16; where f16 overflows
        0x38800000, 0x387fc000, 0x33800000, 0x33000000,  // f16: smallest normal, smallest denormal, half of it
        0x3f808000, 0x3f818000, 0x3f801000, 0x3f803000,  // halfway between neighbours in bf16 and in f16
        0x7f810000};                                     // NaNs below it have infinity's upper 16 bits
    const Format &format = format_of(dtype);
    const std::uint32_t least = 1u << format.fraction_bits, infinity = format.last;  // the smallest normal number
    const std::uint32_t one = static_cast<std::uint32_t>(1 - format.min_exponent) * least;
    const std::uint32_t of_all[] = {
        1, least, one, infinity - 1, infinity + 1, infinity + least / 2, infinity + least - 2};
    std::uint32_t word = dtype == HALYARD_F32 && random.one_in(2) ? random.one_of(of_f32) : random.one_of(of_all);
    word += static_cast<std::uint32_t>(random.in(-1, 1));
    return random.one_in(2) ? word : word | format.sign_bit();
}

}  // namespace

std::int64_t element_bytes(std::int32_t dtype) { return format_of(dtype).bits / 8; }

std::uint32_t read_word(std::int32_t dtype, const void *at) {
    std::uint32_t word = 0;
    copy_word(dtype, &word, at);
    return word;
}

void write_word(std::int32_t dtype, void *at, std::uint32_t word) { copy_word(dtype, at, &word); }

float widen(std::int32_t dtype, std::uint32_t word) {
    if (dtype == HALYARD_F32) {
        return std::bit_cast<float>(word);
    }
    // Tables, because tests widen so many elements that they would spend most of their time in ldexp().
    static const std::vector<float> values[] = {decode_all_words(HALYARD_F16),  decode_all_words(HALYARD_BF16),
                                                decode_all_words(HALYARD_E4M3), decode_all_words(HALYARD_E5M2),
                                                decode_all_words(HALYARD_INT8), decode_all_words(HALYARD_UINT8)};
    return values[dtype - HALYARD_F16][word];
}

/// A binary search among all midpoints: independent of the runtime's bit arithmetic.
std::uint32_t narrow(std::int32_t dtype, float value) {
    if (dtype == HALYARD_F32) {
        return std::bit_cast<std::uint32_t>(value);
    }
    static const std::vector<double> all[] = {middles_of(HALYARD_F16), middles_of(HALYARD_BF16),
                                              middles_of(HALYARD_E4M3), middles_of(HALYARD_E5M2),
                                              middles_of(HALYARD_INT8)};
    const std::vector<double> &middles = all[dtype - HALYARD_F16];
    const double magnitude = std::fabs(double{value});
    const auto at = std::lower_bound(middles.begin(), middles.end(), magnitude);
    auto place = static_cast<std::uint32_t>(at - middles.begin());
    place += at != middles.end() && *at == magnitude ? place % 2 : 0;
    if (dtype == HALYARD_INT8) {
        return std::isnan(value) ? 0 : std::signbit(value) ? (0u - place) & 0xffu : std::min(place, 127u);
    }
    constexpr std::uint32_t nans[] = {0x7fff, 0x7fff, 0x7f, 0x7e};
    place = std::isnan(value) ? nans[dtype - HALYARD_F16] : place;
    return std::signbit(value) ? place | format_of(dtype).sign_bit() : place;
}

bool is_nan(std::int32_t dtype, std::uint32_t word) {
    const Format &format = format_of(dtype);
    return (word & ~format.sign_bit()) > format.last;
}

long double half_ulp(std::int32_t dtype, long double value) {
    return std::ldexp(0.5L, dtype >= HALYARD_INT8 ? 0 : ulp_exponent(format_of(dtype), value));
}

long double greatest(std::int32_t dtype) { return format_of(dtype).greatest; }

long double overflow_threshold(std::int32_t dtype) { return greatest(dtype) + half_ulp(dtype, greatest(dtype)); }

Pair<long double> rotate_exactly(Pair<long double> x, long double cos, long double sin) {
    return {x.x0 * cos - x.x1 * sin, x.x1 * cos + x.x0 * sin};
}

std::vector<long double> inv_freq_of(long double base, std::int64_t rotary_dim) {
    std::vector<long double> inv_freq;
    for (std::int64_t k = 0; k < rotary_dim / 2; k++) {
        inv_freq.push_back(std::pow(base, -2.0L * static_cast<long double>(k) / static_cast<long double>(rotary_dim)));
    }
    return inv_freq;
}

long double promised_bound(std::int32_t dtype, Pair<long double> x, long double attention_factor, long double exact) {
    return 2 * 0x1p-23L * std::hypot(x.x0, x.x1) * attention_factor + 0x1p-149L + rounding_of_storage(dtype, exact);
}

long double kernel_bound(std::int32_t dtype, long double magnitude, long double exact) {
    const long double in_f32 = 2 * 0x1p-24L * (1 + 0x1p-24L) * magnitude + 0x1p-149L;
    // Before it is rounded to storage, the value may be further from 0 than the exact one, by in_f32. There an ulp may
    // be larger.
    return in_f32 + rounding_of_storage(dtype, std::fabs(exact) + in_f32);
}

// ---- Random bits ---------------------------------------------------------------------------------------------------

std::uint32_t random_word(Random &random, std::int32_t dtype, Values values) {
    const std::uint64_t bits = random.bits();
    const Format &format = format_of(dtype);
    if (values == Values::any_bits) {
        return static_cast<std::uint32_t>(bits) & (2 * format.sign_bit() - 1);
    }
    if (values == Values::special ? bits % 4 != 0 : values == Values::ordinary && bits % 64 == 0) {
        return special_word(random, dtype);
    }
    // Ordinary values have exponents -6 … 2 and any fraction, short mantissas exponents -2 … 3 and few fraction bits.
    const bool is_short = values == Values::short_mantissa;
    const int n_bits = is_short ? static_cast<int>(bits >> 8 & 3) : format.fraction_bits;
    const int exponent = is_short ? 3 - static_cast<int>(bits % 6) : static_cast<int>(bits >> 56) % 9 - 6;
    const std::uint32_t fraction = static_cast<std::uint32_t>(bits >> 16) % (1u << n_bits);
    return (bits >> 40 & 1 ? format.sign_bit() : 0) |
           static_cast<std::uint32_t>(exponent + 1 - format.min_exponent) << format.fraction_bits |
           fraction << (format.fraction_bits - n_bits);
}

std::vector<char> random_elements(Random &random, std::int32_t dtype, Values values, std::int64_t n) {
    const std::int64_t bytes = element_bytes(dtype);
    std::vector<char> elements(static_cast<std::size_t>(n * bytes));
    for (std::int64_t i = 0; i < n; i++) {
        write_word(dtype, elements.data() + i * bytes, random_word(random, dtype, values));
    }
    return elements;
}

}  // namespace oracle

// The dtypes, and portable conversions of those that rotations read. The conversions use integer arithmetic (float
// arithmetic for subnormal f16), round to nearest even, and keep NaNs.
#pragma once

#include "halyard/halyard.h"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <optional>

namespace halyard {

/// Reads words[index]. Words may be misaligned, so they are copied.
template <typename Word>
Word read_word(const void *words, std::int64_t index = 0) {
    Word word;
    std::memcpy(&word, static_cast<const char *>(words) + index * std::int64_t{sizeof(word)}, sizeof(word));
    return word;
}

struct F32 {
    using Word = float;
    static float widen(Word word) { return word; }
    static Word narrow(float value) { return value; }
};

struct BF16 {
    using Word = std::uint16_t;
    static float widen(Word word) { return std::bit_cast<float>(std::uint32_t(word) << 16); }
    static Word narrow(float value) {
        const auto bits = std::bit_cast<std::uint32_t>(value);
        if ((bits & 0x7fffffffu) > 0x7f800000u) {
            return Word(bits >> 16 | 0x40u);  // a quiet NaN, even if the payload's upper bits are zero
        }
        return Word((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
    }
};

struct F16 {
    using Word = std::uint16_t;
    static float widen(Word word) {
        const std::uint32_t sign = std::uint32_t(word & 0x8000u) << 16;
        const std::uint32_t exponent = word >> 10 & 0x1fu, fraction = word & 0x3ffu;
        if (exponent == 0x1f) {
            return std::bit_cast<float>(sign | 0x7f800000u | fraction << 13);
        }
        if (exponent == 0) {
            const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
            return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
        }
        return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
    }
    static Word narrow(float value) {
        const auto bits = std::bit_cast<std::uint32_t>(value);
        const auto sign = Word(bits >> 16 & 0x8000u);
        const std::uint32_t magnitude = bits & 0x7fffffffu;
        if (magnitude > 0x7f800000u) {
            return Word(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
        }
        if (magnitude >= 0x47800000u) {  // 2^16 and up
            return Word(sign | 0x7c00u);
        }
        if (magnitude < 0x38800000u) {  // below 2^-14: adding 0.5 rounds to multiples of 2^-24, held in the lower bits
            const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
            return Word(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u));
        }
        return Word(sign | ((magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1u)) >> 13));
    }
};

enum class Dtype : std::int32_t {
    f32 = HALYARD_F32,
    f16 = HALYARD_F16,
    bf16 = HALYARD_BF16,
    e4m3 = HALYARD_E4M3,  // this and the following are for outputs, re-rotated keys and records of groups
    e5m2 = HALYARD_E5M2,
    int8 = HALYARD_INT8,
    uint8 = HALYARD_UINT8  // bytes of records, not numbers
};

/// The index of a dtype in arrays.
constexpr std::size_t index_of(Dtype dtype) noexcept { return static_cast<std::size_t>(dtype) - 1; }

/// The properties of each dtype, in the order of Dtype.
struct DtypeRow {
    const char *name;  // as in kernels' names
    std::int64_t bytes;
    float greatest = 0.0f;  // the largest finite number, for numbers of 8 bits
};
inline constexpr DtypeRow dtype_rows[] = {
    {"f32", 4}, {"f16", 2}, {"bf16", 2}, {"e4m3", 1, 448.0f}, {"e5m2", 1, 57344.0f}, {"int8", 1, 127.0f}, {"uint8", 1}};
inline constexpr std::int32_t n_dtypes = std::size(dtype_rows), n_input_dtypes = 3;

/// Converts a number of the C ABI; none if it is no dtype.
constexpr std::optional<Dtype> to_dtype(std::int32_t number) noexcept {
    const bool exists = number >= HALYARD_F32 && number <= n_dtypes;
    return exists ? std::optional(Dtype(number)) : std::nullopt;
}

/// Whether only outputs, re-rotated keys and records of groups can have this dtype.
constexpr bool is_8_bit(Dtype dtype) noexcept { return index_of(dtype) >= n_input_dtypes; }

/// Whether this is a dtype that rows of cos and sin, and weights, can have.
constexpr bool is_input_dtype(std::optional<Dtype> dtype) noexcept { return !is_8_bit(dtype.value_or(Dtype::uint8)); }

constexpr const char *name_of(Dtype dtype) noexcept { return dtype_rows[index_of(dtype)].name; }

/// The same for a number of the C ABI.
constexpr const char *name_of_dtype(std::int32_t number) noexcept {
    const std::optional<Dtype> dtype = to_dtype(number);
    return dtype ? name_of(*dtype) : "no dtype";
}

constexpr std::int64_t element_bytes(Dtype dtype) noexcept { return dtype_rows[index_of(dtype)].bytes; }

constexpr float greatest_of(Dtype dtype) noexcept { return dtype_rows[index_of(dtype)].greatest; }

}  // namespace halyard

// The dtypes that tensors and rows are stored in. Elements are converted in portable integer arithmetic, to nearest
// even and without losing a NaN.
#pragma once

#include "halyard/halyard.h"

#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>

namespace halyard {

// Elements may lie at any address, so they are copied in and out.
template <typename Word>
Word read_word(const char *at) {
    Word word;
    std::memcpy(&word, at, sizeof(word));
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
            return Word(bits >> 16 | 0x40u);  // quiet, and not an infinity when the upper bits of the payload are zero
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
        if (magnitude < 0x38800000u) {  // below 2^-14: adding 0.5 leaves multiples of 2^-24 in the lower bits, rounded
            const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
            return Word(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u));
        }
        return Word(sign | ((magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1u)) >> 13));
    }
};

/// 8 bits, of outputs only: beyond the greatest finite number they saturate.
template <int fraction_bits, int bias, std::uint32_t greatest, std::uint32_t nan>
struct F8 {
    using Word = std::uint8_t;
    static Word narrow(float value) {
        const auto bits = std::bit_cast<std::uint32_t>(value);
        const auto sign = bits >> 24 & 0x80u;
        const std::uint32_t magnitude = bits & 0x7fffffffu;
        constexpr int shift = 23 - fraction_bits;
        if (magnitude > 0x7f800000u) {
            return Word(sign | nan);
        }
        if (magnitude < std::uint32_t(127 - bias + 1) << 23) {  // subnormal: adding a power of two rounds
            const float step = std::bit_cast<float>(std::uint32_t(127 - bias + 1 + shift) << 23);
            const float shifted = std::bit_cast<float>(magnitude) + step;
            return Word(sign | (std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(step)));
        }
        const std::uint32_t even = magnitude >> shift & 1u;
        const std::uint32_t rounded =
            (magnitude - (std::uint32_t(127 - bias) << 23) + (1u << (shift - 1)) - 1u + even) >> shift;
        return Word(sign | (rounded > greatest ? greatest : rounded));
    }
};
using E4M3 = F8<3, 7, 0x7e, 0x7f>;
using E5M2 = F8<2, 15, 0x7b, 0x7e>;

struct Int8 {
    using Word = std::int8_t;
    static Word narrow(float value) {
        if (!(value >= -128.0f)) {
            return value < -128.0f ? Word(-128) : Word(0);  // a NaN is 0
        }
        if (value > 127.0f) {
            return 127;
        }
        // Adding 1.5 * 2^23 leaves the integer, rounded to nearest even, in the lower bits.
        return Word(std::bit_cast<std::int32_t>(value + 12582912.0f) - 0x4b400000);
    }
};

/// HALYARD_F32 and so on. A switch over dtypes has no default, so that the compiler names the places where a new one is
/// missing.
enum class Dtype : std::int32_t {
    f32 = HALYARD_F32,
    f16 = HALYARD_F16,
    bf16 = HALYARD_BF16,
    e4m3 = HALYARD_E4M3,
    e5m2 = HALYARD_E5M2,
    int8 = HALYARD_INT8
};

/// The dtype that a number of the C ABI stands for; none where there is no such dtype.
constexpr std::optional<Dtype> to_dtype(std::int32_t number) noexcept {
    switch (const auto dtype = static_cast<Dtype>(number)) {
    case Dtype::f32:
    case Dtype::f16:
    case Dtype::bf16:
    case Dtype::e4m3:
    case Dtype::e5m2:
    case Dtype::int8: return dtype;
    }
    return std::nullopt;
}

/// As kernels' names call it.
constexpr const char *name_of(Dtype dtype) noexcept {
    switch (dtype) {
    case Dtype::f32: return "f32";
    case Dtype::f16: return "f16";
    case Dtype::bf16: return "bf16";
    case Dtype::e4m3: return "e4m3";
    case Dtype::e5m2: return "e5m2";
    case Dtype::int8: return "int8";
    }
    return nullptr;
}

/// Whether only outputs have this dtype.
constexpr bool is_8_bit(Dtype dtype) noexcept {
    return dtype == Dtype::e4m3 || dtype == Dtype::e5m2 || dtype == Dtype::int8;
}

/// The name of a number of the C ABI that stands for a dtype.
constexpr const char *name_of_dtype(std::int32_t number) noexcept {
    const std::optional<Dtype> dtype = to_dtype(number);
    return dtype ? name_of(*dtype) : "no dtype";
}

constexpr std::int64_t element_bytes(Dtype dtype) noexcept {
    switch (dtype) {
    case Dtype::f32: return sizeof(F32::Word);
    case Dtype::f16: return sizeof(F16::Word);
    case Dtype::bf16: return sizeof(BF16::Word);
    case Dtype::e4m3:
    case Dtype::e5m2:
    case Dtype::int8: return 1;
    }
    return 0;
}

/// Widens n words from element `first` of memory on.
template <typename Storage>
void widen_words(const void *words, std::int64_t first, std::int64_t n, float *out) noexcept {
    const char *at = static_cast<const char *>(words) + first * std::int64_t{sizeof(typename Storage::Word)};
    for (std::int64_t i = 0; i < n; i++, at += sizeof(typename Storage::Word)) {
        out[i] = Storage::widen(read_word<typename Storage::Word>(at));
    }
}

}  // namespace halyard

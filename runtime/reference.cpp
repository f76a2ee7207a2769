#include "piece.h"

#include <bit>
#include <cmath>
#include <cstring>

namespace halyard {

namespace {

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

template <typename Storage>
void rotate(const Piece &piece) {
    using Word = typename Storage::Word;
    constexpr std::int64_t bytes = sizeof(Word);
    for (std::int64_t token = 0; token < piece.n_tokens; token++) {
        const std::int64_t row = std::int64_t{piece.row_of_token[token]} * piece.stride_row;
        for (std::int64_t head = 0; head < piece.n_heads; head++) {
            const char *x = piece.x + (token * piece.in.token + head * piece.in.head) * bytes;
            char *y = piece.y + (token * piece.out.token + head * piece.out.head) * bytes;
            for (std::int64_t k = 0; k < piece.n_pairs; k++) {
                const float cos = piece.cos_rows[row + k];
                const float sin =
                    std::bit_cast<float>(std::bit_cast<std::uint32_t>(piece.sin_rows[row + k]) ^ piece.sin_sign);
                const float x0 = Storage::widen(read_word<Word>(x + k * piece.in.pair * bytes));
                const float x1 = Storage::widen(read_word<Word>(x + (k * piece.in.pair + piece.in.member) * bytes));
                const Word y0 = Storage::narrow(std::fma(x0, cos, -(x1 * sin)));
                const Word y1 = Storage::narrow(std::fma(x1, cos, x0 * sin));
                std::memcpy(y + k * piece.out.pair * bytes, &y0, sizeof(Word));
                std::memcpy(y + (k * piece.out.pair + piece.out.member) * bytes, &y1, sizeof(Word));
            }
        }
    }
}

}  // namespace

void rotate_reference(const Piece &piece) noexcept {
    switch (piece.dtype) {
    case HALYARD_F32: rotate<F32>(piece); break;
    case HALYARD_F16: rotate<F16>(piece); break;
    case HALYARD_BF16: rotate<BF16>(piece); break;
    }
}

}  // namespace halyard

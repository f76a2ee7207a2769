#include "walk/reference.h"

#include "angles/phase.h"
#include "base/storage.h"
#include "walk/piece.h"

#include <bit>
#include <cmath>
#include <cstring>

namespace halyard {

namespace {

/// The arithmetic of phase.h on numbers. This file is compiled without contraction, so nothing else is fused.
struct PortableMath {
    using Float = float;
    using Word = std::uint32_t;
    using Int = std::int32_t;

    static float fma(float a, float b, float c) noexcept { return std::fma(a, b, c); }
    static float times(float a, float b) noexcept { return a * b; }
    static float plus(float a, float b) noexcept { return a + b; }
    static float flip_sign(float x, std::uint32_t sign) noexcept {
        return std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) ^ sign);
    }
    template <typename T>
    static T select(bool condition, T a, T b) noexcept {
        return condition ? a : b;
    }
    static std::uint32_t upper_product(std::uint32_t a, std::uint32_t b) noexcept {
        return static_cast<std::uint32_t>((std::uint64_t{a} * b) >> 32);
    }
    static std::uint32_t to_word(std::int32_t i) noexcept { return static_cast<std::uint32_t>(i); }
    static std::int32_t to_int(std::uint32_t word) noexcept { return static_cast<std::int32_t>(word); }
    static float to_float(std::int32_t i) noexcept { return static_cast<float>(i); }
};

template <typename Storage>
void rotate(const Piece &piece) {
    using Word = typename Storage::Word;
    constexpr std::int64_t bytes = sizeof(Word);
    for (std::int64_t token = 0; token < piece.n_tokens; token++) {
        const std::int64_t row = piece.row_of_token[token] * piece.stride_row * std::int64_t{sizeof(float)};
        const char *cos_row = piece.cos_rows + row, *sin_row = piece.sin_rows + row;
        for (std::int64_t head = 0; head < piece.n_heads; head++) {
            const char *x = piece.x + (token * piece.in.token + head * piece.in.head) * bytes;
            char *y = piece.y + (token * piece.out.token + head * piece.out.head) * bytes;
            for (std::int64_t k = 0; k < piece.n_pairs; k++) {
                const auto at = k * std::int64_t{sizeof(float)};
                const auto cos = read_word<float>(cos_row + at);
                const auto sin = std::bit_cast<float>(read_word<std::uint32_t>(sin_row + at) ^ piece.sin_sign);
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
    with_storage(piece.dtype, [&](auto storage) { rotate<decltype(storage)>(piece); });
}

void phase_row_reference(std::int32_t position, const Phases &phases, std::int64_t n_pairs, float *cos_row,
                         float *sin_row) noexcept {
    const auto &[turns_high, turns_low, scale_high, scale_low] = phases;
    for (std::int64_t k = 0; k < n_pairs; k++) {
        const CosAndSin<float> angle =
            phase_angle(PortableMath(), position, turns_high[k], turns_low[k], scale_high, scale_low);
        cos_row[k] = angle.cos;
        sin_row[k] = angle.sin;
    }
}

}  // namespace halyard

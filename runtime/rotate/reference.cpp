#include "rotate/reference.h"

#include "base/storage.h"
#include "rotate/piece.h"

#include <bit>
#include <cmath>
#include <cstring>

namespace halyard {

namespace {

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
    case Dtype::f32: rotate<F32>(piece); break;
    case Dtype::f16: rotate<F16>(piece); break;
    case Dtype::bf16: rotate<BF16>(piece); break;
    }
}

void phase_row_reference(std::int32_t position, const std::uint32_t *turns_high, const std::uint32_t *turns_low,
                         float scale_high, float scale_low, std::int64_t n_pairs, float *cos_row,
                         float *sin_row) noexcept {
    for (std::int64_t k = 0; k < n_pairs; k++) {
        const auto p = static_cast<std::uint32_t>(position);
        const auto carry = static_cast<std::uint32_t>((std::uint64_t{turns_low[k]} * p) >> 32);
        const std::uint32_t turns = turns_high[k] * p + carry - (position < 0 ? turns_low[k] : 0u);
        const std::uint32_t quarter = (turns + 0x20000000u) >> 30;
        const auto rest = static_cast<std::int32_t>(turns - (quarter << 30));
        const auto coarse = static_cast<float>(rest & ~63), fine = static_cast<float>(rest & 63);
        const float unit = 0x1.921fb6p-30f, unit_low = -0x1.777a5cp-55f;
        const float z = coarse * unit;
        const float tail = std::fma(fine, unit, std::fma(coarse, unit_low, std::fma(coarse, unit, -z)));
        const float w = z * z, half_w = w * 0.5f;
        const float p_of_w = std::fma(w, std::fma(w, -1.94956359e-4f, 8.33197869e-3f), -1.66666508e-1f);
        const float q_of_w = std::fma(w, std::fma(w, 2.44384515e-5f, -1.38873677e-3f), 4.16666456e-2f);
        const float zw = z * w, ww = w * w;
        const float sin_rest = std::fma(zw, p_of_w, std::fma(tail, -half_w, tail));
        const float one_less_cos = std::fma(tail, z, std::fma(-ww, q_of_w, half_w));
        const float scaled_low = scale_low * z;
        const float sin = std::fma(scale_high, z, std::fma(scale_high, sin_rest, scaled_low));
        const float cos = scale_high + std::fma(-scale_high, one_less_cos, scale_low);
        const bool is_odd = (quarter & 1) != 0;
        const auto flip = [](float value, std::uint32_t sign) {
            return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) ^ sign);
        };
        cos_row[k] = flip(is_odd ? sin : cos, ((quarter + 1) & 2) << 30);
        sin_row[k] = flip(is_odd ? cos : sin, (quarter & 2) << 30);
    }
}

void factored_row_reference(const float *coarse_cos, const float *coarse_sin, const float *fine_cos,
                            const float *fine_sin, std::int64_t n_pairs, float *cos_row, float *sin_row) noexcept {
    for (std::int64_t k = 0; k < n_pairs; k++) {
        const float minus = -coarse_sin[k] * fine_sin[k], plus = coarse_cos[k] * fine_sin[k];
        cos_row[k] = std::fma(coarse_cos[k], fine_cos[k], minus);
        sin_row[k] = std::fma(coarse_sin[k], fine_cos[k], plus);
    }
}

}  // namespace halyard

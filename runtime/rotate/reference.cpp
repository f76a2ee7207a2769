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
    case HALYARD_F32: rotate<F32>(piece); break;
    case HALYARD_F16: rotate<F16>(piece); break;
    case HALYARD_BF16: rotate<BF16>(piece); break;
    default: break;  // the plan has checked it
    }
}

}  // namespace halyard

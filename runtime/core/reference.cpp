// The portable reference. It gives the same bits as every target, so it is compiled without contraction to fma.
#include "angles/phase.h"
#include "core/rotate.h"

#include <cmath>

namespace halyard {

namespace {

/// The operations of phase.h on plain floats and integers. (Kernels do them on Halide's Exprs.)
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

/// Rotates a head by the row that begins at float `first` of rows. x and y point to the first pair, and may be equal.
template <typename Storage>
void rotate_head(const Side &in, const Side &out, std::uint32_t sin_sign, const char *x, char *y, const Rows &rows,
                 std::int64_t first) {
    using Word = typename Storage::Word;
    constexpr std::int64_t bytes = sizeof(Word);
    for (std::int64_t k = 0; k < rows.n_pairs; k++) {
        const auto cos = read_word<float>(rows.cos.host, first + k);
        const auto sin = std::bit_cast<float>(read_word<std::uint32_t>(rows.sin.host, first + k) ^ sin_sign);
        const float x0 = Storage::widen(read_word<Word>(x, k * in.pair));
        const float x1 = Storage::widen(read_word<Word>(x, k * in.pair + in.member));
        const Word y0 = Storage::narrow(std::fma(x0, cos, -(x1 * sin)));
        const Word y1 = Storage::narrow(std::fma(x1, cos, x0 * sin));
        std::memcpy(y + k * out.pair * bytes, &y0, sizeof(Word));
        std::memcpy(y + (k * out.pair + out.member) * bytes, &y1, sizeof(Word));
    }
}

}  // namespace

void rotate_by_reference(const TensorCall &call, const Stretch &stretch) noexcept {
    const Side &in = call.tensor.in(), &out = call.tensor.y;
    const std::int64_t bytes = call.tensor_plan.bytes;
    const Rows &rows = call.rows;
    with_storage(call.tensor_plan.dtype, [&](auto storage) {
        for (std::int64_t token = 0; token < stretch.n_tokens; token++) {
            const std::int64_t row = std::int64_t{stretch.row_of_token[token]} * rows.dims[1].stride;
            for (std::int64_t head = 0; head < stretch.n_heads; head++) {
                const std::int64_t of_x = token * stretch.in_token + head * in.head + rows.first_pair * in.pair;
                const std::int64_t of_y = token * stretch.out_token + head * out.head + rows.first_pair * out.pair;
                rotate_head<decltype(storage)>(in, out, call.plan.sin_sign, stretch.x + in.window + of_x * bytes,
                                               stretch.y + out.window + of_y * bytes, rows, row);
            }
        }
    });
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

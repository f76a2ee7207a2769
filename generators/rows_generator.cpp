#include "rotation.h"
#include "schedule_arm.h"
#include "schedule_x86.h"

namespace halyard {

namespace {

void schedule_rows(const Target &target, Halide::Func rows, const Halide::Var &pair, const Halide::Var &token,
                   int step) {
    for (int i = 0; i < 3; i++) {
        rows.output_buffer().dim(i).set_min(0);
    }
    (target.arch == Target::ARM ? schedule_rows_arm : schedule_rows_x86)(rows, pair, token, step);
}

}  // namespace

/// Fixed-point turns: a row of cos and sin from a position and frequencies alone, without a table. A frequency is a
/// fraction of a turn per position in 64 bits, so position times frequency wraps modulo one turn exactly, at any
/// position. What is left of it in 32 bits is less than 1.5e-9 rad off.
class RowsPhase : public Halide::Generator<RowsPhase> {
public:
    GeneratorParam<int> pairs_per_step{"pairs_per_step", 16, 4, 64};

    Input<Buffer<int32_t, 1>> position{"position"};       // [token]
    Input<Buffer<uint32_t, 1>> turns_high{"turns_high"};  // [pair]: 2^32 is one turn per position,
    Input<Buffer<uint32_t, 1>> turns_low{"turns_low"};    // [pair]: and 2^64 with this below it
    Input<float> scale_high{"scale_high"};                // attention_factor in two parts
    Input<float> scale_low{"scale_low"};
    Output<Buffer<float, 3>> rows{"rows"};  // [pair, cos or sin, token]

    void generate() {
        const Expr p = position(t), low = turns_low(k);
        // The upper half of 64 bits, by a widening product of the lower words; a negative p is p + 2^32 there.
        const Expr carry = cast<uint32_t>((cast<uint64_t>(low) * cast<uint64_t>(cast<uint32_t>(p))) >> 32);
        const Expr turns = turns_high(k) * cast<uint32_t>(p) + carry - select(p < 0, low, Expr(0u));

        // The nearest quarter turn, and what is left of it: an eighth of a turn or less, as float.
        const Expr quarter = (turns + Expr(0x20000000u)) >> 30;
        const Expr rest = cast<int32_t>(turns - (quarter << 30));
        const Expr coarse = cast<float>(rest & ~63), fine = cast<float>(rest & 63);  // both exact in 24 bits

        // z + tail is the angle in radians: 2 pi / 2^32 in two parts, products to twice float precision.
        const Expr unit = 0x1.921fb6p-30f, unit_low = -0x1.777a5cp-55f;
        const Expr z = Halide::strict_float(coarse * unit);
        const Expr tail = sum(fine, unit, sum(coarse, unit_low, sum(coarse, unit, flip_sign(z, sign_bit))));

        // Minimax polynomials on an eighth of a turn (Remez; sin z = z + z^3 P, cos z = 1 - (z^2/2 - z^4 Q); within
        // 2e-9 and 1e-10). Only the first term's rounding matters, so the others are kept apart from it.
        const Expr w = Halide::strict_float(z * z), half_w = Halide::strict_float(w * 0.5f);
        const Expr p_of_w = sum(w, sum(w, -1.94956359e-4f, 8.33197869e-3f), -1.66666508e-1f);
        const Expr q_of_w = sum(w, sum(w, 2.44384515e-5f, -1.38873677e-3f), 4.16666456e-2f);
        const Expr zw = Halide::strict_float(z * w), ww = Halide::strict_float(w * w);
        const Expr sin_rest = sum(zw, p_of_w, sum(tail, flip_sign(half_w, sign_bit), tail));
        const Expr one_less_cos = sum(tail, z, sum(flip_sign(ww, sign_bit), q_of_w, half_w));
        const Expr scaled_low = Halide::strict_float(scale_low * z);
        const Expr sin = sum(scale_high, z, sum(scale_high, sin_rest, scaled_low));
        const Expr cos =
            Halide::strict_float(scale_high + sum(flip_sign(scale_high, sign_bit), one_less_cos, scale_low));

        // Turn by the quarters: swap in odd ones, and the signs of the quadrant.
        const Expr is_odd = (quarter & 1) != 0;
        const Expr cos_sign = ((quarter + 1) & 2) << 30, sin_sign = (quarter & 2) << 30;
        rows(k, c, t) = Halide::undef<float>();
        rows(k, Halide::scatter(0, 1), t) = Halide::gather(flip_sign(select(is_odd, sin, cos), cos_sign),
                                                           flip_sign(select(is_odd, cos, sin), sin_sign));
        for (Halide::Internal::Dimension dim : {position.dim(0), turns_high.dim(0), turns_low.dim(0)}) {
            dim.set_min(0);
        }
        schedule_rows(target, rows, k, t, pairs_per_step);
    }

private:
    Var k{"k"}, c{"c"}, t{"t"};

    Expr sum(const Expr &a, const Expr &b, const Expr &addend) { return precise_fma(target, a, b, addend); }
};

/// A row from two: the angle of a position is that of a multiple of n plus that of the remainder, and angles add by one
/// complex product. A table of N positions becomes two of sqrt(N) rows.
class RowsFactored : public Halide::Generator<RowsFactored> {
public:
    GeneratorParam<int> pairs_per_step{"pairs_per_step", 16, 4, 64};

    Input<Buffer<int32_t, 1>> coarse_row{"coarse_row"};  // [token]
    Input<Buffer<int32_t, 1>> fine_row{"fine_row"};      // [token]
    Input<Buffer<float, 3>> coarse{"coarse"};            // [pair, cos or sin, row]
    Input<Buffer<float, 3>> fine{"fine"};                // likewise
    Output<Buffer<float, 3>> rows{"rows"};               // [pair, cos or sin, token]

    void generate() {
        const Expr at_coarse = unsafe_promise_clamped(coarse_row(t), 0, coarse.dim(2).extent() - 1);
        const Expr at_fine = unsafe_promise_clamped(fine_row(t), 0, fine.dim(2).extent() - 1);
        const Expr cos_a = coarse(k, 0, at_coarse), sin_a = coarse(k, 1, at_coarse);
        const Expr cos_b = fine(k, 0, at_fine), sin_b = fine(k, 1, at_fine);
        const Expr minus = Halide::strict_float(flip_sign(sin_a, sign_bit) * sin_b);
        const Expr plus = Halide::strict_float(cos_a * sin_b);
        rows(k, c, t) = Halide::undef<float>();
        rows(k, Halide::scatter(0, 1), t) =
            Halide::gather(precise_fma(target, cos_a, cos_b, minus), precise_fma(target, sin_a, cos_b, plus));
        for (Halide::Internal::Dimension dim : {coarse_row.dim(0), fine_row.dim(0), coarse.dim(0), coarse.dim(1),
                                                coarse.dim(2), fine.dim(0), fine.dim(1), fine.dim(2)}) {
            dim.set_min(0);
        }
        schedule_rows(target, rows, k, t, pairs_per_step);
    }

private:
    Var k{"k"}, c{"c"}, t{"t"};
};

}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::RowsPhase, rows_phase)
HALIDE_REGISTER_GENERATOR(halyard::RowsFactored, rows_factored)

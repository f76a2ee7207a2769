#include "arithmetic/angles.h"
#include "choose_schedule.h"

namespace halyard {

/// A row of cos and sin from a position and frequencies alone, without a table: see phase_angle.
class RowsPhase : public Halide::Generator<RowsPhase> {
public:
    GeneratorParam<int> pairs_per_step{"pairs_per_step", 16, 4, 64};

    Input<Buffer<int32_t, 1>> position{"position"};       // [token]
    Input<Buffer<uint32_t, 1>> turns_high{"turns_high"};  // [pair]
    Input<Buffer<uint32_t, 1>> turns_low{"turns_low"};    // [pair]
    Input<float> scale_high{"scale_high"};
    Input<float> scale_low{"scale_low"};
    Output<Buffer<float, 3>> rows{"rows"};  // [pair, cos or sin, token]

    void generate() {
        const Angle angle =
            phase_angle<ExprMath>({target}, position(t), turns_high(k), turns_low(k), scale_high, scale_low);
        rows(k, c, t) = Halide::undef<float>();
        rows(k, Halide::scatter(0, 1), t) = Halide::gather(angle.cos, angle.sin);
        begin_at_zero(position, turns_high, turns_low, rows);
        schedule_rows(target, rows, k, t, pairs_per_step);
    }

private:
    Var k{"k"}, c{"c"}, t{"t"};
};

/// Makes a row from two: a position is a multiple of n plus a remainder, and one complex product adds their angles. So
/// two tables of sqrt(N) rows serve N positions.
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
        const Angle angle = sum_angle<ExprMath>({target}, {coarse(k, 0, at_coarse), coarse(k, 1, at_coarse)},
                                                {fine(k, 0, at_fine), fine(k, 1, at_fine)});
        rows(k, c, t) = Halide::undef<float>();
        rows(k, Halide::scatter(0, 1), t) = Halide::gather(angle.cos, angle.sin);
        begin_at_zero(coarse_row, fine_row, coarse, fine, rows);
        schedule_rows(target, rows, k, t, pairs_per_step);
    }

private:
    Var k{"k"}, c{"c"}, t{"t"};
};

}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::RowsPhase, rows_phase)
HALIDE_REGISTER_GENERATOR(halyard::RowsFactored, rows_factored)

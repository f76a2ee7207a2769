#include "arithmetic/angles.h"
#include "schedule_cpu.h"

namespace halyard {

/// Makes rows of cos and sin from positions and frequencies, without a table: see phase_angle.
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
        const Angle angle = phase_angle<ExprMath>({}, position(t), turns_high(k), turns_low(k), scale_high, scale_low);
        rows(k, c, t) = Halide::undef<float>();
        rows(k, Halide::scatter(0, 1), t) = Halide::gather(angle.cos, angle.sin);
        begin_at_zero(position, turns_high, turns_low, rows);
        schedule_rows(target, rows, k, t, pairs_per_step);
    }

private:
    Var k{"k"}, c{"c"}, t{"t"};
};

}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::RowsPhase, rows_phase)

// The orthonormal Hadamard transform (Sylvester's) of blocks of n = 64, 128, 256, … elements. All elements are
// multiplied by 1 / sqrt(n). Then elements u and v at a distance of 1, then 2, 4, …, become u + v and u - v. That is
// ggml's order, so results have the same bits as ggml's.
#include "arithmetic/angles.h"
#include "schedule.h"

#include <string>
#include <vector>

namespace halyard {

/// The steps of distances 1 to 32, on blocks of 64 elements, which stay in registers.
class Hadamard : public Halide::Generator<Hadamard> {
public:
    Input<float> scale{"scale"};      // 1 / sqrt(n)
    Input<Buffer<float, 2>> x{"x"};   // [element, block]
    Output<Buffer<float, 2>> y{"y"};  // likewise; x may be y: a block is read before it is written

    void generate() {
        Func from("scaled");
        from(e, b) = Halide::strict_float(x(e, b) * scale);
        // Always 1, but LLVM must not know that, or it would split the fma into sums and differences again.
        const Expr one = select(scale > 0.0f, 1.0f, -1.0f);
        std::vector<Func> steps;
        // The products with scale are computed once (compute_at) only with AVX-512, which has enough registers: a block
        // of 128 takes 13 ns with compute_at, 19 without; with AVX2, 51 with, 34 without (Intel, family 6 model 167).
        if (has_masks(target)) {
            steps.push_back(from);
        }
        for (int distance = 1; distance < n; distance *= 2) {
            Func sums("sums_" + std::to_string(distance));
            const Expr is_first = (e & distance) == 0;
            const Expr other = Halide::clamp(e + distance - 2 * (e & distance), 0, n - 1);  // e ^ distance, with bounds
            // If u and v are in one vector on x86, one fma with 1 or -1, whose product is exact, makes u + v and u - v.
            sums(e, b) = distance < lanes && get_target().arch == Halide::Target::X86
                             ? fma(from(e, b), select(is_first, one, -one), from(other, b))
                             : select(is_first, from(e, b) + from(other, b), from(other, b) - from(e, b));
            steps.push_back(sums);
            from = sums;
        }
        y(e, b) = from(e, b);
        begin_at_zero(x, y);

        y.bound(e, 0, n).vectorize(e, lanes).unroll(e);
        for (Func step : steps) {
            step.compute_at(y, b).bound(e, 0, n).store_in(Halide::MemoryType::Stack).vectorize(e, lanes).unroll(e);
        }
    }

private:
    static constexpr int n = 64, lanes = 16;
    Var e{"e"}, b{"b"};
};

/// The step of one more distance, in whole vectors. (Shorter distances, which no known engine needs, are slower.)
class Butterfly : public Halide::Generator<Butterfly> {
public:
    Input<Buffer<float, 3>> x{"x"};   // [element, u or v, pair of blocks]
    Output<Buffer<float, 3>> y{"y"};  // likewise; x may be y

    void generate() {
        Func both("both");
        both(e, b) = Halide::Tuple(x(e, 0, b) + x(e, 1, b), x(e, 0, b) - x(e, 1, b));
        y(e, m, b) = select(m == 0, both(e, b)[0], both(e, b)[1]);
        begin_at_zero(x, y);

        y.bound(m, 0, 2).reorder(m, e, b).unroll(m);
        const Expr is_whole = y.dim(0).extent() % lanes == 0;
        y.specialize(is_whole).vectorize(e, lanes, Halide::TailStrategy::RoundUp);
        both.compute_at(y, e);
        both.specialize(is_whole).vectorize(e, lanes);
    }

private:
    static constexpr int lanes = 16;
    Var e{"e"}, m{"m"}, b{"b"};
};

}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::Hadamard, hadamard)
HALIDE_REGISTER_GENERATOR(halyard::Butterfly, butterfly)

// Numbers of groups become the elements of records: a byte each.
#include "arithmetic/angles.h"
#include "arithmetic/norm.h"
#include "arithmetic/storage.h"
#include "schedule.h"

namespace halyard {

/// Floats of groups, which stand in the place of heads, to integers or floats of 8 bits, with a reciprocal scale and a
/// zero point for each group.
class Quantise : public Halide::Generator<Quantise> {
public:
    GeneratorParam<Dtype> dtype{"dtype", Dtype::int8, dtypes_of_caches};

    Input<int32_t> mode{"mode"};  // of integers, as all up to x
    Input<float> low{"low"};
    Input<float> high{"high"};
    Input<Buffer<float, 3>> x{"x"};     // [element, head, token], 16 elements or more
    Input<Buffer<float, 2>> r{"r"};     // [head, token]
    Input<Buffer<float, 2>> z{"z"};     // likewise, of any strides
    Output<Buffer<uint8_t, 3>> y{"y"};  // [element, head, token]

    void generate() {
        // A NaN counts as 0, and so does all of a group whose r is 0.
        const Expr by = r(h, t), kept = select(Halide::strict_float(by == 0.0f), Expr(0u), Expr(0xffffffffu));
        const Expr v = reinterpret<float>(reinterpret<uint32_t>(x(e, h, t)) & kept);
        const Expr counted = select(Halide::strict_float(v == v), v, 0.0f);
        const Expr product = Halide::strict_float(counted * by);
        q(e, h, t) = dtype == Dtype::int8 ? to_integer(counted, by, product)
                                          : cast<int32_t>(narrow(target, dtype, product, false));
        y(e, h, t) = cast<uint8_t>(q(e, h, t));
        begin_at_zero(x, r, z, y);
        z.dim(0).set_stride(Expr());

        for (int known = 0; known < (dtype == Dtype::int8 ? 2 : 0); known++) {
            in_vectors(Halide::Func(y).specialize(mode == known));
        }
        in_vectors(Halide::Func(y));
        // In registers: a vector of more of them is compared as a whole and chosen from in parts, which takes longer.
        q.compute_at(y, vectors).vectorize(e, natural_vector_size<float>()).unroll(e);
    }

private:
    Var e{"e"}, h{"h"}, t{"t"}, vectors{"vectors"};
    Halide::Func q{"q"};

    /// The result is in the low byte. Adding 1.5 * 2^23 leaves the rounded number in the low bits. Such sums are
    /// clamped as integers, since numbers of any size keep their order, and nothing is NaN. Halves go away from zero if
    /// .5, less its last place, is added before the rest is cut off: were it .5, the number below .5 would become 1.
    Expr to_integer(const Expr &v, const Expr &by, const Expr &product) const {
        const auto rounded = [](const Expr &t) { return reinterpret<int32_t>(Halide::strict_float(t + 0x1.8p23f)); };
        const Expr sign = reinterpret<uint32_t>(product) & sign_bit;
        const Expr almost_half = reinterpret<float>(sign | Expr(0x3effffffu));
        const Expr cut = Halide::trunc(Halide::strict_float(product + select(mode == 1, almost_half, z(h, t))));
        const Expr number = select(mode == 0, fma(target, v, by, z(h, t)), cut);
        return Halide::max(Halide::min(rounded(number), rounded(high)), rounded(low));
    }

    void in_vectors(Halide::Stage stage) {
        const Expr n_elements = y.dim(0).extent();
        for (int known = 2 * lanes; known <= vectors_in_step(target) * lanes; known *= 2) {
            stage.specialize(n_elements == known)
                .split(e, vectors, e, lanes, Halide::TailStrategy::RoundUp)
                .unroll(vectors)
                .vectorize(e);
        }
        stage.split(e, vectors, e, lanes, Halide::TailStrategy::ShiftInwards).vectorize(e);
    }
};

}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::Quantise, quantise)

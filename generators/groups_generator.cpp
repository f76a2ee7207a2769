// Quantises floats of groups to the elements of records, a byte each, and converts elements back to floats.
#include "arithmetic/angles.h"
#include "arithmetic/norm.h"
#include "arithmetic/storage.h"
#include "schedule.h"

namespace halyard {

/// The float next below .5, with the sign of v. Adding it and truncating rounds to nearest, halves away from zero.
/// (With .5, the float next below .5 would become 1.)
inline Expr below_half_with_sign_of(const Expr &v) {
    return reinterpret<float>(reinterpret<uint32_t>(v) & sign_bit | Expr(0x3effffffu));
}

/// Quantises floats to integers or floats of 8 bits, with a reciprocal scale and a zero point for each group. The
/// dimension `head` of the arrays counts groups.
class Quantise : public Halide::Generator<Quantise> {
public:
    GeneratorParam<Dtype> dtype{"dtype", Dtype::int8, dtypes_of_caches};

    Input<int32_t> mode{"mode"};  // see halyard_quantise_kernel; mode, low and high are for int8 only
    Input<float> low{"low"};
    Input<float> high{"high"};
    Input<Buffer<float, 3>> x{"x"};     // [element, head, token]
    Input<Buffer<float, 2>> r{"r"};     // [head, token]
    Input<Buffer<float, 2>> z{"z"};     // likewise, of any strides
    Output<Buffer<uint8_t, 3>> y{"y"};  // [element, head, token]

    void generate() {
        // A NaN counts as 0, and so do all elements of a group whose r is 0.
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
        // Vectors of one register: LLVM would compare a larger vector as a whole but select in parts, which is slower.
        q.compute_at(y, vectors);
        q.specialize(has_vectors()).vectorize(e, natural_vector_size<float>()).unroll(e);
    }

private:
    Var e{"e"}, h{"h"}, t{"t"}, vectors{"vectors"};
    Halide::Func q{"q"};

    /// The result is in the low byte. Adding 1.5 * 2^23 leaves the rounded number in the low bits. Such sums are
    /// clamped as integers: their bits have the same order as the numbers, however large these are, and none is NaN.
    Expr to_integer(const Expr &v, const Expr &reciprocal, const Expr &product) const {
        const auto rounded = [](const Expr &t) { return reinterpret<int32_t>(Halide::strict_float(t + 0x1.8p23f)); };
        const Expr cut =
            Halide::trunc(Halide::strict_float(product + select(mode == 1, below_half_with_sign_of(product), z(h, t))));
        const Expr number = select(mode == 0, fma(v, reciprocal, z(h, t)), cut);
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
        stage.specialize(has_vectors()).split(e, vectors, e, lanes, Halide::TailStrategy::ShiftInwards).vectorize(e);
        // The innermost loop is over heads, or else LLVM would call memset for the elements of a head whose r is 0.
        stage.split(h, h, vectors, 1).reorder(vectors, h, e, t);
    }

    Expr has_vectors() const { return y.dim(0).extent() >= lanes; }
};

/// Elements in a group of ggml's q8_0, llama.cpp's most common quantised cache. Its records are integers of 8 bits with
/// an f16 scale for each group. One kernel writes them, and one reads them.
inline constexpr int q8_group = 32;
inline constexpr int most_groups = 256;  // in one call

/// Quantises finite floats to groups, each with a scale: its largest magnitude / 127. Groups are reduced 16 at a time,
/// because the latency of a single group's division would dominate.
class StoreGroups : public Halide::Generator<StoreGroups> {
public:
    Input<int32_t> reciprocal{"reciprocal"};        // 0 … 2, see halyard_store_groups_kernel
    Input<int32_t> away{"away"};                    // 1: halves are rounded away from zero
    Input<Buffer<float, 2>> x{"x"};                 // [element, group of any head]
    Output<Buffer<uint8_t, 3>> y{"y"};              // [element, group, head]
    Output<Buffer<uint16_t, 2>> scales{"scales"};   // [group, head]
    Output<Buffer<int32_t, 0>> largest{"largest"};  // the bits of the largest magnitude; a NaN's are larger than any

    void generate() {
        number(g) = scale_and_reciprocal(largest_of_group());
        const Expr n_groups = x.dim(1).extent(), at = g + h * y.dim(1).extent();
        const Expr product = Halide::strict_float(x(e, at) * number(at)[1]);
        const Expr rounded = reinterpret<int32_t>(Halide::strict_float(round_away_if_asked(product) + 0x1.8p23f));
        // With 127 / largest magnitude no integer exceeds 127, so nothing is clamped.
        y(e, g, h) = select(is_usual(), cast<uint8_t>(rounded),
                            cast<uint8_t>(Halide::saturating_cast<int8_t>(rounded - 0x4b400000)));
        scales(g, h) = number(at)[0];

        const Halide::RDom whole(0, n_groups / lanes, "whole"), rest(0, n_groups % lanes, "rest");
        in_lanes(e) = 0;
        in_lanes(e) = Halide::max(in_lanes(e), number(e + whole * lanes)[2]);
        largest() = 0;
        largest() = Halide::max(largest(), in_lanes(lane));
        largest() = Halide::max(largest(), number(n_groups / lanes * lanes + rest)[2]);
        constrain();
        schedule();
    }

private:
    Var e{"e"}, g{"g"}, h{"h"};
    Halide::Func number{"number"}, in_lanes{"in_lanes"};
    Halide::RDom lane{0, lanes, "lane"};
    static constexpr int by_scale = 1, by_largest = 2;  // values of reciprocal
    std::vector<Halide::Func> halves;

    Expr is_usual() const { return reciprocal == by_largest && away == 0; }

    Expr magnitude(const Expr &element) const { return reinterpret<int32_t>(x(element, g)) & 0x7fffffff; }

    /// The bits of a group's largest magnitude. Magnitudes are compared as integers, among which NaNs are the largest.
    Expr largest_of_group() {
        Halide::Func from("halves_16");
        from(e, g) = Halide::max(magnitude(e), magnitude(e + lanes));
        halves = {from};
        for (const int half : {8, 4}) {
            Halide::Func joined("halves_" + std::to_string(half));
            joined(e, g) = Halide::max(from(e, g), from(e + half, g));
            halves.push_back(joined);
            from = joined;
        }
        return Halide::max(Halide::max(from(0, g), from(2, g)), Halide::max(from(1, g), from(3, g)));
    }

    /// Three numbers of a group, from the bits of its largest magnitude: the scale as stored, the factor of elements,
    /// and the bits.
    Tuple scale_and_reciprocal(const Expr &bits) const {
        const Expr most = reinterpret<float>(bits), scale = Halide::strict_float(most / 127.0f);
        const Expr word = reinterpret<uint16_t>(narrow(target, Dtype::f16, scale));
        const Expr of_largest = reciprocal == by_largest;
        const Expr of_scale = select(reciprocal == by_scale, scale, widen_f16(word));
        const Expr quotient =
            Halide::strict_float(select(of_largest, 127.0f, 1.0f) / select(of_largest, most, of_scale));
        const Expr is_finite = (reinterpret<uint32_t>(quotient) & 0x7f800000) != 0x7f800000;
        return Tuple(word, select(is_finite, quotient, 0.0f), bits);
    }

    /// If away is 1, v rounded to nearest, halves away from zero; else v, which a later sum rounds to nearest even.
    Expr round_away_if_asked(const Expr &v) const {
        return select(away == 1, Halide::trunc(Halide::strict_float(v + below_half_with_sign_of(v))), v);
    }

    void constrain() {
        begin_at_zero(x, y);
        x.dim(0).set_extent(q8_group);
        x.dim(1).set_stride(q8_group);
        y.dim(0).set_extent(q8_group);
        scales.dim(0).set_bounds(0, y.dim(1).extent()).set_stride(Expr());
        scales.dim(1).set_bounds(0, y.dim(2).extent());
    }

    void schedule() {
        using Halide::TailStrategy;
        const auto in_vectors = [&](Halide::Stage stage) { stage.vectorize(e, lanes).unroll(e); };
        const Expr four = y.dim(1).extent() == 4;  // groups, as in a head of 128
        Halide::Stage usual = Halide::Func(y).specialize(is_usual() && four);
        in_vectors(usual);
        usual.unroll(g);
        in_vectors(Halide::Func(y).specialize(is_usual()));
        in_vectors(Halide::Func(y));
        scales.specialize(four).unroll(g);
        number.compute_root().store_in(Halide::MemoryType::Stack).bound_storage(g, most_groups);
        // If is_usual, the factor of elements is computed from the largest magnitude, without waiting for the scale.
        const Expr n_groups = x.dim(1).extent();
        number.specialize(is_usual() && n_groups >= lanes).vectorize(g, lanes, TailStrategy::ShiftInwards);
        for (const int n : {lanes, 4}) {
            number.specialize(n_groups >= n).vectorize(g, n, TailStrategy::ShiftInwards);
        }
        // Partial maxima of a group stay in registers. The last four are stored, and loaded across groups only after
        // all groups have stored theirs, since a load that spans several recent stores stalls (.55 to .75 of the time).
        Halide::Func last = halves.back();
        last.compute_root().bound_storage(g, most_groups);
        for (std::size_t i = 0; i < halves.size(); i++) {
            halves[i].store_in(Halide::MemoryType::Stack).bound_extent(e, lanes >> i).vectorize(e);
            halves[i].compute_at(i + 1 < halves.size() ? Halide::LoopLevel(last, g) : Halide::LoopLevel::root());
        }
        in_lanes.compute_root().store_in(Halide::MemoryType::Stack).bound_extent(e, lanes).vectorize(e);
        in_lanes.update().vectorize(e, lanes);
        largest.update().atomic().vectorize(lane);
        largest.update(1).unscheduled();
    }
};

/// Converts such groups back to floats.
class LoadGroups : public Halide::Generator<LoadGroups> {
public:
    Input<Buffer<int8_t, 3>> x{"x"};              // [element, group, head]
    Input<Buffer<uint16_t, 2>> scales{"scales"};  // [group, head]
    Output<Buffer<float, 3>> y{"y"};              // [element, group, head]

    void generate() {
        y(e, g, h) = Halide::strict_float(cast<float>(x(e, g, h)) * widen_f16(scales(g, h)));
        begin_at_zero(x, scales, y);
        scales.dim(0).set_stride(Expr());
        y.dim(0).set_extent(q8_group);
        y.vectorize(e, lanes).unroll(e);
    }

private:
    Var e{"e"}, g{"g"}, h{"h"};
};

}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::Quantise, quantise)
HALIDE_REGISTER_GENERATOR(halyard::StoreGroups, store_groups)
HALIDE_REGISTER_GENERATOR(halyard::LoadGroups, load_groups)

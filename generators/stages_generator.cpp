// The stages of a tensor between load and store, beside the rotation. Each stage is a kernel; the runtime calls them
// one after the other on a block of floats in the L1 cache.
#include "arithmetic/angles.h"
#include "arithmetic/norm.h"
#include "arithmetic/storage.h"
#include "schedule.h"

#include <algorithm>
#include <string>
#include <vector>

namespace halyard {

// ---- The loops -----------------------------------------------------------------------------------------------------
// All families of targets have the same loops: vectors have 16 lanes, which LLVM splits into the target's registers.
// Time of a head in ns, for 32 heads of 128 in the L1 cache (Zen 5, AVX-512, 4.1 GHz, 2026-11-22): widen bf16 2.1, norm
// f32 4.9, narrow to bf16 4.7, narrow to e4m3 7.9; memcpy 3.3. A layer norm makes three passes over a head, not two,
// and takes 1.6 to 1.8 times as long as a norm (heads of 64, 80, 128, f32, AVX2 and AVX-512, 2026-11-23).

/// The loop for heads that are a multiple of a step: unrolled vectors.
inline void vectorize_whole_steps(const Halide::Target &target, Halide::Stage stage, const Halide::Expr &n_elements,
                                  const Halide::Var &element) {
    using namespace Halide;
    const Var outer("step"), inner("inner"), vectors("vectors");
    const int step = vectors_in_step(target) * lanes;
    stage.specialize(n_elements % step == 0)
        .split(element, outer, inner, step, TailStrategy::GuardWithIf)
        .split(inner, vectors, inner, lanes, TailStrategy::GuardWithIf)
        .unroll(vectors)
        .vectorize(inner);
}

/// The loop of conversions. A last vector that does not fit is shifted inwards, over elements that are already written,
/// so the output must not be the input.
inline void convert_in_steps(const Halide::Target &target, Halide::Stage stage, const Halide::Expr &n_elements,
                             const Halide::Var &element) {
    vectorize_whole_steps(target, stage, n_elements, element);
    stage.specialize(n_elements >= lanes).vectorize(element, lanes, Halide::TailStrategy::ShiftInwards);
}

/// Loops over groups of `heads` heads. The last group may be smaller. With last_apart it has code of its own: twice the
/// code, and .87 of the time (norm f32).
inline void in_groups(Halide::Stage stage, const Halide::Var &head, const Halide::Var &group, const Halide::Var &one,
                      int heads, bool last_apart) {
    stage.split(head, group, one, heads, Halide::TailStrategy::GuardWithIf);
    stage.partition(group, last_apart ? Halide::Partition::Auto : Halide::Partition::Never);
}

// ---- The stages ----------------------------------------------------------------------------------------------------

/// The whole vectors of a head (steps), and the remaining elements (rest, which has one iteration or none). In rest,
/// lane e is an element only if the predicate holds.
struct Vectors {
    Halide::RDom steps, rest;
    Expr element, element_of_rest;  // in lane e

    Vectors(const Expr &n_elements, const Halide::Var &e)
        : steps(0, n_elements / lanes, "steps"), rest(0, Halide::min(n_elements % lanes, 1), "rest"),
          element(e + steps * lanes), element_of_rest(e + (n_elements / lanes + rest) * lanes) {
        rest.where(e < n_elements % lanes);
    }
};

/// Always 0, but LLVM must not know that, or it would call memset for heads without a whole vector.
inline Expr zero_of(const Expr &n_elements) { return cast<int32_t>(cast<uint32_t>(n_elements) >> 31); }

/// A reduction of each head, in a fixed order: to 16 lanes, which a tree then joins to one number.
class Reduction {
    using Func = Halide::Func;
    using Var = Halide::Var;

public:
    /// Heads that are reduced together. With 32, a head takes half the time that it takes with 8, since latencies of
    /// heads' sums and roots overlap.
    static constexpr int heads_per_group = 32;

    Func in_lanes, kept;     // [lane, head, token]
    std::vector<Func> tree;  // likewise; the last one has only lane 0

    explicit Reduction(const std::string &name) : in_lanes(name), kept(name + "s") {}

    /// take(so_far, element, head, token) is a lane's new value for one more element; join(a, b) joins two lanes.
    template <typename Value, typename Take, typename Join>
    Func define(const Value &none, const Expr &n_elements, Take take, Join join) {
        const Vectors vectors(n_elements, e);
        in_lanes(e, h, t) = none;
        in_lanes(e, h, t) = take(in_lanes(e, h, t), vectors.element, h, t);
        kept(e, h, t) = in_lanes(e, h, t);
        kept(e, h, t) = take(kept(e, h, t), vectors.element_of_rest, h, t);
        Func from = kept;
        for (const int half : halves_of_lanes) {
            Func joined("lanes_" + std::to_string(half));
            joined(e, h, t) = join(from(e, h, t), from(e + half, h, t));
            tree.push_back(from = joined);
        }
        return from;
    }

    /// Computes `kept` for a group of heads at once. For a single head LLVM would keep the vector in registers and
    /// reduce its halves separately from the first element on. Elements after the last whole vector go to `kept`,
    /// because a guarded store would force in_lanes into memory for all steps. Lanes without an element do not change.
    void schedule_lanes(Func in, const Var &group, const Expr &n_elements) {
        in_lanes.compute_at(kept, h).vectorize(e, lanes);
        in_lanes.update().vectorize(e, lanes);
        in_lanes.update().specialize(n_elements % (4 * lanes) == 0).unroll(in_lanes.rvars()[0], 4);
        kept.compute_at(in, group).store_in(Halide::MemoryType::Stack).bound_storage(h, heads_per_group);
        kept.bound_extent(e, lanes).vectorize(e);
        kept.update().reorder(e, h, kept.rvars()[0]).vectorize(e);
    }

    /// The first n steps of the tree.
    void schedule_tree(Func in, const Var &head, std::size_t n) {
        for (std::size_t i = 0; i < n; i++) {
            tree[i].compute_at(in, head).vectorize(e, halves_of_lanes[i]);
        }
    }

    /// The schedule of kernels whose only output is the reduction.
    void schedule_alone(Func y, const Var &head, const Expr &n_elements) {
        in_groups(y.specialize(n_elements % lanes == 0), head, group, one, heads_per_group, false);
        in_groups(y, head, group, one, heads_per_group, false);
        schedule_lanes(y, group, n_elements);
        schedule_tree(y, one, tree.size());
    }

private:
    Var e{"e"}, h{"h"}, t{"t"}, group{"group"}, one{"one"};
};

/// Any dtype to float.
class Widen : public Halide::Generator<Widen> {
public:
    GeneratorParam<Dtype> dtype{"dtype", Dtype::f32, dtypes_of_caches};

    Input<Buffer<void>> *x;           // [element, head, token]
    Output<Buffer<float, 3>> y{"y"};  // likewise

    void configure() { x = add_input<Buffer<void>>("x", element_type(target, dtype, false), 3); }

    void generate() {
        y(e, h, t) = widen(dtype, (*x)(e, h, t));
        begin_at_zero(*x, y);
        convert_in_steps(target, Halide::Func(y), y.dim(0).extent(), e);
    }

private:
    Var e{"e"}, h{"h"}, t{"t"};
};

/// Float to any dtype, times reciprocal scales.
class Narrow : public Halide::Generator<Narrow> {
public:
    GeneratorParam<Dtype> dtype{"dtype", Dtype::f32, dtypes_of_caches};

    Input<Buffer<float, 3>> x{"x"};  // [element, head, token]
    Input<Buffer<float, 3>> r{"r"};  // likewise, of any strides
    Output<Buffer<void>> y{"y"};     // likewise

    void configure() {
        y.set_type(element_type(target, dtype, false));
        y.set_dimensions(3);
    }

    void generate() {
        y(e, h, t) = narrow(target, dtype, Halide::strict_float(x(e, h, t) * r(e, h, t)));
        begin_at_zero(x, r, y);
        r.dim(0).set_stride(Expr());
        for (const int stride : {0, 1}) {  // other strides go element by element
            convert_in_steps(target, Halide::Func(y).specialize(r.dim(0).stride() == stride), y.dim(0).extent(), e);
        }
    }

private:
    Var e{"e"}, h{"h"}, t{"t"};
};

/// A number for each head, computed from a sum over its elements.
class NumberOfHead {
    using Func = Halide::Func;
    using Var = Halide::Var;

public:
    explicit NumberOfHead(const char *name) : number(name) {}

    Func number;  // [head, token]

    /// add(sum, element, h, t) is a partial sum's new value for one more element; finish(sum) is the number.
    template <typename Add, typename Finish>
    void define(Add add, Finish finish, const Expr &n_elements, const Expr &n_heads) {
        total = sum.define(Expr(0.0f), n_elements, add,
                           [](const Expr &x, const Expr &y) { return Halide::strict_float(x + y); });
        // The last vector of numbers may have lanes beyond the last head.
        number(h, t) = finish(total(0, Halide::min(h, n_heads - 1), t));
    }

    /// Computes `number` and its sum in the loop `group` of `in`, for a group's heads of `tokens` tokens.
    void schedule(const Func &in, const Var &group, const Expr &n_elements, int tokens = 1) {
        sum.schedule_lanes(in, group, n_elements);
        sum.kept.bound_storage(t, tokens);
        sum.schedule_tree(total, h, sum.tree.size() - 1);
        for (Func of_group : {total, number}) {
            of_group.compute_at(in, group).store_in(Halide::MemoryType::Stack);
            of_group.bound_storage(h, Reduction::heads_per_group).bound_storage(t, tokens);
        }
        number.vectorize(h, 8, Halide::TailStrategy::RoundUp);
    }

private:
    Var h{"h"}, t{"t"};
    Reduction sum{"sum"};
    Func total;
};

/// x / sqrt(mean of x^2 + eps) * weight, for each head; or the same of x - mean, plus a bias.
class Norm : public Halide::Generator<Norm> {
public:
    GeneratorParam<Dtype> dtype{"dtype", Dtype::f32, dtypes};  // the dtype that `rounding` rounds to
    GeneratorParam<bool> widens{"widens", false};              // x is of that dtype; else it is float
    GeneratorParam<bool> centres{"centres", false};            // a layer norm: subtracts the mean, and adds a bias

    Input<Buffer<float, 2>> weight{"weight"};  // [element, head]
    Input<float> eps{"eps"};
    Input<int32_t> rounding{"rounding"};  // 1: before the weight, 2: after it and the bias, 3: both
    Input<Buffer<float, 2>> *bias;        // [element, head]
    Input<Buffer<void>> *x;               // [element, head, token]
    Output<Buffer<float, 3>> y{"y"};      // likewise; x may be y: an element is read only before it is written

    void configure() {
        bias = centres ? add_input<Buffer<float, 2>>("bias") : nullptr;
        x = add_input<Buffer<void>>("x", element_type(target, storage_of_x(), false), 3);
    }

    void generate() {
        const Expr n_elements = y.dim(0).extent(), n_heads = y.dim(1).extent(), n = cast<float>(n_elements);
        if (centres) {
            mean.define(
                [&](const Expr &sum, const Expr &element, const Var &head, const Var &token) {
                    return Halide::strict_float(sum + widened(element, head, token));
                },
                [&](const Expr &sum) { return mean_of(target, sum, n); }, n_elements, n_heads);
        }
        scale.define(
            [&](const Expr &sum, const Expr &element, const Var &head, const Var &token) {
                return add_square(sum, value(element, head, token));
            },
            [&](const Expr &sum) { return scale_of_norm(target, sum, n, eps); }, n_elements, n_heads);
        y(e, h, t) = norm_element(
            value(e, h, t), scale.number(h, t), weight(e, h), [&](const Expr &v, int flag) { return rounded(v, flag); },
            centres ? (*bias)(e, h) : Expr());
        begin_at_zero(weight, *x, y);

        if (centres) {
            begin_at_zero(*bias);
            mean.schedule(y, group, n_elements);
        }
        scale.schedule(y, group, n_elements);
        // Specialised for each usual `rounding`; layer norms mostly round after the bias, as torch does, or never.
        Halide::Stage whole = y.specialize(n_elements % lanes == 0);
        for (int flags = centres ? HALYARD_NORM_ROUND_AFTER_WEIGHT : 0; flags < (dtype == Dtype::f32 ? 0 : 3);
             flags++) {
            multiply_in_groups(whole.specialize(rounding == flags));
        }
        multiply_in_groups(whole);
        in_groups(y, h, group, one, Reduction::heads_per_group, false);
        y.vectorize(e, lanes, Halide::TailStrategy::GuardWithIf);
    }

private:
    Var e{"e"}, h{"h"}, t{"t"}, group{"group"}, one{"one"};
    NumberOfHead scale{"scale"}, mean{"mean"};

    Expr widened(const Expr &element, const Var &head, const Var &token) const {
        return widen(storage_of_x(), (*x)(element, head, token));
    }
    Expr value(const Expr &element, const Var &head, const Var &token) const {
        const Expr v = widened(element, head, token);
        return centres ? Halide::strict_float(v - mean.number(head, token)) : v;
    }

    Dtype storage_of_x() const { return widens ? dtype : Dtype::f32; }

    /// v rounded to dtype if this flag is set in `rounding`.
    Expr rounded(const Expr &v, int flag) const {
        constexpr int both = HALYARD_NORM_ROUND_BEFORE_WEIGHT | HALYARD_NORM_ROUND_AFTER_WEIGHT;
        const Expr is_unset = rounding == 0 || rounding == (both ^ flag);
        return dtype == Dtype::f32 ? v : select(is_unset, v, round_to(target, dtype, v));
    }

    void multiply_in_groups(Halide::Stage stage) {
        in_groups(stage, h, group, one, Reduction::heads_per_group, dtype == Dtype::f32);
        vectorize_whole_steps(target, stage, y.dim(0).extent(), e);
        stage.vectorize(e, lanes, Halide::TailStrategy::RoundUp);
    }
};

/// A norm and a rotation of whole heads in one pass, in half pairing: the KV path's most common stages, without a block
/// of floats between them. Gives the bits of widen_norm, rotate and narrow.
class NormRotate : public Halide::Generator<NormRotate> {
public:
    GeneratorParam<Dtype> dtype{"dtype", Dtype::f32, dtypes};

    Input<Buffer<float, 2>> weight{"weight"};  // [pair, member]
    Input<float> eps{"eps"};
    RowInputs rows;
    Input<uint32_t> *sin_sign;    // 0; the inverse 0x80000000
    Input<Buffer<void>> *x;       // [pair, member, head, token]; the number of pairs is a multiple of 16
    Output<Buffer<void>> y{"y"};  // likewise; x may be y: both members of a pair are read before they are written

    void configure() {
        rows.add_to(*this);
        sin_sign = add_input<uint32_t>("sin_sign");
        x = add_input<Buffer<void>>("x", element_type(target, dtype, false), 4);
        y.set_type(element_type(target, dtype, false));
        y.set_dimensions(4);
    }

    void generate() {
        const Expr n_pairs = y.dim(0).extent(), n_heads = y.dim(2).extent();
        // First members are whole vectors, and second members follow them in memory, so member 0 is indexed beyond its
        // end to reach the whole head.
        scale.define(
            [&](const Expr &sum, const Expr &element, const Var &head, const Var &token) {
                return add_square(sum, widen(dtype, (*x)(element, 0, head, token)));
            },
            [&](const Expr &sum) { return scale_of_norm(target, sum, cast<float>(2 * n_pairs), eps); },
            Halide::max(n_pairs / lanes, 1) * (2 * lanes), n_heads);

        const Format format = {target, dtype, in_words(),
                               rounding_of(target, rounds_by_test(), *sin_sign & 0x7fffffff)};
        std::vector<Expr> x0 = normed(format, 0), x1 = normed(format, 1);
        for (int i = 0; i < n_joined(); i++) {
            const Angle row = rows.at(pair(i), t);
            // A NaN here is canonical, or comes from x, which is widened bf16. In both cases the lower half of its bits
            // is zero, as round_to_bf16 requires.
            const Expr sin = flip_sign(canonical_nan(row.sin), *sin_sign);
            const Pair both = rotate(target, {x0[i], x1[i]}, canonical_nan(row.cos), sin);
            x0[i] = both.x0;
            x1[i] = both.x1;
        }
        rotated(k, h, t) = Tuple(format.element(x0), format.element(x1));
        const Expr joined = k / n_joined();
        const Expr element = select(r == 0, rotated(joined, h, t)[0], rotated(joined, h, t)[1]);
        y(k, r, h, t) = in_words() ? Halide::extract_bits<uint16_t>(element, 16 * (k % 2)) : element;
        begin_at_zero(weight, *x, y);
        rows.constrain();

        scale.schedule(y, group, 2 * n_pairs, tokens_per_group());
        for (const int known : known_pairs) {
            if (known % lanes == 0) {
                rotate_in_groups(Halide::Func(y).specialize(n_pairs == known), known);
            }
        }
        rotate_in_groups(Halide::Func(y), lanes);
        y.bound(r, 0, 2);
        rotated.compute_at(y, vectors).vectorize(k);
    }

private:
    Var k{"k"}, r{"r"}, h{"h"}, t{"t"}, group{"group"}, one{"one"}, vectors{"vectors"};
    Func rotated{"rotated"};  // [element, head, token] -> both members
    NumberOfHead scale{"scale"};

    /// Whether two neighbours are read, rounded and written as one word.
    bool in_words() const { return dtype == Dtype::bf16 && joins_neighbours(get_target()); }
    int n_joined() const { return in_words() ? 2 : 1; }
    Expr pair(int i) const { return k * n_joined() + i; }

    /// Whether bf16 rounds by_test, which is faster if words fill registers.
    Expr rounds_by_test() const {
        Expr fills = Halide::Internal::const_false();
        for (const int known : known_pairs) {
            fills = known % (2 * lanes) == 0 ? fills || y.dim(0).extent() == known : fills;
        }
        return cast<bool>(Expr(has_masks(get_target()))) && fills;
    }

    /// Members of pairs, times scale and weight.
    std::vector<Expr> normed(const Format &format, int member) {
        Expr element = (*x)(pair(0), member, h, t);
        if (in_words()) {
            element = Halide::concat_bits({element, (*x)(pair(1), member, h, t)});
        }
        std::vector<Expr> floats = format.floats(element);
        for (int i = 0; i < n_joined(); i++) {
            floats[i] = norm_element(floats[i], scale.number(h, t), canonical_nan(weight(pair(i), member)),
                                     [](const Expr &v, int) { return v; });
        }
        return floats;
    }

    /// With two tokens the latency of square roots is paid once for both: .85 of the time for 8 heads (AVX-512). Two
    /// tokens' heads of f32 would not stay in the L1 cache.
    int tokens_per_group() const { return dtype == Dtype::f32 ? 1 : 2; }

    /// A step's rows and weights are read once for all heads of a group.
    void rotate_in_groups(Halide::Stage stage, int n_pairs) {
        const Var outer("step"), inner("inner"), tokens("tokens"), token("token");
        // For heads of 48 pairs, one vector that LLVM splits is faster than vectors of half an AVX-512 register.
        const int rest = in_words() && has_masks(get_target()) ? n_pairs : lanes;
        const int in_vector = n_pairs % (2 * lanes) == 0 ? n_joined() * lanes : rest;
        in_groups(stage, h, group, one, Reduction::heads_per_group, false);
        stage.split(t, tokens, token, tokens_per_group(), Halide::TailStrategy::GuardWithIf)
            .partition(tokens, Halide::Partition::Never)
            .split(k, outer, inner, std::min(n_pairs, 4 * lanes), Halide::TailStrategy::RoundUp)
            .split(inner, vectors, inner, in_vector, Halide::TailStrategy::RoundUp)
            .reorder(inner, r, vectors, one, outer, token, group, tokens)
            .unroll(vectors)
            .unroll(r)
            .vectorize(inner);
    }
};

/// The largest magnitude of the finite elements of each head; 0 if a head has none.
class Largest : public Halide::Generator<Largest> {
public:
    Input<Buffer<float, 3>> x{"x"};   // [element, head, token]
    Output<Buffer<float, 2>> y{"y"};  // [head, token]

    void generate() {
        const Expr n_elements = x.dim(0).extent();
        Halide::Func of_head = most.define(
            zero_of(n_elements), n_elements,
            [&](const Expr &so_far, const Expr &element, const Var &head, const Var &token) {
                const Expr magnitude = reinterpret<int32_t>(x(element, head, token)) & 0x7fffffff;
                return Halide::max(so_far, select(magnitude < 0x7f800000, magnitude, 0));
            },
            [](const Expr &a, const Expr &b) { return Halide::max(a, b); });
        y(h, t) = reinterpret<float>(of_head(0, h, t));
        begin_at_zero(x, y);
        most.schedule_alone(y, h, n_elements);
    }

private:
    Var h{"h"}, t{"t"};
    Reduction most{"most"};
};

/// The minimum and the maximum of the finite elements of each head; both are 0 if a head has none.
class Range : public Halide::Generator<Range> {
public:
    Input<Buffer<float, 3>> x{"x"};                                          // [element, head, token]
    Output<Halide::Func> y{"y", {Halide::Float(32), Halide::Float(32)}, 2};  // [head, token] -> least, greatest

    void generate() {
        const Expr n_elements = x.dim(0).extent();
        Halide::Func of_head = min_max.define(
            Tuple(Expr(INFINITY), Expr(-INFINITY)), n_elements,
            [&](const Tuple &so_far, const Expr &element, const Var &head, const Var &token) {
                // NaN if v is not finite. Comparisons with NaN are false, so they choose the other operand.
                const Expr v = x(element, head, token), finite = fma(v, 0.0f, v);
                return Tuple(lesser(finite, so_far[0]), greater(finite, so_far[1]));
            },
            [](const Tuple &a, const Tuple &b) { return Tuple(lesser(a[0], b[0]), greater(a[1], b[1])); });
        const Tuple found = of_head(0, h, t);
        y(h, t) = Tuple(or_zero(found[0]), or_zero(found[1]));
        Halide::OutputImageParam least = Halide::Func(y).output_buffers()[0];  // Halide assumes both have this shape
        begin_at_zero(x, least);
        min_max.schedule_alone(y, h, n_elements);
    }

private:
    Var h{"h"}, t{"t"};
    Reduction min_max{"most"};

    static Expr lesser(const Expr &a, const Expr &b) { return Halide::strict_float(select(a < b, a, b)); }
    static Expr greater(const Expr &a, const Expr &b) { return Halide::strict_float(select(a > b, a, b)); }

    /// v; but 0 instead of -0, because the sign would depend on the order of elements; and 0 if no element was finite.
    static Expr or_zero(const Expr &v) {
        const Expr magnitude = reinterpret<uint32_t>(v) & 0x7fffffff;
        return select(magnitude - 1 < Expr(0x7f7fffffu), v, 0.0f);
    }
};

}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::Widen, widen)
HALIDE_REGISTER_GENERATOR(halyard::Narrow, narrow)
HALIDE_REGISTER_GENERATOR(halyard::Norm, norm)
HALIDE_REGISTER_GENERATOR(halyard::NormRotate, norm_rotate)
HALIDE_REGISTER_GENERATOR(halyard::Largest, largest)
HALIDE_REGISTER_GENERATOR(halyard::Range, range)

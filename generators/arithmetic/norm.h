// The norm of a head, as small pure functions of Expr: x / sqrt(mean of x^2 + eps) * weight, each operation rounded. A
// layer norm is that of x - mean, plus a bias.
#pragma once

#include "arithmetic/rotation.h"

#include "base/nearest.h"
#include "halyard/halyard.h"

#include <string>
#include <vector>

namespace halyard {

/// The partial sums of a norm: sum i takes elements i, i + 16 and so on. Also the lanes of a stage's vectors.
inline constexpr int lanes = 16;

/// The sums are joined in one order: i and i + 8, then i + 4, i + 2 and i + 1.
inline constexpr int halves_of_lanes[] = {8, 4, 2, 1};

/// The sum of the partial ones.
inline Expr sum_of_lanes(std::vector<Expr> sums) {
    for (const int half : halves_of_lanes) {
        for (int lane = 0; lane < half; lane++) {
            sums[lane] = Halide::strict_float(sums[lane] + sums[lane + half]);
        }
    }
    return sums[0];
}

/// Roots and quotients, correctly rounded: see nearest.h.
struct RootMath {
    using Float = Expr;

    Target target;

    Expr root(const Expr &x) const {
        return is_cuda() ? nvvm("llvm.nvvm.sqrt.rn.f", {x}) : is_opencl() ? nearest_root(*this, x) : root_estimate(x);
    }
    Expr quotient(const Expr &a, const Expr &b) const {
        return is_cuda()     ? nvvm("llvm.nvvm.div.rn.f", {a, b})
               : is_opencl() ? nearest_quotient(*this, a, b)
                             : quotient_estimate(a, b);
    }

    Expr fma(const Expr &a, const Expr &b, const Expr &c) const { return halyard::fma(target, a, b, c); }
    static Expr times(const Expr &a, const Expr &b) { return Halide::strict_float(a * b); }
    static Expr plus(const Expr &a, const Expr &b) { return Halide::strict_float(a + b); }
    static Expr negate(const Expr &x) { return flip_sign(x, sign_bit); }
    static Expr moved(const Expr &x, int n) { return reinterpret<float>(reinterpret<int32_t>(x) + n); }
    static Expr select(const Expr &condition, const Expr &a, const Expr &b) { return Halide::select(condition, a, b); }
    /// Halide takes an expression that is used often for as many, and its time for that grows by powers.
    template <typename Body>
    static Expr let(const Expr &value, const Body &body) {
        const std::string name = Halide::Internal::unique_name("value");
        return Halide::Internal::Let::make(name, value, body(Halide::Internal::Variable::make(value.type(), name)));
    }
    static Expr root_estimate(const Expr &x) { return Halide::strict_float(Halide::sqrt(x)); }
    static Expr quotient_estimate(const Expr &a, const Expr &b) { return Halide::strict_float(a / b); }

private:
    bool is_cuda() const { return target.has_feature(Target::CUDA); }
    bool is_opencl() const { return target.has_feature(Target::OpenCL); }
    static Expr nvvm(const char *name, const std::vector<Expr> &of) {
        return Halide::Internal::Call::make(Halide::Float(32), name, of, Halide::Internal::Call::PureExtern);
    }
};

/// A partial sum and the square of one more element.
inline Expr add_square(const Target &target, const Expr &sum, const Expr &element) {
    return fma(target, element, element, sum);
}

/// The mean of a head, from the sum of its n elements.
inline Expr mean_of(const Target &target, const Expr &sum, const Expr &n) { return RootMath{target}.quotient(sum, n); }

/// What the elements of a head are multiplied by, from the sum of n squares.
inline Expr scale_of_norm(const Target &target, const Expr &sum, const Expr &n, const Expr &eps) {
    const RootMath math = {target};
    return math.quotient(1.0f, math.root(math.plus(math.quotient(sum, n), eps)));
}

/// An element that is normed. round(v, flag) rounds v to the tensor's dtype if that flag is set. The bias may be
/// absent.
template <typename Round>
Expr norm_element(const Expr &x, const Expr &scale, const Expr &weight, Round round, const Expr &bias = Expr()) {
    const Expr scaled = round(Halide::strict_float(x * scale), HALYARD_NORM_ROUND_BEFORE_WEIGHT);
    const Expr weighted = Halide::strict_float(scaled * weight);
    return round(bias.defined() ? Halide::strict_float(weighted + bias) : weighted, HALYARD_NORM_ROUND_AFTER_WEIGHT);
}

}  // namespace halyard

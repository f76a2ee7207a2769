// The norm of a head, as small pure functions of Expr: x / sqrt(mean of x^2 + eps) * weight, each operation rounded. A
// layer norm is that of x - mean, plus a bias.
#pragma once

#include "arithmetic/rotation.h"

#include "halyard/halyard_kv.h"

#include <string>
#include <vector>

namespace halyard {

/// The partial sums of a norm: sum i takes elements i, i + 16 and so on. Also the lanes of a stage's vectors.
inline constexpr int lanes = 16;

/// The sums are joined in one order: i and i + 8, then i + 4, i + 2 and i + 1.
inline constexpr int halves_of_lanes[] = {8, 4, 2, 1};

/// Roots and quotients, correctly rounded. For CUDA Halide's own may be approximations.
struct RootMath {
    Target target;

    Expr root(const Expr &x) const {
        return is_cuda() ? nvvm("llvm.nvvm.sqrt.rn.f", {x}) : Halide::strict_float(Halide::sqrt(x));
    }
    Expr quotient(const Expr &a, const Expr &b) const {
        return is_cuda() ? nvvm("llvm.nvvm.div.rn.f", {a, b}) : Halide::strict_float(a / b);
    }

private:
    bool is_cuda() const { return target.has_feature(Target::CUDA); }
    static Expr nvvm(const char *name, const std::vector<Expr> &of) {
        return Halide::Internal::Call::make(Halide::Float(32), name, of, Halide::Internal::Call::PureExtern);
    }
};

/// A partial sum and the square of one more element.
inline Expr add_square(const Expr &sum, const Expr &element) { return fma(element, element, sum); }

/// The mean of a head, from the sum of its n elements.
inline Expr mean_of(const Target &target, const Expr &sum, const Expr &n) { return RootMath{target}.quotient(sum, n); }

/// What the elements of a head are multiplied by, from the sum of n squares.
inline Expr scale_of_norm(const Target &target, const Expr &sum, const Expr &n, const Expr &eps) {
    const RootMath math = {target};
    return math.quotient(1.0f, math.root(Halide::strict_float(math.quotient(sum, n) + eps)));
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

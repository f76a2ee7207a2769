// The norm of a head, as small pure functions of Expr: x / sqrt(mean of x^2 + eps) * weight, each operation rounded. A
// layer norm does so with x - mean in place of x, and adds a bias.
#pragma once

#include "arithmetic/rotation.h"

#include "halyard/halyard_kv.h"

#include <string>
#include <vector>

namespace halyard {

/// The number of a norm's partial sums: sum i takes elements i, i + 16 and so on. Also the lanes of a stage's vectors.
inline constexpr int lanes = 16;

/// The sums are joined in one order: i and i + 8, then i + 4, i + 2 and i + 1.
inline constexpr int halves_of_lanes[] = {8, 4, 2, 1};

/// Correctly rounded roots and quotients. (Halide's own may be approximations on CUDA.)
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
    static Expr nvvm(const char *name, const std::vector<Expr> &arguments) {
        return Halide::Internal::Call::make(Halide::Float(32), name, arguments, Halide::Internal::Call::PureExtern);
    }
};

/// A partial sum plus the square of one more element.
inline Expr add_square(const Expr &sum, const Expr &element) { return fma(element, element, sum); }

/// The mean of a head, from the sum of its n elements.
inline Expr mean_of(const Target &target, const Expr &sum, const Expr &n) { return RootMath{target}.quotient(sum, n); }

/// The factor of a head's elements, 1 / sqrt(mean + eps), from the sum of their n squares.
inline Expr scale_of_norm(const Target &target, const Expr &sum, const Expr &n, const Expr &eps) {
    const RootMath math = {target};
    return math.quotient(1.0f, math.root(Halide::strict_float(math.quotient(sum, n) + eps)));
}

/// A normed element. round(v, flag) rounds v to the tensor's dtype if that flag is set. The bias may be undefined.
template <typename Round>
Expr norm_element(const Expr &x, const Expr &scale, const Expr &weight, Round round, const Expr &bias = Expr()) {
    const Expr scaled = round(Halide::strict_float(x * scale), HALYARD_NORM_ROUND_BEFORE_WEIGHT);
    const Expr weighted = Halide::strict_float(scaled * weight);
    return round(bias.defined() ? Halide::strict_float(weighted + bias) : weighted, HALYARD_NORM_ROUND_AFTER_WEIGHT);
}

}  // namespace halyard

// The arithmetic of a rotation, as small pure functions of Expr.
#pragma once

#include "arithmetic/families.h"

namespace halyard {

using Halide::cast;
using Halide::Expr;
using Halide::reinterpret;
using Halide::select;
using Halide::Target;

/// a * b + c with one rounding. Halide 21 has no fma() (22 has): this calls LLVM's intrinsic for each lane, and LLVM
/// joins the lanes again.
inline Expr fma(const Expr &a, const Expr &b, const Expr &c) {
    return Halide::Internal::Call::make(Halide::Float(32), "llvm.fma.f32", {a, b, c},
                                        Halide::Internal::Call::PureExtern);
}

/// x with its sign flipped if sign is 0x80000000. Unary minus would be wrong: x86 emits 0 - x, which loses -0.
inline Expr flip_sign(const Expr &x, const Expr &sign) { return reinterpret<float>(reinterpret<uint32_t>(x) ^ sign); }

inline const Expr sign_bit = Expr(0x80000000u);

/// One member of a rotated pair in the canonical form: the self product is fused, the cross product is rounded.
/// The arguments for y0 are (x0, x1, cos, -sin), and for y1 (x1, x0, cos, sin).
inline Expr rotate_member(const Expr &self, const Expr &cross, const Expr &cos, const Expr &signed_sin) {
    return fma(self, cos, Halide::strict_float(cross * signed_sin));
}

struct Pair {
    Expr x0, x1;
};

/// Rotates both members of a pair.
inline Pair rotate(const Target &target, const Pair &x, const Expr &cos, const Expr &sin) {
    const Expr y1 = rotate_member(x.x1, x.x0, cos, sin);
    if (negates_sin_first(target)) {
        return {rotate_member(x.x0, x.x1, cos, flip_sign(sin, sign_bit)), y1};
    }
    return {fma(x.x0, cos, flip_sign(Halide::strict_float(x.x1 * sin), sign_bit)), y1};
}

}  // namespace halyard

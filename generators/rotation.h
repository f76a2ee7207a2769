// The arithmetic of the kernels, as small pure functions of Expr.
#pragma once

#include "Halide.h"

#include <map>
#include <string>
#include <vector>

namespace halyard {

using Halide::cast;
using Halide::Expr;
using Halide::reinterpret;
using Halide::select;
using Halide::Target;

/// a * b + c with one rounding. Halide 21 has no fma() (22 has): this calls LLVM's intrinsic for each lane, and LLVM
/// joins the lanes again. Without FMA (sse41) it rounds twice: exact emulation was measured 13 times slower in f32.
inline Expr fma(const Target &target, const Expr &a, const Expr &b, const Expr &c) {
    if (target.arch == Target::X86 && !target.has_feature(Target::FMA)) {
        return Halide::strict_float(a * b + c);
    }
    return Halide::Internal::Call::make(Halide::Float(32), "llvm.fma.f32", {a, b, c},
                                        Halide::Internal::Call::PureExtern);
}

/// The same where its accuracy is counted on. Without FMA it works in double, where the product is exact.
inline Expr precise_fma(const Target &target, const Expr &a, const Expr &b, const Expr &c) {
    if (target.arch == Target::X86 && !target.has_feature(Target::FMA)) {
        return cast<float>(Halide::strict_float(cast<double>(a) * cast<double>(b) + cast<double>(c)));
    }
    return fma(target, a, b, c);
}

/// x with its sign turned where sign is 0x80000000. Unary minus would not do: x86 emits 0 - x, which loses -0.
inline Expr flip_sign(const Expr &x, const Expr &sign) { return reinterpret<float>(reinterpret<uint32_t>(x) ^ sign); }

inline const Expr sign_bit = Expr(0x80000000u);

/// One member of a rotated pair in the canonical form: the self product is fused, the cross product is rounded.
/// y0 is (x0, x1, cos, -sin) and y1 is (x1, x0, cos, sin).
inline Expr rotate_member(const Target &target, const Expr &self, const Expr &cross, const Expr &cos,
                          const Expr &signed_sin) {
    return fma(target, self, cos, Halide::strict_float(cross * signed_sin));
}

struct Pair {
    Expr x0, x1;
};

/// Both members. Negating x1 or sin gives the same bits. LLVM hoists -sin out of the loop over heads: ARM has registers
/// for it, x86 would spill it.
inline Pair rotate(const Target &target, const Pair &x, const Expr &cos, const Expr &sin) {
    const bool negate_sin = target.arch == Target::ARM;
    return {rotate_member(target, x.x0, negate_sin ? x.x1 : flip_sign(x.x1, sign_bit), cos,
                          negate_sin ? flip_sign(sin, sign_bit) : sin),
            rotate_member(target, x.x1, x.x0, cos, sin)};
}

// ---- Storage: floats in memory -------------------------------------------------------------------------------------

enum class Storage { f32, f16, bf16 };

inline const std::map<std::string, Storage> storages = {
    {"f32", Storage::f32}, {"f16", Storage::f16}, {"bf16", Storage::bf16}};

/// The type of a buffer's element: one float, or packed two neighbouring bf16, the lower address in the lower half.
inline Halide::Type element_type(Storage storage, bool packed) {
    switch (storage) {
    case Storage::f32: return Halide::Float(32);
    case Storage::f16: return Halide::Float(16);
    case Storage::bf16: return Halide::UInt(packed ? 32 : 16);
    }
    return {};
}

/// Whether the bits of a float are a NaN's.
inline Expr is_nan_bits(const Expr &bits) { return (bits & 0x7fffffff) > 0x7f800000; }

/// x, or the canonical quiet NaN where x is any NaN.
inline Expr canonical_nan(const Expr &x) {
    return select(is_nan_bits(reinterpret<uint32_t>(x)), reinterpret<float>(Expr(0x7fc00000u)), x);
}

/// How to round to bf16.
struct Rounding {
    bool by_test;
    Expr last_bit;  // 0x10000: of those that stay
};

/// Zero has to be 0 whenever a kernel runs, but not a constant. Were LLVM sure of the bit, it would shift before it
/// masks, and NEON need USHR, AND and ADD where AND and USRA do (.88 to .90 of the cycles, as llvm-mca models Neoverse
/// N1).
inline Rounding rounding_of(const Target &target, bool by_test, const Expr &zero) {
    const Expr last_bit(0x10000u);
    return {by_test, target.arch == Target::ARM ? last_bit ^ zero : last_bit};
}

/// Bits whose upper half is x rounded to bf16, to nearest even; the lower half is noise. The carry would turn a NaN
/// with a full lower half into zero. None occurs: x comes from bf16 data, whose lower halves are zero, and from rows
/// whose NaN were made canonical. Both forms round alike; by_test is one operation shorter where the ISA has masks
/// (AVX-512 .26 against .24 of the ceiling, AVX2 .17 against .21; Zen 4, 40 x 64 heads of 128, 2026-11).
inline Expr round_to_bf16(const Expr &x, const Rounding &rounding) {
    const Expr bits = reinterpret<uint32_t>(x);
    if (rounding.by_test) {
        const Expr up = bits + 0x8000;
        return select((up & 0xffff) == 0, up & Expr(0xfffeffffu), up);
    }
    return bits + ((bits & rounding.last_bit) >> 16) + 0x7fff;
}

/// f32 to f16, to nearest even. Halide's emulation (no F16C) turns NaN into infinity, so there it is selected around.
inline Expr to_f16(const Target &target, const Expr &x) {
    const Expr narrow = cast(Halide::Float(16), x);
    if (target.has_feature(Target::F16C) || target.has_feature(Target::ARMFp16)) {
        return narrow;
    }
    const Expr bits = reinterpret<uint32_t>(x);
    const Expr nan = cast<uint16_t>(((bits >> 16) & 0x8000) | 0x7e00);
    return select(is_nan_bits(bits), reinterpret(Halide::Float(16), nan), narrow);
}

/// The one or two floats of an element.
inline std::vector<Expr> unpack(Storage storage, bool packed, const Expr &element) {
    if (storage != Storage::bf16) {
        return {cast<float>(element)};
    }
    const Expr lower = reinterpret<float>(cast<uint32_t>(element) << 16);
    return packed ? std::vector<Expr>{lower, reinterpret<float>(element & Expr(0xffff0000u))}
                  : std::vector<Expr>{lower};
}

/// The reverse.
inline Expr pack(const Target &target, Storage storage, const Rounding &rounding, const std::vector<Expr> &floats) {
    if (storage == Storage::f32) {
        return floats[0];
    }
    if (storage == Storage::f16) {
        return to_f16(target, floats[0]);
    }
    const Expr lower = round_to_bf16(floats[0], rounding) >> 16;
    return floats.size() == 1 ? cast<uint16_t>(lower)
                              : lower | (round_to_bf16(floats[1], rounding) & Expr(0xffff0000u));
}

}  // namespace halyard

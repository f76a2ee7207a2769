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

/// Whether the target multiplies and adds with one rounding. Every GPU does.
inline bool has_fma(const Target &target) {
    return target.arch != Target::X86 || target.has_feature(Target::FMA) || target.has_gpu_feature();
}

/// a * b + c with one rounding. Halide 21 has no fma() (22 has): this calls LLVM's intrinsic for each lane, and LLVM
/// joins the lanes again. Without FMA (sse41) it rounds twice: exact emulation was measured 13 times slower in f32.
inline Expr fma(const Target &target, const Expr &a, const Expr &b, const Expr &c) {
    if (!has_fma(target)) {
        return Halide::strict_float(a * b + c);
    }
    return Halide::Internal::Call::make(Halide::Float(32), target.has_feature(Target::OpenCL) ? "fma" : "llvm.fma.f32",
                                        {a, b, c}, Halide::Internal::Call::PureExtern);
}

/// The same where its accuracy is counted on. Without FMA it works in double, where the product is exact.
inline Expr precise_fma(const Target &target, const Expr &a, const Expr &b, const Expr &c) {
    if (!has_fma(target)) {
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

/// The type of a buffer's element: one number, or packed two neighbouring ones of 16 bits, the lower address in the
/// lower half. bf16 are integers, and so are a GPU's f16: OpenCL devices need not have that type.
inline Halide::Type element_type(const Target &target, Storage storage, bool packed) {
    if (storage == Storage::f32) {
        return Halide::Float(32);
    }
    if (storage == Storage::f16 && !target.has_gpu_feature()) {
        return Halide::Float(16);
    }
    return Halide::UInt(packed ? 32 : 16);
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
/// with a full lower half into zero. On a CPU none occurs: x comes from bf16 data, whose lower halves are zero, and
/// from rows whose NaN were made canonical. CUDA's own NaN is such a one. Both forms round alike; by_test is one
/// operation shorter where the ISA has masks (AVX-512 .26 against .24 of the ceiling, AVX2 .17 against .21; Zen 4, 40 x
/// 64 heads of 128, 2026-11).
inline Expr round_to_bf16(const Target &target, const Expr &x, const Rounding &rounding) {
    const Expr bits = reinterpret<uint32_t>(target.has_gpu_feature() ? canonical_nan(x) : x);
    if (rounding.by_test) {
        const Expr up = bits + 0x8000;
        return select((up & 0xffff) == 0, up & Expr(0xfffeffffu), up);
    }
    return bits + ((bits & rounding.last_bit) >> 16) + 0x7fff;
}

/// f32 to f16, to nearest even. Halide's emulation (no F16C) turns NaN into infinity, so there it is selected around.
inline Expr to_f16(const Target &target, const Expr &x) {
    const Expr narrow = cast(Halide::Float(16), x);
    if (target.has_feature(Target::F16C) || target.has_feature(Target::ARMFp16) || target.has_feature(Target::CUDA)) {
        return narrow;
    }
    const Expr bits = reinterpret<uint32_t>(x);
    const Expr nan = cast<uint16_t>(((bits >> 16) & 0x8000) | 0x7e00);
    return select(is_nan_bits(bits), reinterpret(Halide::Float(16), nan), narrow);
}

/// The f16 in the lower half of a word. OpenCL: in integers, but for denormals, which are multiples of 2^-24.
inline Expr f16_bits_to_f32(const Target &target, const Expr &word) {
    if (!target.has_feature(Target::OpenCL)) {
        return cast<float>(reinterpret(Halide::Float(16), cast<uint16_t>(word & 0xffff)));
    }
    const Expr sign = (word & 0x8000) << 16, exponent = (word >> 10) & 0x1f, mantissa = word & 0x3ff;
    const Expr bias = select(exponent == 0x1f, Expr(224u << 23), Expr(112u << 23));
    const Expr denormal = reinterpret<uint32_t>(Halide::strict_float(cast<float>(mantissa) * 0x1p-24f));
    return reinterpret<float>(select(exponent == 0, denormal, ((word & 0x7fff) << 13) + bias) | sign);
}

/// The reverse, to nearest even; the upper half is zero. OpenCL: where an f16 is denormal, adding 0.5 rounds at the
/// right bit.
inline Expr f32_to_f16_bits(const Target &target, const Expr &x) {
    if (!target.has_feature(Target::OpenCL)) {
        return cast<uint32_t>(reinterpret<uint16_t>(to_f16(target, x)));
    }
    const Expr bits = reinterpret<uint32_t>(x), magnitude = bits & 0x7fffffff, sign = (bits >> 16) & 0x8000;
    const Expr normal = (magnitude + 0xfff + ((magnitude >> 13) & 1) - Expr(112u << 23)) >> 13;
    const Expr denormal =
        reinterpret<uint32_t>(Halide::strict_float(reinterpret<float>(magnitude) + 0.5f)) - Expr(0x3f000000u);
    const Expr finite = select(magnitude < Expr(0x38800000u), denormal, normal);
    return select(is_nan_bits(bits), Expr(0x7e00u), magnitude >= Expr(0x477ff000u), Expr(0x7c00u), finite) | sign;
}

/// The one or two floats of an element.
inline std::vector<Expr> unpack(const Target &target, Storage storage, const Expr &element) {
    if (element.type().is_float()) {
        return {cast<float>(element)};
    }
    const Expr word = cast<uint32_t>(element);
    const bool is_f16 = storage == Storage::f16;
    std::vector<Expr> floats = {is_f16 ? f16_bits_to_f32(target, word) : reinterpret<float>(word << 16)};
    if (element.type().bits() == 32) {
        floats.push_back(is_f16 ? f16_bits_to_f32(target, word >> 16) : reinterpret<float>(word & Expr(0xffff0000u)));
    }
    return floats;
}

/// The reverse.
inline Expr pack(const Target &target, Storage storage, const Halide::Type &type, const Rounding &rounding,
                 const std::vector<Expr> &floats) {
    if (type.is_float()) {
        return storage == Storage::f16 ? to_f16(target, floats[0]) : floats[0];
    }
    if (storage == Storage::f16) {
        const Expr lower = f32_to_f16_bits(target, floats[0]);
        return floats.size() == 1 ? cast<uint16_t>(lower) : lower | (f32_to_f16_bits(target, floats[1]) << 16);
    }
    const Expr lower = round_to_bf16(target, floats[0], rounding) >> 16;
    return floats.size() == 1 ? cast<uint16_t>(lower)
                              : lower | (round_to_bf16(target, floats[1], rounding) & Expr(0xffff0000u));
}

}  // namespace halyard

// Conversions between floats and stored elements, which hold one or two numbers, as small pure functions of Expr.
#pragma once

#include "arithmetic/rotation.h"

#include "base/storage.h"

#include <map>
#include <string>
#include <vector>

namespace halyard {

inline const std::map<std::string, Dtype> dtypes = {{"f32", Dtype::f32}, {"f16", Dtype::f16}, {"bf16", Dtype::bf16}};

/// The dtypes above, and those that only widen() and narrow() support.
inline const std::map<std::string, Dtype> dtypes_of_caches = {{"f32", Dtype::f32},   {"f16", Dtype::f16},
                                                              {"bf16", Dtype::bf16}, {"e4m3", Dtype::e4m3},
                                                              {"e5m2", Dtype::e5m2}, {"int8", Dtype::int8}};

/// The type of a buffer's element: one number, or, if packed, two neighbouring 16-bit numbers, the one at the lower
/// address in the lower half. bf16 and floats of 8 bits are integers to Halide, and so is f16 on GPUs.
inline Halide::Type element_type(const Target &target, Dtype dtype, bool packed) {
    switch (dtype) {
    case Dtype::f32: return Halide::Float(32);
    case Dtype::e4m3:
    case Dtype::e5m2: return Halide::UInt(8);
    case Dtype::int8: return Halide::Int(8);
    case Dtype::f16:
    case Dtype::bf16: break;
    }
    if (dtype == Dtype::f16 && !target.has_gpu_feature()) {
        return Halide::Float(16);
    }
    return Halide::UInt(packed ? 32 : 16);
}

/// Whether the bits of a float are those of a NaN.
inline Expr is_nan_bits(const Expr &bits) { return (bits & 0x7fffffff) > 0x7f800000; }

/// x, or the canonical quiet NaN where x is any NaN.
inline Expr canonical_nan(const Expr &x) {
    return select(is_nan_bits(reinterpret<uint32_t>(x)), reinterpret<float>(Expr(0x7fc00000u)), x);
}

/// How round_bits_to_bf16 rounds.
struct Rounding {
    Expr by_test;   // true: the form that tests for ties; false: the form that adds the last bit
    Expr last_bit;  // 0x10000: the last of the bits that are kept
};

/// `zero` must be 0 at run time but not a constant: on NEON it hides the value of last_bit from LLVM. If LLVM knew that
/// value, it would emit USHR, AND and ADD. As it is, LLVM emits AND and USRA, in .88 to .90 of the cycles (llvm-mca's
/// model of Neoverse N1).
inline Rounding rounding_of(const Target &target, const Expr &by_test, const Expr &zero) {
    const Expr last_bit(0x10000u);
    return {by_test, target.arch == Target::ARM ? last_bit ^ zero : last_bit};
}

/// Rounds to bf16, to nearest even: the result is the upper half of the bits; the lower half is meaningless. A NaN
/// whose lower half is all ones would overflow into zero. Both forms give the same bits. by_test is one operation
/// shorter on ISAs with masks (speed by_test and without, as a fraction of the ceiling: AVX-512 .26 and .24, AVX2 .17
/// and .21; Zen 4, 40 x 64 heads of 128, 2026-11). In vectors of half a register it takes 1.3 times as long (Zen 5).
inline Expr round_bits_to_bf16(const Expr &bits, const Rounding &rounding) {
    const Expr up = bits + 0x8000;
    const Expr tested = select((up & 0xffff) == 0, up & Expr(0xfffeffffu), up);
    return select(rounding.by_test, tested, bits + ((bits & rounding.last_bit) >> 16) + 0x7fff);
}

/// The same for a float. On CPUs x is never a NaN whose lower half is all ones, because it is computed from bf16
/// elements, whose lower halves are zero, and from cos and sin, whose NaNs are canonical. On CUDA, operations return
/// such NaNs, so they are replaced first.
inline Expr round_to_bf16(const Target &target, const Expr &x, const Rounding &rounding) {
    return round_bits_to_bf16(reinterpret<uint32_t>(target.has_gpu_feature() ? canonical_nan(x) : x), rounding);
}

/// The f16 with these 16 bits, as a float.
inline Expr widen_f16(const Expr &word) { return cast<float>(reinterpret(Halide::Float(16), word)); }

/// The f16 in the lower half of a word, as a float.
inline Expr f16_bits_to_f32(const Expr &word) { return widen_f16(cast<uint16_t>(word & 0xffff)); }

/// A float as an f16 (to nearest even) in the lower half of a word, whose upper half is zero.
inline Expr f32_to_f16_bits(const Expr &x) { return cast<uint32_t>(reinterpret<uint16_t>(cast(Halide::Float(16), x))); }

/// The one or two floats of an element.
inline std::vector<Expr> unpack(Dtype dtype, const Expr &element) {
    if (element.type().is_float()) {
        return {cast<float>(element)};
    }
    const Expr word = cast<uint32_t>(element);
    const bool is_f16 = dtype == Dtype::f16;
    std::vector<Expr> floats = {is_f16 ? f16_bits_to_f32(word) : reinterpret<float>(word << 16)};
    if (element.type().bits() == 32) {
        floats.push_back(is_f16 ? f16_bits_to_f32(word >> 16) : reinterpret<float>(word & Expr(0xffff0000u)));
    }
    return floats;
}

/// The element that holds one or two floats.
inline Expr pack(const Target &target, Dtype dtype, const Halide::Type &type, const Rounding &rounding,
                 const std::vector<Expr> &floats) {
    if (type.is_float()) {
        return cast(type, floats[0]);
    }
    if (dtype == Dtype::f16) {
        const Expr lower = f32_to_f16_bits(floats[0]);
        return floats.size() == 1 ? cast<uint16_t>(lower) : lower | (f32_to_f16_bits(floats[1]) << 16);
    }
    const Expr lower = round_to_bf16(target, floats[0], rounding) >> 16;
    return floats.size() == 1 ? cast<uint16_t>(lower)
                              : lower | (round_to_bf16(target, floats[1], rounding) & Expr(0xffff0000u));
}

// ---- Any float to any dtype ----------------------------------------------------------------------------------------
// Unlike pack(), these convert every bit pattern correctly. They clamp as integers, because min and max of floats treat
// NaN differently on each target.

/// Whether x is a NaN.
inline Expr is_nan(const Target &target, const Expr &x) {
    return target.has_gpu_feature() ? is_nan_bits(reinterpret<uint32_t>(x)) : Halide::strict_float(x != x);
}

/// A float format of 8 bits: the sizes of its fields, and the bit patterns of its largest number and of NaN.
struct SmallFloat {
    int fraction_bits, bias;
    uint32_t largest, nan;
};

/// Rounds to nearest even; larger numbers become the largest. Adding a power of two (the anchor) whose last place is
/// the format's makes the FPU round; below the normal numbers the anchor stays the same. The low byte of the sum,
/// corrected by the exponent's offset, is the result. Other bytes are meaningless.
inline Expr to_small_float(const SmallFloat &format, const Target &target, const Expr &x, bool may_be_nan) {
    const int dropped = 23 - format.fraction_bits;
    const uint32_t rebias = uint32_t(127 - format.bias) << 23, least_normal = rebias + (1u << 23);
    const Expr bits = reinterpret<uint32_t>(x), magnitude = bits & 0x7fffffff, sign = (bits >> 24) & 0x80;
    const Expr clamped = Halide::min(magnitude, Expr(rebias + (format.largest << dropped)));
    const Expr binade = Halide::max(clamped, Expr(least_normal)) & 0x7f800000;
    const Expr anchor = binade + Expr((uint32_t(dropped) << 23) + (-(least_normal >> dropped) & 0xff));
    const Expr sum = Halide::strict_float(reinterpret<float>(clamped) + reinterpret<float>(anchor));
    const Expr finite = reinterpret<uint32_t>(sum) + (binade >> dropped);
    const Expr rounded = may_be_nan ? select(is_nan(target, x), Expr(format.nan), finite) : finite;
    return cast<uint8_t>(rounded | sign);
}

/// Rounds to nearest even and clamps; NaN becomes 0. Adding 1.5 * 2^23 leaves the rounded number in the low bits.
inline Expr to_int8(const Target &target, const Expr &x) {
    const Expr bits = reinterpret<uint32_t>(x), magnitude = bits & 0x7fffffff;
    const Expr clamped = Halide::min(magnitude, Expr(0x43000000u)) | (bits & Expr(0x80000000u));  // at 128
    const Expr anchor(0x4b400000u);
    const Expr rounded =
        reinterpret<int32_t>(Halide::strict_float(reinterpret<float>(clamped) + reinterpret<float>(anchor))) -
        cast<int32_t>(anchor);
    return cast<int8_t>(select(is_nan(target, x), 0, Halide::min(rounded, 127)));
}

/// Bits whose upper half is x rounded to bf16; the lower half is meaningless. A NaN becomes 0x7fff and not 0x7fc0,
/// because LLVM (Halide 21) would make vectors of 0x7fc0 by an FNEG of 16-bit floats, which ARMv8.0 lacks.
inline Expr round_to_bf16_keeping_nan(const Target &target, const Expr &x) {
    const Rounding rounding = {cast<bool>(Expr(target.has_feature(Target::AVX512))), Expr(0x10000u)};
    return select(is_nan(target, x), Expr(0x7fff0000u), round_bits_to_bf16(reinterpret<uint32_t>(x), rounding));
}

/// Converts a single element (no packed word) to a float. E5M2 is the upper half of an f16. E4M3 has one more fraction
/// bit than E5M2, and one exponent bit less. E4M3's bits, shifted to their places in an f16, make an f16 of 1/256 of its
/// value, also for denormals. E4M3 has no infinities, and one NaN.
inline Expr widen(Dtype dtype, const Expr &element) {
    switch (dtype) {
    case Dtype::f16: return widen_f16(reinterpret<uint16_t>(element));
    case Dtype::e4m3: {
        const Expr word = cast<uint16_t>(element), magnitude = word & 0x7f;
        const Expr wide = widen_f16((word & 0x80) << 8 | magnitude << 7) * 256.0f;
        return select(magnitude == 0x7f, reinterpret<float>(Expr(0x7fc00000u)), wide);
    }
    case Dtype::e5m2: return widen_f16(cast<uint16_t>(element) << 8);
    case Dtype::int8: return cast<float>(element);
    case Dtype::f32:
    case Dtype::bf16: break;
    }
    return unpack(dtype, element)[0];
}

/// Converts x to a single element: to nearest even; NaN stays NaN. Pass may_be_nan = false to save the test for NaN in
/// conversions to floats of 8 bits.
inline Expr narrow(const Target &target, Dtype dtype, const Expr &x, bool may_be_nan = true) {
    switch (dtype) {
    case Dtype::f32: break;
    case Dtype::f16: return cast(Halide::Float(16), x);
    case Dtype::bf16: return cast<uint16_t>(round_to_bf16_keeping_nan(target, x) >> 16);
    case Dtype::e4m3: return to_small_float({3, 7, 0x7e, 0x7f}, target, x, may_be_nan);
    case Dtype::e5m2: return to_small_float({2, 15, 0x7b, 0x7e}, target, x, may_be_nan);
    case Dtype::int8: return to_int8(target, x);
    }
    return x;
}

/// x rounded to f16 or bf16.
inline Expr round_to(const Target &target, Dtype dtype, const Expr &x) {
    return dtype == Dtype::bf16 ? reinterpret<float>(round_to_bf16_keeping_nan(target, x) & Expr(0xffff0000u))
                                : widen(dtype, narrow(target, dtype, x));
}

/// The storage of x and y, and conversions from and to it.
struct Format {
    Target target;
    Dtype dtype;
    bool packed;
    Rounding rounding;

    Halide::Type type() const { return element_type(target, dtype, packed); }
    std::vector<Expr> floats(const Expr &element) const { return unpack(dtype, element); }
    Expr element(const std::vector<Expr> &floats) const { return pack(target, dtype, type(), rounding, floats); }

    /// A value of the caller's rows, whose NaNs are replaced by one that survives the rounding to bf16.
    Expr row_value(const Expr &value) const { return dtype == Dtype::bf16 ? canonical_nan(value) : value; }
};

}  // namespace halyard

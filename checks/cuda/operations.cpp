// What each opcode does to the registers of a thread: PTX ISA 9.7. A NaN that f32 arithmetic makes is NVIDIA's,
// 0x7fffffff, and that of f16 is 0x7fff.
#include "checks/cuda/machine.h"
#include "checks/cuda/threads.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <tuple>

namespace emulated_cuda {

namespace {

using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using s16 = std::int16_t;
using s32 = std::int32_t;
using s64 = std::int64_t;
using f32 = float;

// ---- Operations ----------------------------------------------------------------------------------------------------

template <typename Signature, auto F>
struct Form;

template <typename R, typename... A, auto F>
struct Form<R(A...), F> {
    template <std::size_t... I>
    static void run(const Instruction &instruction, const Threads &threads, std::index_sequence<I...>) {
        R *const to = threads.values<R>(instruction.operands[0]);
        const std::tuple<const A *...> from(threads.values<const A>(instruction.operands[I + 1])...);
        threads.each([&](unsigned lane) { to[lane] = static_cast<R>(F(std::get<I>(from)[lane]...)); });
    }
    static void execute(const Instruction &instruction, const Threads &threads) {
        run(instruction, threads, std::index_sequence_for<A...>());
    }
    static Operation operation() { return {&execute, {sizeof(R), sizeof(A)...}}; }
};

template <typename Signature, auto F>
Operation form() {
    return Form<Signature, F>::operation();
}

f32 canonical(f32 value) { return std::isnan(value) ? std::bit_cast<f32>(0x7fffffffu) : value; }

u16 to_bf16(f32 value) {  // to nearest even
    const u32 bits = std::bit_cast<u32>(value);
    return std::isnan(value) ? u16{0x7fff} : static_cast<u16>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
u16 to_f16(f32 value) { return std::isnan(value) ? u16{0x7fff} : std::bit_cast<u16>(static_cast<_Float16>(value)); }

f32 from_f16(u16 bits) { return canonical(static_cast<f32>(std::bit_cast<_Float16>(bits))); }

/// Shifts by more than the width give what shifting bit by bit would (PTX ISA 9.7.8).
template <typename T>
T left(T value, u32 n) {
    return n < 8 * sizeof(T) ? static_cast<T>(value << n) : T{0};
}
template <typename T>
T right(T value, u32 n) {
    return static_cast<T>(value >> std::min<u32>(n, 8 * sizeof(T) - 1)) >>
           (n >= 8 * sizeof(T) && std::is_unsigned_v<T> ? 1 : 0);
}

/// bfe: PTX ISA 9.7.1. Position and length count by their lowest 8 bits.
template <typename T>
T bit_field(T value, u32 position, u32 length) {
    constexpr u32 most = 8 * sizeof(T) - 1;
    position &= 0xff;
    length &= 0xff;
    const auto bit = [&](u32 i) { return static_cast<u64>(value) >> i & 1; };
    const u64 sign = std::is_signed_v<T> && length != 0 ? bit(std::min(position + length - 1, most)) : 0;
    u64 result = 0;
    for (u32 i = 0; i <= most; i++) {
        result |= (i < length && position + i <= most ? bit(position + i) : sign) << i;
    }
    return static_cast<T>(result);
}

/// prmt without a mode: PTX ISA 9.7.9.7. Each nibble of the selector takes a byte of b:a, or repeats that byte's sign.
u32 permuted(u32 a, u32 b, u32 selector) {
    const u64 bytes = u64{b} << 32 | a;
    u32 result = 0;
    for (unsigned i = 0; i < 4; i++) {
        const u32 nibble = selector >> 4 * i & 0xf;
        const u32 byte = static_cast<u32>(bytes >> 8 * (nibble & 7)) & 0xff;
        result |= ((nibble & 8) != 0 ? (byte & 0x80) != 0 ? 0xffu : 0u : byte) << 8 * i;
    }
    return result;
}

template <typename T>
T quotient(T a, T b) {
    return b == 0       ? T(-1)
           : b == T(-1) ? static_cast<T>(0 - static_cast<std::make_unsigned_t<T>>(a))
                        : static_cast<T>(a / b);
}

/// Towards zero. What is out of range becomes the nearest integer, and NaN 0.
s32 to_integer(f32 value) {
    return std::isnan(value)   ? 0
           : value >= 0x1p31f  ? std::numeric_limits<s32>::max()
           : value <= -0x1p31f ? std::numeric_limits<s32>::min()
                               : static_cast<s32>(value);
}

template <typename Wide, typename Narrow>
void unpack(const Instruction &instruction, const Threads &threads) {
    const Wide *const from = threads.values<const Wide>(instruction.operands[2]);
    for (unsigned i = 0; i < 2; i++) {
        Narrow *const to = threads.values<Narrow>(instruction.operands[i]);
        threads.each([&](unsigned lane) { to[lane] = static_cast<Narrow>(from[lane] >> i * 8 * sizeof(Narrow)); });
    }
}

using Table = std::map<std::string, Operation, std::less<>>;

template <typename S, typename U>
void add_integers(Table &to, const std::string &bits) {
    constexpr auto min = [](auto a, auto b) { return std::min(a, b); };
    constexpr auto max = [](auto a, auto b) { return std::max(a, b); };
    constexpr auto choose = [](auto a, auto b, bool p) { return p ? a : b; };
    constexpr auto same = [](auto a) { return a; };
    for (const char *const sign : {"s", "u"}) {
        to["add." + (sign + bits)] = form<U(U, U), [](U a, U b) { return a + b; }>();
        to["sub." + (sign + bits)] = form<U(U, U), [](U a, U b) { return a - b; }>();
        to["mul.lo." + (sign + bits)] = form<U(U, U), [](U a, U b) { return 1u * a * b; }>();
        to["mad.lo." + (sign + bits)] = form<U(U, U, U), [](U a, U b, U c) { return 1u * a * b + c; }>();
    }
    to["neg.s" + bits] = form<U(U), [](U a) { return U{0} - a; }>();
    to["div.s" + bits] = form<S(S, S), [](S a, S b) { return quotient(a, b); }>();
    to["div.u" + bits] =
        form<U(U, U), [](U a, U b) { return b == 0 ? static_cast<U>(~U{0}) : static_cast<U>(a / b); }>();
    to["min.s" + bits] = form<S(S, S), min>();
    to["max.s" + bits] = form<S(S, S), max>();
    to["min.u" + bits] = form<U(U, U), min>();
    to["max.u" + bits] = form<U(U, U), max>();
    to["setp.lt.s" + bits] = form<bool(S, S), std::less<>{}>();
    to["setp.le.s" + bits] = form<bool(S, S), std::less_equal<>{}>();
    to["setp.gt.s" + bits] = form<bool(S, S), std::greater<>{}>();
    to["setp.ge.s" + bits] = form<bool(S, S), std::greater_equal<>{}>();
    to["setp.lt.u" + bits] = form<bool(U, U), std::less<>{}>();
    to["setp.le.u" + bits] = form<bool(U, U), std::less_equal<>{}>();
    to["setp.gt.u" + bits] = form<bool(U, U), std::greater<>{}>();
    to["setp.ge.u" + bits] = form<bool(U, U), std::greater_equal<>{}>();
    for (const char *const type : {"b", "s", "u"}) {
        to["setp.eq." + (type + bits)] = form<bool(U, U), [](U a, U b) { return a == b; }>();
        to["setp.ne." + (type + bits)] = form<bool(U, U), [](U a, U b) { return a != b; }>();
        to["selp." + (type + bits)] = form<U(U, U, bool), choose>();
        to["mov." + (type + bits)] = form<U(U), same>();
    }
    to["and.b" + bits] = form<U(U, U), [](U a, U b) { return a & b; }>();
    to["or.b" + bits] = form<U(U, U), [](U a, U b) { return a | b; }>();
    to["xor.b" + bits] = form<U(U, U), [](U a, U b) { return a ^ b; }>();
    to["not.b" + bits] = form<U(U), [](U a) { return ~a; }>();
    to["shl.b" + bits] = form<U(U, u32), [](U a, u32 n) { return left(a, n); }>();
    to["shr.u" + bits] = form<U(U, u32), [](U a, u32 n) { return right(a, n); }>();
    to["shr.s" + bits] = form<S(S, u32), [](S a, u32 n) { return right(a, n); }>();
}

template <typename To, typename From>
void add_conversion(Table &to, const std::string &name) {
    to["cvt." + name] = form<To(From), [](From a) { return static_cast<To>(a); }>();
}

/// To the nearest element, or 448 of what is larger, by looking at all (PTX ISA, cvt.rn.satfinite.e4m3x2.f32).
u32 to_e4m3(f32 x) {
    constexpr u32 nan = 0x7f;
    u32 best = 0;
    for (u32 code = 1; code < nan; code++) {
        const auto off_by = [&](u32 of) {
            const int exponent = static_cast<int>(of >> 3), fraction = static_cast<int>(of & 7);
            return std::fabs(std::ldexp(exponent == 0 ? fraction : 8 + fraction, std::max(exponent, 1) - 10) -
                             std::fabs(static_cast<double>(x)));
        };
        best = off_by(code) < off_by(best) || (off_by(code) == off_by(best) && code % 2 == 0) ? code : best;
    }
    return std::isnan(x) ? nan : best | (std::signbit(x) ? 0x80u : 0u);
}

void add_floats(Table &to) {
    for (const char *const rounding : {"", ".rn"}) {
        const std::string type = rounding + std::string(".f32");
        to["add" + type] = form<f32(f32, f32), [](f32 a, f32 b) { return canonical(a + b); }>();
        to["sub" + type] = form<f32(f32, f32), [](f32 a, f32 b) { return canonical(a - b); }>();
        to["mul" + type] = form<f32(f32, f32), [](f32 a, f32 b) { return canonical(a * b); }>();
    }
    to["fma.rn.f32"] = form<f32(f32, f32, f32), [](f32 a, f32 b, f32 c) { return canonical(std::fma(a, b, c)); }>();
    to["div.rn.f32"] = form<f32(f32, f32), [](f32 a, f32 b) { return canonical(a / b); }>();
    to["sqrt.rn.f32"] = form<f32(f32), [](f32 a) { return canonical(std::sqrt(a)); }>();
    to["neg.f32"] = form<f32(f32), [](f32 a) { return canonical(-a); }>();
    to["abs.f32"] = form<f32(f32), [](f32 a) { return canonical(std::fabs(a)); }>();
    to["copysign.f32"] = form<u32(u32, u32), [](u32 a, u32 b) { return (a & 0x80000000) | (b & 0x7fffffff); }>();
    to["selp.f32"] = form<u32(u32, u32, bool), [](u32 a, u32 b, bool p) { return p ? a : b; }>();
    to["mov.f32"] = form<u32(u32), [](u32 a) { return a; }>();
    to["cvt.f32.f16"] = form<f32(u16), from_f16>();
    to["cvt.rn.f16.f32"] = form<u16(f32), to_f16>();
    to["cvt.rn.f16x2.f32"] =
        form<u32(f32, f32), [](f32 a, f32 b) { return u32{to_f16(a)} << 16 | to_f16(b); }>();
    to["cvt.rn.bf16x2.f32"] =
        form<u32(f32, f32), [](f32 a, f32 b) { return u32{to_bf16(a)} << 16 | to_bf16(b); }>();
    to["cvt.rn.satfinite.e4m3x2.f32"] =
        form<u16(f32, f32), [](f32 a, f32 b) { return static_cast<u16>(to_e4m3(a) << 8 | to_e4m3(b)); }>();
    to["cvt.rzi.s32.f32"] = form<s32(f32), to_integer>();
    to["cvt.rn.f32.s32"] = form<f32(s32), [](s32 a) { return static_cast<f32>(a); }>();
    to["cvt.rn.f32.u32"] = form<f32(u32), [](u32 a) { return static_cast<f32>(a); }>();
}

Table make_table() {
    Table to;
    add_integers<s16, u16>(to, "16");
    add_integers<s32, u32>(to, "32");
    add_integers<s64, u64>(to, "64");
    add_floats(to);
    to["mul.wide.s32"] = form<s64(s32, s32), [](s32 a, s32 b) { return s64{a} * b; }>();
    to["mul.wide.u32"] = form<u64(u32, u32), [](u32 a, u32 b) { return u64{a} * b; }>();
    to["mul.hi.u32"] = form<u32(u32, u32), [](u32 a, u32 b) { return (u64{a} * b >> 32); }>();
    to["bfe.u32"] = form<u32(u32, u32, u32), bit_field<u32>>();
    to["bfe.s64"] = form<s64(s64, u32, u32), bit_field<s64>>();
    to["prmt.b32"] = form<u32(u32, u32, u32), permuted>();
    add_conversion<s64, s32>(to, "s64.s32");
    add_conversion<u64, u32>(to, "u64.u32");
    add_conversion<u32, u64>(to, "u32.u64");
    add_conversion<u32, u16>(to, "u32.u16");
    add_conversion<u16, u32>(to, "u16.u32");
    add_conversion<s32, s16>(to, "s32.s16");
    to["cvta.to.global.u64"] = to["mov.b64"];  // generic addresses are those of global memory
    to["and.pred"] = form<bool(bool, bool), [](bool a, bool b) { return a && b; }>();
    to["or.pred"] = form<bool(bool, bool), [](bool a, bool b) { return a || b; }>();
    to["xor.pred"] = form<bool(bool, bool), [](bool a, bool b) { return a != b; }>();
    to["not.pred"] = form<bool(bool), [](bool a) { return !a; }>();
    to["mov.pred"] = form<bool(bool), [](bool a) { return a; }>();
    // What the decoder makes of registers that are wider than what is read of them, and of lists in braces.
    to["narrow.8.4"] = form<u32(u64), [](u64 a) { return static_cast<u32>(a); }>();
    to["narrow.8.2"] = form<u16(u64), [](u64 a) { return static_cast<u16>(a); }>();
    to["narrow.4.2"] = form<u16(u32), [](u32 a) { return static_cast<u16>(a); }>();
    to["pack.b64"] = form<u64(u32, u32), [](u32 low, u32 high) { return u64{high} << 32 | low; }>();
    to["pack.b32"] = form<u32(u16, u16), [](u16 low, u16 high) { return u32{high} << 16 | low; }>();
    to["unpack.b64"] = {&unpack<u64, u32>, {4, 4, 8}};
    to["unpack.b32"] = {&unpack<u32, u16>, {2, 2, 4}};
    return to;
}

}  // namespace

const Table &operations() {
    static const Table &only = *new Table(make_table());
    return only;
}

}  // namespace emulated_cuda

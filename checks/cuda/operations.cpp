// What each opcode does to the registers of a thread: PTX ISA 9.7. A NaN that f32 arithmetic makes is NVIDIA's,
// 0x7fffffff, and that of f16 is 0x7fff.
#include "checks/cuda/machine.h"
#include "checks/cuda/threads.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>

namespace emulated_cuda {

namespace {

using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using s32 = std::int32_t;
using s64 = std::int64_t;
using f32 = float;

template <typename T>
T taken(u64 value) {
    if constexpr (std::is_same_v<T, f32>) {
        return std::bit_cast<f32>(static_cast<u32>(value));
    } else {
        return static_cast<T>(value);
    }
}

template <typename T>
u64 given(T value) {
    if constexpr (std::is_same_v<T, f32>) {
        return std::bit_cast<u32>(value);
    } else {
        return static_cast<u64>(value);
    }
}

template <typename Signature, auto F>
struct Form;

template <typename R, typename... A, auto F>
struct Form<R(A...), F> {
    template <std::size_t... I>
    static void run(const Instruction &instruction, const Threads &threads, std::index_sequence<I...>) {
        u64 *const to = threads.values(instruction.operands[0]);
        const std::array<const u64 *, sizeof...(A)> from = {threads.values(instruction.operands[I + 1])...};
        threads.each([&](unsigned lane) { to[lane] = given(static_cast<R>(F(taken<A>(from[I][lane])...))); });
    }
    static void execute(const Instruction &instruction, const Threads &threads) {
        run(instruction, threads, std::index_sequence_for<A...>());
    }
};

template <typename Signature, auto F>
Execute form() {
    return &Form<Signature, F>::execute;
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
    return n < 8 * sizeof(T) ? value << n : T{0};
}
template <typename T>
T right(T value, u32 n) {
    return n < 8 * sizeof(T) ? value >> n : value < 0 ? T(-1) : T{0};
}

/// bfe: PTX ISA 9.7.1. Position and length count by their lowest 8 bits.
u32 bit_field(u32 value, u32 position, u32 length) {
    const u64 mask = (u64{1} << std::min(length & 0xff, 32u)) - 1;
    return static_cast<u32>(u64{value} >> std::min(position & 0xff, 32u) & mask);
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

/// What a quotient by 0 or of the smallest by -1 is, the manual does not say.
s32 quotient(s32 a, s32 b) { return b == 0 ? -1 : static_cast<s32>(s64{a} / b); }

using Table = std::map<std::string, Execute, std::less<>>;

template <typename S, typename U>
void add_integers(Table &to, const std::string &bits) {
    to["add.s" + bits] = form<U(U, U), [](U a, U b) { return a + b; }>();
    to["sub.s" + bits] = form<U(U, U), [](U a, U b) { return a - b; }>();
    to["mul.lo.s" + bits] = form<U(U, U), [](U a, U b) { return a * b; }>();
    to["mad.lo.s" + bits] = form<U(U, U, U), [](U a, U b, U c) { return a * b + c; }>();
    to["min.s" + bits] = form<U(S, S), [](S a, S b) { return std::min(a, b); }>();
    to["max.s" + bits] = form<U(S, S), [](S a, S b) { return std::max(a, b); }>();
    to["min.u" + bits] = form<U(U, U), [](U a, U b) { return std::min(a, b); }>();
    to["max.u" + bits] = form<U(U, U), [](U a, U b) { return std::max(a, b); }>();
    to["setp.lt.s" + bits] = form<bool(S, S), std::less<>{}>();
    to["setp.le.s" + bits] = form<bool(S, S), std::less_equal<>{}>();
    to["setp.gt.s" + bits] = form<bool(S, S), std::greater<>{}>();
    to["setp.ge.s" + bits] = form<bool(S, S), std::greater_equal<>{}>();
    to["setp.lt.u" + bits] = form<bool(U, U), std::less<>{}>();
    to["setp.le.u" + bits] = form<bool(U, U), std::less_equal<>{}>();
    to["setp.gt.u" + bits] = form<bool(U, U), std::greater<>{}>();
    to["setp.ge.u" + bits] = form<bool(U, U), std::greater_equal<>{}>();
    to["setp.eq.b" + bits] = form<bool(U, U), std::equal_to<>{}>();
    to["setp.ne.b" + bits] = form<bool(U, U), std::not_equal_to<>{}>();
    to["selp.b" + bits] = form<U(U, U, bool), [](U a, U b, bool p) { return p ? a : b; }>();
    to["mov.b" + bits] = form<U(U), [](U a) { return a; }>();
    to["and.b" + bits] = form<U(U, U), [](U a, U b) { return a & b; }>();
    to["or.b" + bits] = form<U(U, U), [](U a, U b) { return a | b; }>();
    to["xor.b" + bits] = form<U(U, U), [](U a, U b) { return a ^ b; }>();
    to["not.b" + bits] = form<U(U), [](U a) { return ~a; }>();
    to["shl.b" + bits] = form<U(U, u32), left<U>>();
    to["shr.u" + bits] = form<U(U, u32), right<U>>();
    to["shr.s" + bits] = form<U(S, u32), right<S>>();
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
    to["add.rn.f32"] = form<f32(f32, f32), [](f32 a, f32 b) { return canonical(a + b); }>();
    to["mul.rn.f32"] = form<f32(f32, f32), [](f32 a, f32 b) { return canonical(a * b); }>();
    to["fma.rn.f32"] = form<f32(f32, f32, f32), [](f32 a, f32 b, f32 c) { return canonical(std::fma(a, b, c)); }>();
    to["div.rn.f32"] = form<f32(f32, f32), [](f32 a, f32 b) { return canonical(a / b); }>();
    to["sqrt.rn.f32"] = form<f32(f32), [](f32 a) { return canonical(std::sqrt(a)); }>();
    to["neg.f32"] = form<f32(f32), [](f32 a) { return canonical(-a); }>();
    to["abs.f32"] = form<f32(f32), [](f32 a) { return canonical(std::fabs(a)); }>();
    to["selp.f32"] = to["selp.b32"];
    to["mov.f32"] = to["mov.b32"];
    to["cvt.f32.f16"] = form<f32(u16), from_f16>();
    to["cvt.rn.f16.f32"] = form<u16(f32), to_f16>();
    to["cvt.rn.f16x2.f32"] = form<u32(f32, f32), [](f32 a, f32 b) { return u32{to_f16(a)} << 16 | to_f16(b); }>();
    to["cvt.rn.bf16x2.f32"] = form<u32(f32, f32), [](f32 a, f32 b) { return u32{to_bf16(a)} << 16 | to_bf16(b); }>();
    to["cvt.rn.satfinite.e4m3x2.f32"] =
        form<u16(f32, f32), [](f32 a, f32 b) { return to_e4m3(a) << 8 | to_e4m3(b); }>();
    to["cvt.rn.f32.s32"] = form<f32(s32), [](s32 a) { return static_cast<f32>(a); }>();
    to["cvt.rn.f32.u32"] = form<f32(u32), [](u32 a) { return static_cast<f32>(a); }>();
}

Table make_table() {
    Table to;
    add_integers<s32, u32>(to, "32");
    add_integers<s64, u64>(to, "64");
    add_floats(to);
    to["and.b16"] = form<u16(u16, u16), [](u16 a, u16 b) { return a & b; }>();
    to["setp.ne.b16"] = form<bool(u16, u16), std::not_equal_to<>{}>();
    to["mul.wide.s32"] = form<u64(s32, s32), [](s64 a, s64 b) { return a * b; }>();
    to["mul.wide.u32"] = form<u64(u32, u32), [](u64 a, u64 b) { return a * b; }>();
    to["mul.hi.u32"] = form<u32(u32, u32), [](u64 a, u64 b) { return (a * b >> 32); }>();
    to["div.s32"] = form<u32(s32, s32), quotient>();
    to["bfe.u32"] = form<u32(u32, u32, u32), bit_field>();
    to["prmt.b32"] = form<u32(u32, u32, u32), permuted>();
    to["cvt.s64.s32"] = form<u64(s32), [](s64 a) { return a; }>();
    to["cvt.u64.u32"] = to["cvt.u32.u64"] = to["mov.u32"] = to["mov.b32"];
    to["cvt.u32.u16"] = to["cvt.u16.u32"] = form<u16(u16), [](u16 a) { return a; }>();
    to["cvta.to.global.u64"] = to["mov.b64"];  // generic addresses are those of global memory
    to["and.pred"] = form<bool(bool, bool), std::logical_and<>{}>();
    to["or.pred"] = form<bool(bool, bool), std::logical_or<>{}>();
    to["not.pred"] = form<bool(bool), std::logical_not<>{}>();
    to["mov.pred"] = form<bool(bool), [](bool a) { return a; }>();
    return to;
}

}  // namespace

const Table &operations() {
    static const Table &only = *new Table(make_table());
    return only;
}

}  // namespace emulated_cuda

// What each opcode does to the registers of a thread: PTX ISA 9.7. Undefined values pass through, by half words: LLVM
// reads more than it uses, and joins what is defined with what is not. A NaN that f32 arithmetic makes is NVIDIA's,
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

// ---- What of a result is undefined ---------------------------------------------------------------------------------

template <typename T>
constexpr u8 all_halves = static_cast<u8>((1u << (sizeof(T) + 1) / 2) - 1);

template <typename T>
u64 bits_of(T value) {
    if constexpr (std::is_same_v<T, f32>) {
        return std::bit_cast<u32>(value);
    } else if constexpr (std::is_same_v<T, bool>) {
        return value ? 0xffff : 0;
    } else {
        return static_cast<std::make_unsigned_t<T>>(value);
    }
}

/// A mask of half words as a value that has ones there.
template <typename T>
T spread(u8 halves) {
    u64 bits = 0;
    for (unsigned i = 0; i < 4; i++) {
        bits |= (halves >> i & 1) != 0 ? u64{0xffff} << 16 * i : 0;
    }
    return static_cast<T>(bits);
}

/// The half words of a value in which some bit, or no bit, is set.
u8 halves_with_ones(u64 bits) {
    u8 halves = 0;
    for (unsigned i = 0; i < 4; i++) {
        halves |= static_cast<u8>(((bits >> 16 * i & 0xffff) != 0 ? 1 : 0) << i);
    }
    return halves;
}

// Which half words of a result are undefined, given what of its sources is:
struct AnyOf {};      // arithmetic: everything depends on everything
struct Quotient {};   // likewise, and a division by 0 gives no defined value (PTX ISA 9.7.1)
struct EachAlone {};  // xor, not, mov: each half word by itself
struct Chosen {};     // selp: by a defined predicate, one of two
struct Joined {};     // cvt to two halves: the first source makes the upper half word, the second one the lower
/// Bits move, so undefined ones move along; what says where to must be defined. The first n sources are such bits.
template <unsigned n_data>
struct Moves {
    template <typename R, auto F, typename... A, std::size_t... I>
    static u8 of(std::index_sequence<I...>, const std::tuple<A...> &sources,
                 const std::array<u8, sizeof...(A)> &halves) {
        const bool knows_where = (true && ... && (I < n_data || halves[I] == 0));
        const auto source = [&]<std::size_t i, typename T>(const T &value) -> T {
            if constexpr (i < n_data) {
                return spread<T>(halves[i]);
            } else {
                return value;
            }
        };
        return knows_where ? static_cast<u8>(
                                 halves_with_ones(bits_of(F(source.template operator()<I>(std::get<I>(sources))...))) &
                                 all_halves<R>)
                           : all_halves<R>;
    }
};
/// and, or: a half word is known where one source alone decides it, as 0 or as ones.
template <bool of_ones>
struct Decided {
    template <typename T>
    static u8 of(T a, T b, u8 a_halves, u8 b_halves) {
        const auto deciding = [](T value, u8 halves) {
            const u64 bits = bits_of(value);
            return static_cast<u8>(~halves_with_ones(of_ones ? ~bits : bits) & ~halves & all_halves<T>);
        };
        return static_cast<u8>((a_halves | b_halves) & ~deciding(a, a_halves) & ~deciding(b, b_halves));
    }
};

template <typename R, auto F, typename Rule, typename... A, std::size_t... I>
u8 undefined_halves(std::index_sequence<I...> indices, const std::tuple<A...> &sources,
                    const std::array<u8, sizeof...(A)> &halves) {
    const u8 any = static_cast<u8>((0 | ... | halves[I]));
    if constexpr (std::is_same_v<Rule, Quotient>) {
        return any != 0 || std::get<1>(sources) == 0 ? all_halves<R> : u8{0};
    } else if (any == 0) {
        return 0;
    } else if constexpr (std::is_same_v<Rule, EachAlone>) {
        return any;
    } else if constexpr (std::is_same_v<Rule, Chosen>) {
        return halves[2] != 0 ? all_halves<R> : std::get<2>(sources) ? halves[0] : halves[1];
    } else if constexpr (std::is_same_v<Rule, Joined>) {
        return static_cast<u8>((halves[0] != 0 ? 2 : 0) | (halves[1] != 0 ? 1 : 0));
    } else if constexpr (std::is_same_v<Rule, Decided<true>> || std::is_same_v<Rule, Decided<false>>) {
        return Rule::of(std::get<0>(sources), std::get<1>(sources), halves[0], halves[1]);
    } else if constexpr (std::is_same_v<Rule, AnyOf>) {
        return all_halves<R>;
    } else {
        return Rule::template of<R, F>(indices, sources, halves);
    }
}

// ---- Operations ----------------------------------------------------------------------------------------------------

template <typename Signature, auto F, typename Rule>
struct Form;

template <typename R, typename... A, auto F, typename Rule>
struct Form<R(A...), F, Rule> {
    template <std::size_t... I>
    static void run(const Instruction &instruction, const Threads &threads, std::index_sequence<I...> indices) {
        R *const to = threads.values<R>(instruction.operands[0]);
        u8 *const to_halves = threads.undefined(instruction.operands[0]);
        const std::tuple<const A *...> from(threads.values<const A>(instruction.operands[I + 1])...);
        const std::array<const u8 *, sizeof...(A)> halves = {threads.undefined(instruction.operands[I + 1])...};
        threads.each([&](unsigned lane) {
            const std::tuple<A...> sources(std::get<I>(from)[lane]...);
            to_halves[lane] = undefined_halves<R, F, Rule>(indices, sources, {halves[I][lane]...});
            to[lane] = static_cast<R>(F(std::get<I>(sources)...));
        });
    }
    static void execute(const Instruction &instruction, const Threads &threads) {
        run(instruction, threads, std::index_sequence_for<A...>());
    }
    static Operation operation() { return {&execute, {sizeof(R), sizeof(A)...}}; }
};

template <typename Signature, auto F, typename Rule = AnyOf>
Operation form() {
    return Form<Signature, F, Rule>::operation();
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
    const u8 *const from_halves = threads.undefined(instruction.operands[2]);
    for (unsigned i = 0; i < 2; i++) {
        Narrow *const to = threads.values<Narrow>(instruction.operands[i]);
        u8 *const halves = threads.undefined(instruction.operands[i]);
        threads.each([&](unsigned lane) {
            to[lane] = static_cast<Narrow>(from[lane] >> i * 8 * sizeof(Narrow));
            halves[lane] = static_cast<u8>(from_halves[lane] >> i * (sizeof(Narrow) / 2) & all_halves<Narrow>);
        });
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
    to["div.s" + bits] = form<S(S, S), [](S a, S b) { return quotient(a, b); }, Quotient>();
    to["div.u" + bits] =
        form<U(U, U), [](U a, U b) { return b == 0 ? static_cast<U>(~U{0}) : static_cast<U>(a / b); }, Quotient>();
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
        to["selp." + (type + bits)] = form<U(U, U, bool), choose, Chosen>();
        to["mov." + (type + bits)] = form<U(U), same, EachAlone>();
    }
    to["and.b" + bits] = form<U(U, U), [](U a, U b) { return a & b; }, Decided<false>>();
    to["or.b" + bits] = form<U(U, U), [](U a, U b) { return a | b; }, Decided<true>>();
    to["xor.b" + bits] = form<U(U, U), [](U a, U b) { return a ^ b; }, EachAlone>();
    to["not.b" + bits] = form<U(U), [](U a) { return ~a; }, EachAlone>();
    to["shl.b" + bits] = form<U(U, u32), [](U a, u32 n) { return left(a, n); }, Moves<1>>();
    to["shr.u" + bits] = form<U(U, u32), [](U a, u32 n) { return right(a, n); }, Moves<1>>();
    to["shr.s" + bits] = form<S(S, u32), [](S a, u32 n) { return right(a, n); }, Moves<1>>();
}

template <typename To, typename From>
void add_conversion(Table &to, const std::string &name) {
    to["cvt." + name] = form<To(From), [](From a) { return static_cast<To>(a); }, Moves<1>>();
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
    to["selp.f32"] = form<u32(u32, u32, bool), [](u32 a, u32 b, bool p) { return p ? a : b; }, Chosen>();
    to["mov.f32"] = form<u32(u32), [](u32 a) { return a; }, EachAlone>();
    to["cvt.f32.f16"] = form<f32(u16), from_f16>();
    to["cvt.rn.f16.f32"] = form<u16(f32), to_f16>();
    to["cvt.rn.f16x2.f32"] =
        form<u32(f32, f32), [](f32 a, f32 b) { return u32{to_f16(a)} << 16 | to_f16(b); }, Joined>();
    to["cvt.rn.bf16x2.f32"] =
        form<u32(f32, f32), [](f32 a, f32 b) { return u32{to_bf16(a)} << 16 | to_bf16(b); }, Joined>();
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
    to["bfe.u32"] = form<u32(u32, u32, u32), bit_field<u32>, Moves<1>>();
    to["bfe.s64"] = form<s64(s64, u32, u32), bit_field<s64>, Moves<1>>();
    to["prmt.b32"] = form<u32(u32, u32, u32), permuted, Moves<2>>();
    add_conversion<s64, s32>(to, "s64.s32");
    add_conversion<u64, u32>(to, "u64.u32");
    add_conversion<u32, u64>(to, "u32.u64");
    add_conversion<u32, u16>(to, "u32.u16");
    add_conversion<u16, u32>(to, "u16.u32");
    add_conversion<s32, s16>(to, "s32.s16");
    to["cvta.to.global.u64"] = to["mov.b64"];  // generic addresses are those of global memory
    to["and.pred"] = form<bool(bool, bool), [](bool a, bool b) { return a && b; }, Decided<false>>();
    to["or.pred"] = form<bool(bool, bool), [](bool a, bool b) { return a || b; }, Decided<true>>();
    to["xor.pred"] = form<bool(bool, bool), [](bool a, bool b) { return a != b; }, EachAlone>();
    to["not.pred"] = form<bool(bool), [](bool a) { return !a; }, EachAlone>();
    to["mov.pred"] = form<bool(bool), [](bool a) { return a; }, EachAlone>();
    // What the decoder makes of registers that are wider than what is read of them, and of lists in braces.
    to["narrow.8.4"] = form<u32(u64), [](u64 a) { return static_cast<u32>(a); }, Moves<1>>();
    to["narrow.8.2"] = form<u16(u64), [](u64 a) { return static_cast<u16>(a); }, Moves<1>>();
    to["narrow.4.2"] = form<u16(u32), [](u32 a) { return static_cast<u16>(a); }, Moves<1>>();
    to["pack.b64"] = form<u64(u32, u32), [](u32 low, u32 high) { return u64{high} << 32 | low; }, Moves<2>>();
    to["pack.b32"] = form<u32(u16, u16), [](u16 low, u16 high) { return u32{high} << 16 | low; }, Moves<2>>();
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

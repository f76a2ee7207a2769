// What each opcode does to the registers of a thread (PTX ISA, section 9.7). NaN payloads are not modelled. prmt and
// bfe are implemented only as far as our kernels need: without sign replication, and with fields that end below bit 31.
#include "checks/cuda/machine.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace emulated_cuda {

namespace {

using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using s32 = std::int32_t;
using s64 = std::int64_t;
using f32 = float;

using pred = std::uint8_t;  // a predicate: 0 is false, anything else true

/// Converts between a register and the value of type T in its lowest bytes; the bytes above are 0.
template <typename T>
T value_of(u64 value) {
    T lowest;
    std::memcpy(&lowest, &value, sizeof(lowest));
    return lowest;
}
template <typename T>
u64 register_of(T value) {
    u64 result = 0;
    std::memcpy(&result, &value, sizeof(value));
    return result;
}

template <typename F, typename R, typename... A>
Operation operation_of(R (*)(A...)) {
    return {[](const Instruction &instruction, u64 *registers) {
                const auto &operands = instruction.operands;
                [&]<std::size_t... I>(std::index_sequence<I...>) {
                    registers[operands[0]] = register_of(F()(value_of<A>(registers[operands[I + 1]])...));
                }
                (std::index_sequence_for<A...>());
            },
            sizeof...(A) + 1};
}
/// An operation that sets its first operand to a function of the others.
template <typename F>
Operation op(F function) {
    return operation_of<F>(+function);
}

u16 to_bf16(f32 value) {  // rounds to nearest even
    const u32 bits = std::bit_cast<u32>(value);
    return std::isnan(value) ? u16{0x7fff} : static_cast<u16>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
u16 to_f16(f32 value) { return std::bit_cast<u16>(static_cast<_Float16>(value)); }

/// prmt without a mode (PTX ISA, section 9.7.9.7): each nibble of the selector picks a byte of the 8 bytes b:a.
u32 permuted(u32 a, u32 b, u32 selector) {
    u32 result = 0;
    for (unsigned i = 0; i < 4; i++) {
        result |= static_cast<u32>((u64{b} << 32 | a) >> 8 * (selector >> 4 * i & 7) & 0xff) << 8 * i;
    }
    return result;
}

using Table = std::map<std::string, Operation>;

template <typename T>
void add_comparisons_and_shr(Table &to, const std::string &type) {
    to["min." + type] = op([](T a, T b) { return std::min(a, b); });
    to["max." + type] = op([](T a, T b) { return std::max(a, b); });
    to["setp.lt." + type] = op([](T a, T b) { return a < b; });
    to["setp.le." + type] = op([](T a, T b) { return a <= b; });
    to["setp.gt." + type] = op([](T a, T b) { return a > b; });
    to["setp.ge." + type] = op([](T a, T b) { return a >= b; });
    to["shr." + type] = op([](T a, u32 n) { return n < 8 * sizeof(T) ? a >> n : a < 0 ? T(-1) : T{0}; });
}

template <typename U>
void add_integer_operations(Table &to, const std::string &bits) {
    to["add.s" + bits] = op([](U a, U b) { return a + b; });
    to["sub.s" + bits] = op([](U a, U b) { return a - b; });
    to["mul.lo.s" + bits] = op([](U a, U b) { return a * b; });
    to["mad.lo.s" + bits] = op([](U a, U b, U c) { return a * b + c; });
    to["setp.eq.b" + bits] = op([](U a, U b) { return a == b; });
    to["setp.ne.b" + bits] = op([](U a, U b) { return a != b; });
    to["selp.b" + bits] = op([](U a, U b, pred p) { return p != 0 ? a : b; });
    to["mov.b" + bits] = op([](U a) { return a; });
    to["and.b" + bits] = op([](U a, U b) { return a & b; });
    to["or.b" + bits] = op([](U a, U b) { return a | b; });
    to["xor.b" + bits] = op([](U a, U b) { return a ^ b; });
    to["not.b" + bits] = op([](U a) { return ~a; });
    to["shl.b" + bits] = op([](U a, u32 n) { return n < 8 * sizeof(U) ? a << n : U{0}; });
}

/// Rounds to the nearest e4m3 value and saturates at 448, as cvt.rn.satfinite.e4m3x2.f32 does.
u16 to_e4m3(f32 x) {
    if (std::isnan(x)) {
        return 0x7f;
    }
    const f32 size = std::min(std::fabs(x), 448.f);
    const int exponent = std::max(std::ilogb(size), -6);
    const auto eighths = static_cast<int>(std::nearbyint(std::ldexp(size, 3 - exponent)));  // units: 2^exponent / 8
    return static_cast<u16>(8 * (exponent + 6) + eighths + (std::signbit(x) ? 0x80 : 0));
}

void add_floats(Table &to) {
    to["add.rn.f32"] = op([](f32 a, f32 b) { return a + b; });
    to["mul.rn.f32"] = op([](f32 a, f32 b) { return a * b; });
    to["fma.rn.f32"] = op([](f32 a, f32 b, f32 c) { return std::fma(a, b, c); });
    to["div.rn.f32"] = op([](f32 a, f32 b) { return a / b; });
    to["sqrt.rn.f32"] = op([](f32 a) { return std::sqrt(a); });
    to["neg.f32"] = op([](f32 a) { return -a; });
    to["abs.f32"] = op([](f32 a) { return std::fabs(a); });
    to["selp.f32"] = to["selp.b32"];
    to["cvt.f32.f16"] = op([](u16 a) { return f32{std::bit_cast<_Float16>(a)}; });
    to["cvt.rn.f16.f32"] = op([](f32 a) { return to_f16(a); });
    to["cvt.rn.f16x2.f32"] = op([](f32 a, f32 b) { return u32{to_f16(a)} << 16 | to_f16(b); });
    to["cvt.rn.bf16x2.f32"] = op([](f32 a, f32 b) { return u32{to_bf16(a)} << 16 | to_bf16(b); });
    to["cvt.rn.satfinite.e4m3x2.f32"] = op([](f32 a, f32 b) { return to_e4m3(a) << 8 | to_e4m3(b); });
    to["cvt.rn.f32.s32"] = op([](s32 a) { return static_cast<f32>(a); });
    to["cvt.rn.f32.u32"] = op([](u32 a) { return static_cast<f32>(a); });
}

Table make_table() {
    Table to;
    add_comparisons_and_shr<s32>(to, "s32");
    add_comparisons_and_shr<u32>(to, "u32");
    add_comparisons_and_shr<s64>(to, "s64");
    add_comparisons_and_shr<u64>(to, "u64");
    add_integer_operations<u32>(to, "32");
    add_integer_operations<u64>(to, "64");
    add_floats(to);
    to["and.b16"] = op([](u16 a, u16 b) { return a & b; });
    to["setp.ne.b16"] = op([](u16 a, u16 b) { return a != b; });
    to["mul.wide.s32"] = op([](s32 a, s32 b) { return s64{a} * b; });
    to["mul.wide.u32"] = op([](u32 a, u32 b) { return u64{a} * b; });
    to["mul.hi.u32"] = op([](u32 a, u32 b) { return u64{a} * b >> 32; });
    to["div.u32"] = op([](u32 a, u32 b) { return b == 0 ? ~a : a / b; });  // a / 0: any value
    to["bfe.u32"] = op([](u32 a, u32 b, u32 c) { return a >> b & ((1u << c) - 1); });
    to["prmt.b32"] = op([](u32 a, u32 b, u32 c) { return permuted(a, b, c); });
    to["cvt.s64.s32"] = op([](s32 a) { return s64{a}; });
    to["cvt.u64.u32"] = to["cvt.u32.u64"] = to["mov.u32"] = to["mov.b32"];
    to["cvt.u32.u16"] = to["cvt.u16.u32"] = to["cvt.u16.u64"] = op([](u16 a) { return a; });
    to["cvta.to.global.u64"] = to["mov.b64"];  // generic addresses of global memory equal global ones
    to["and.pred"] = op([](pred a, pred b) { return a != 0 && b != 0; });
    to["or.pred"] = op([](pred a, pred b) { return a != 0 || b != 0; });
    to["not.pred"] = op([](pred a) { return a == 0; });
    to["mov.pred"] = op([](pred a) { return a != 0; });
    return to;
}

}  // namespace

const Table &operations() {
    static const Table &only = *new Table(make_table());
    return only;
}

void pack_vector(const Instruction &instruction, u64 *registers) {
    const unsigned bits = 8 * instruction.element_bytes;
    u64 whole = 0;
    for (unsigned i = 0; i < instruction.n_elements; i++) {
        whole |= (registers[instruction.operands[i]] & UINT64_MAX >> (64 - bits)) << i * bits;
    }
    registers[instruction.operands[4]] = whole;
}

void unpack_vector(const Instruction &instruction, u64 *registers) {
    const u64 whole = registers[instruction.operands[4]];
    for (unsigned i = 0; i < instruction.n_elements; i++) {
        registers[instruction.operands[i]] = whole >> i * 8 * instruction.element_bytes;
    }
}

}  // namespace emulated_cuda

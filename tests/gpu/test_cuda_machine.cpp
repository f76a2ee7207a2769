// What each opcode gives, as NVIDIA's PTX ISA has it. Results are constants, or computed in another way than the
// machine does it.
#include "cuda_scene.h"

#include <catch2/catch_test_macros.hpp>

#include <bit>
#include <limits>
#include <ranges>
#include <set>

using cuda_scene::Scene;
using cuda_scene::Size;

namespace {

using u64 = std::uint64_t;

constexpr u64 f(float value) { return std::bit_cast<std::uint32_t>(value); }
constexpr float infinity = std::numeric_limits<float>::infinity(), largest = std::numeric_limits<float>::max();
constexpr u64 nan32 = 0x7fffffff;  // the NaN that f32 arithmetic makes; 0x7fff is that of f16
constexpr u64 ones = ~u64{0};

/// Opcodes that have the same results. A type is h, r, d or p: 16, 32 or 64 bits, or a predicate; that of the result
/// comes first. A row has the sources, then the result. In a statement $d stands for the result, $a to $c for sources.
struct Form {
    std::vector<std::string> opcodes;
    std::string types;
    std::vector<std::vector<u64>> rows;
    std::string statement = "";
};

std::string name_of(char type, unsigned i) {
    const std::string prefix = type == 'h' ? "%rs" : type == 'r' ? "%r" : type == 'd' ? "%rd" : "%p";
    return prefix + std::to_string(i);
}

const char *bits_of(char type) { return type == 'd' ? "64" : type == 'r' ? "32" : "16"; }

std::string replaced(std::string text, const std::string &what, const std::string &by) {
    for (std::size_t at = 0; (at = text.find(what, at)) != text.npos; at += by.size()) {
        text.replace(at, what.size(), by);
    }
    return text;
}

/// An opcode with its registers: %r0 for the result and %r1 and so on for sources, of their widths.
std::string statement_of(const std::string &opcode, const std::string &types, std::string statement) {
    const std::string places[] = {"$d", "$a", "$b", "$c"};
    if (statement.empty()) {
        statement = opcode + " $d";
        for (std::size_t i = 1; i < types.size(); i++) {
            statement += ", " + places[i];
        }
    }
    for (unsigned i = 0; i < types.size(); i++) {
        statement = replaced(statement, places[i], name_of(types[i], i));
    }
    return statement + ";\n";
}

/// Loads a source from some memory: each has eight bytes.
std::string load(const std::string &from, char type, unsigned i) {
    const char through = type == 'p' ? 'h' : type;
    const std::string at = std::to_string(8 * (i - 1));
    std::string text =
        "ld." + from + ".b" + bits_of(type) + " " + name_of(through, i) + ", [" + "$memory+" + at + "];\n";
    return text + (type == 'p' ? "setp.ne.b16 " + name_of('p', i) + ", " + name_of('h', i) + ", 0;\n" : "");
}

std::string store(const std::string &to, char type) {
    const std::string prefix = type == 'p' ? "selp.b16 %rs0, 1, 0, %p0;\n" : "";
    return prefix + "st." + to + ".b" + bits_of(type) + " [$memory], " + name_of(type == 'p' ? 'h' : type, 0) + ";\n";
}

/// Runs a form on two blocks of 33 threads, which all have the same sources and so may store one result.
void check(const Form &form, const std::string &opcode) {
    std::string body;
    for (unsigned i = 1; i < form.types.size(); i++) {
        body += replaced(load("global", form.types[i], i), "$memory", "%rd10");
    }
    body += statement_of(opcode, form.types, form.statement);
    body += replaced(store("global", form.types[0]), "$memory", "%rd11");
    INFO(body);
    const auto module =
        std::make_shared<const emulated_cuda::Module>(emulated_cuda::decode(cuda_scene::module_of(body)));
    Scene scene;
    const unsigned n_bytes = form.types[0] == 'd' ? 8 : form.types[0] == 'r' ? 4 : 2;
    for (const std::vector<u64> &row : form.rows) {
        REQUIRE(row.size() == form.types.size());
        for (std::size_t i = 0; i + 1 < row.size(); i++) {
            scene.write(0, row[i], 8 * i);
        }
        scene.fill(1, 0xee);
        CAPTURE(row);
        CHECK(scene.run(module, {.grid = {2, 1, 1}, .block = {33, 1, 1}}).empty());
        const u64 beyond = 0xeeeeeeeeeeeeeeee, kept = n_bytes == 8 ? 0 : beyond << 8 * n_bytes;
        CHECK(scene.read<u64>(1) == (row.back() | kept));
    }
}

/// The same for each width.
template <typename Make>
void add_widths(std::vector<Form> &forms, const Make &make) {
    for (const unsigned bits : {16u, 32u, 64u}) {
        make(forms, std::to_string(bits), bits, bits == 16 ? 'h' : bits == 32 ? 'r' : 'd', ones >> (64 - bits));
    }
}

/// PTX ISA 9.7.1: integers wrap around.
void add_integers(std::vector<Form> &forms, const std::string &bits, unsigned n, char type, u64 all) {
    const u64 min = u64{1} << (n - 1), max = min - 1, half = u64{1} << n / 2;
    const std::string t1 = {type, type}, t2 = {type, type, type}, t3 = t2 + type;
    const auto both = [&](const std::string &opcode) {
        return std::vector<std::string>{opcode + ".s" + bits, opcode + ".u" + bits};
    };
    forms.push_back({both("add"), t2, {{2, 3, 5}, {max, 1, min}, {all, 1, 0}, {min, min, 0}, {half - 1, 1, half}}});
    forms.push_back({both("sub"), t2, {{5, 3, 2}, {0, 1, all}, {min, 1, max}, {half, 1, half - 1}}});
    forms.push_back({both("mul.lo"), t2, {{half, half, 0}, {all, all, 1}, {min, 3, min}, {half + 3, half, 3 * half}}});
    forms.push_back(
        {both("mad.lo"), t3, {{half, half, 7, 7}, {all, all, all, 0}, {max, 2, 2, 0}, {half, 5, 1, 5 * half + 1}}});
    forms.push_back({{"neg.s" + bits}, t1, {{1, all}, {all, 1}, {0, 0}, {min, min}, {half, all - half + 1}}});
    // Towards zero. What the smallest by -1 gives is not said; it must not end the machine.
    forms.push_back({{"div.s" + bits},
                     t2,
                     {{7, all - 1, all - 2},
                      {all - 6, 2, all - 2},
                      {min, 2, min + min / 2},
                      {0, 5, 0},
                      {min, 1, min},
                      {max, max, 1},
                      {min, all, min}}});
    forms.push_back(
        {{"div.u" + bits},
         t2,
         {{7, 2, 3}, {all, 2, max}, {all, all, 1}, {max, all, 0}, {min, max, 1}, {0, 5, 0}, {min, 1, min}}});
    forms.push_back({{"min.s" + bits}, t2, {{all, 1, all}, {min, max, min}, {5, 6, 5}, {6, 5, 5}}});
    forms.push_back({{"max.s" + bits}, t2, {{all, 1, 1}, {min, max, max}, {5, 6, 6}, {6, 5, 6}}});
    forms.push_back({{"min.u" + bits}, t2, {{all, 1, 1}, {min, max, max}, {5, 6, 5}, {6, 5, 5}}});
    forms.push_back({{"max.u" + bits}, t2, {{all, 1, all}, {min, max, min}, {5, 6, 6}, {6, 5, 6}}});
}

/// PTX ISA 9.7.6: what compares less as a signed number does not as an unsigned one.
void add_comparisons(std::vector<Form> &forms, const std::string &bits, unsigned n, char type, u64 all) {
    const u64 min = u64{1} << (n - 1), max = min - 1, high = u64{1} << (n - 2);
    const u64 pairs[][2] = {{all, 1}, {1, all}, {5, 5}, {min, max}, {4, 5}, {high | 5, 5}, {5, high | 5}};
    const std::pair<const char *, const char *> results[] = {
        {"lt.s", "1001101"}, {"le.s", "1011101"}, {"gt.s", "0100010"}, {"ge.s", "0110010"}, {"lt.u", "0100101"},
        {"le.u", "0110101"}, {"gt.u", "1001010"}, {"ge.u", "1011010"}, {"eq.s", "0010000"}, {"eq.u", "0010000"},
        {"eq.b", "0010000"}, {"ne.s", "1101111"}, {"ne.u", "1101111"}, {"ne.b", "1101111"}};
    for (const auto &[name, result] : results) {
        Form form = {{std::string("setp.") + name + bits}, {'p', type, type}, {}};
        for (std::size_t i = 0; i < std::size(pairs); i++) {
            form.rows.push_back({pairs[i][0], pairs[i][1], result[i] == '1' ? 1u : 0u});
        }
        forms.push_back(form);
    }
}

/// PTX ISA 9.7.8 and 9.7.9: nothing but bits.
void add_logic(std::vector<Form> &forms, const std::string &bits, unsigned, char type, u64 all) {
    const u64 a = 0xf0f0f0f05a5aff00 & all, b = 0xff0000ff3c3c0ff0 & all;
    const std::string t1 = {type, type}, t2 = {type, type, type};
    forms.push_back({{"and.b" + bits}, t2, {{a, b, 0xf00000f018180f00 & all}, {a, 0, 0}, {a, all, a}}});
    forms.push_back({{"or.b" + bits}, t2, {{a, b, 0xfff0f0ff7e7efff0 & all}, {a, 0, a}, {a, all, all}}});
    forms.push_back({{"xor.b" + bits}, t2, {{a, b, 0x0ff0f00f6666f0f0 & all}, {a, a, 0}, {a, 0, a}}});
    forms.push_back({{"not.b" + bits}, t1, {{a, 0x0f0f0f0fa5a500ff & all}, {0, all}}});
    for (const std::string sign : {"b", "s", "u"}) {
        forms.push_back({{"selp." + (sign + bits)}, t2 + 'p', {{a, b, 1, a}, {a, b, 0, b}}});
        forms.push_back({{"mov." + (sign + bits)}, t1, {{a, a}, {all, all}}});
    }
}

/// PTX ISA 9.7.8.7 and 9.7.8.8: all 32 bits of the amount count, and what is shifted out is gone.
void add_shifts(std::vector<Form> &forms, const std::string &bits, unsigned n, char type, u64 all) {
    const std::string types = {type, type, 'r'};
    Form left = {{"shl.b" + bits}, types, {}}, logical = {{"shr.u" + bits}, types, {}},
         arithmetic = {{"shr.s" + bits}, types, {}};
    for (const u64 value : {0x8123456789abcdefu >> (64 - n), 0x7edcba9876543211u >> (64 - n)}) {
        for (const u64 amount :
             {0u, 1u, 4u, 15u, 16u, 17u, 31u, 32u, 33u, 63u, 64u, 65u, 255u, 256u, 0x80000000u, ~0u}) {
            u64 to_left = value, to_right = value, with_sign = value;
            for (unsigned i = 0; i < std::min<u64>(amount, 300); i++) {
                to_left = (to_left + to_left) & all;
                to_right /= 2;
                with_sign = with_sign / 2 + (with_sign > all / 2 ? all / 2 + 1 : 0);
            }
            left.rows.push_back({value, amount, to_left});
            logical.rows.push_back({value, amount, to_right});
            arithmetic.rows.push_back({value, amount, with_sign});
        }
    }
    forms.insert(forms.end(), {left, logical, arithmetic});
}

const std::vector<Form> products = {
    {{"mul.wide.s32"},
     "drr",
     {{0xffffffff, 1, ones},
      {0xffffffff, 0xffffffff, 1},
      {0x80000000, 0x80000000, u64{1} << 62},
      {0x7fffffff, 0xffffffff, 0xffffffff80000001},
      {0x80000000, 2, 0xffffffff00000000}}},
    {{"mul.wide.u32"}, "drr", {{0xffffffff, 0xffffffff, 0xfffffffe00000001}, {0x80000000, 2, 0x100000000}, {3, 5, 15}}},
    {{"mul.hi.u32"}, "rrr", {{0xffffffff, 0xffffffff, 0xfffffffe}, {0x80000000, 2, 1}, {0xffff, 0xffff, 0}}}};

/// PTX ISA 9.7.1.20, bfe: the lowest 8 bits of position and length count; a field that reaches beyond the top goes on
/// with zeros, or with the top bit; a length of 0 gives 0. 9.7.9.7, prmt: a selector's bit 3 repeats a byte's sign.
const std::vector<Form> fields = {{{"bfe.u32"},
                                   "rrrr",
                                   {{0xabcd1234, 8, 8, 0x12},
                                    {0xabcd1234, 0, 32, 0xabcd1234},
                                    {0xabcd1234, 0, 0, 0},
                                    {0xabcd1234, 31, 1, 1},
                                    {0xabcd1234, 31, 5, 1},
                                    {0xabcd1234, 32, 4, 0},
                                    {0xabcd1234, 255, 255, 0},
                                    {0xabcd1234, 16, 255, 0xabcd},
                                    {0xabcd1234, 0x108, 0x108, 0x12},
                                    {0xabcd1234, 4, 100, 0xabcd123}}},
                                  {{"bfe.s64"},
                                   "ddrr",
                                   {{0xfedcba9876543210, 32, 8, 0xffffffffffffff98},
                                    {0xfedcba9876543210, 60, 10, ones},
                                    {0xfedcba9876543210, 0, 4, 0},
                                    {0xfedcba9876543210, 4, 3, 1},
                                    {0xfedcba9876543210, 4, 1, ones},
                                    {0xfedcba9876543210, 0x104, 0x101, ones},
                                    {0xfedcba9876543210, 70, 3, ones},
                                    {0x7edcba9876543210, 48, 32, 0x7edc}}},
                                  {{"prmt.b32"},
                                   "rrrr",
                                   {{0x7f80ff01, 0x10f0a005, 0x3210, 0x7f80ff01},
                                    {0x7f80ff01, 0x10f0a005, 0x7654, 0x10f0a005},
                                    {0x7f80ff01, 0x10f0a005, 0x0123, 0x01ff807f},
                                    {0x7f80ff01, 0x10f0a005, 0xba98, 0x00ffff00},
                                    {0x7f80ff01, 0x10f0a005, 0xfedc, 0x00ffff00},
                                    {0x7f80ff01, 0x10f0a005, 0x9c50, 0xff00a001},
                                    {0x7f80ff01, 0x10f0a005, 0xffff5410, 0xa005ff01},
                                    {0x7f80ff01, 0x10f0a005, 0x7632, 0x10f07f80}}}};

/// PTX ISA 9.7.3: to nearest even, with subnormals.
const std::vector<Form> sums = {
    {{"add.f32", "add.rn.f32"},
     "rrr",
     {{f(1), f(0x1p-24f), f(1)},
      {f(0x1.000002p0f), f(0x1p-24f), f(0x1.000004p0f)},
      {f(1), f(0x1.000002p-24f), f(0x1.000002p0f)},
      {f(infinity), f(-infinity), nan32},
      {0x7f800001, f(1), nan32},
      {f(1), 0xffc12345, nan32},
      {1, 1, 2},
      {0x007fffff, 1, 0x00800000},
      {f(1), f(-1), 0},
      {f(-0.f), f(-0.f), f(-0.f)},
      {f(-0.f), 0, 0},
      {f(largest), f(largest), f(infinity)},
      {f(largest), f(0x1p103f), f(infinity)},
      {f(largest), f(0x1.fffffep102f), f(largest)},
      {f(-infinity), f(1), f(-infinity)}}},
    {{"sub.f32", "sub.rn.f32"},
     "rrr",
     {{f(1), f(1), 0},
      {f(-0.f), 0, f(-0.f)},
      {0, f(-0.f), 0},
      {f(infinity), f(infinity), nan32},
      {f(1), f(0x1p-25f), f(1)},
      {f(1), f(0x1.000002p-25f), f(0x1.fffffep-1f)},
      {0x00800000, 1, 0x007fffff},
      {2, 3, 0x80000001},
      {0x7fc00000, f(1), nan32},
      {f(-largest), f(largest), f(-infinity)}}},
    {{"mul.f32", "mul.rn.f32"},
     "rrr",
     {{f(0x1.000002p0f), f(0x1.000002p0f), f(0x1.000004p0f)},
      {f(0x1p-100f), f(0x1p-50f), 0},
      {3, f(0.5f), 2},
      {1, f(0.5f), 0},
      {0x80000001, f(0.5f), f(-0.f)},
      {1, f(0.75f), 1},
      {0, f(infinity), nan32},
      {f(largest), f(2), f(infinity)},
      {f(-1), 0, f(-0.f)},
      {f(-infinity), f(-2), f(infinity)},
      {0xffffffff, f(1), nan32},
      {f(1.5f), f(1.5f), f(2.25f)}}},
    // With one rounding: mul and add give 0 in the first row, and a sum in double the wrong neighbour in the second.
    {{"fma.rn.f32"},
     "rrrr",
     {{f(0x1.000002p0f), f(0x1.000002p0f), f(-0x1.000004p0f), f(0x1p-46f)},
      {f(0x1.000002p6f), f(0x1.fffffcp-1f), f(0x1.000002p30f), f(0x1.000002p30f)},
      {1, f(0.5f), 1, 2},
      {f(infinity), 0, f(1), nan32},
      {0, f(infinity), 0x7fc00000, nan32},
      {f(largest), f(2), f(-largest), f(largest)},
      {f(1), f(1), f(-1), 0},
      {f(-1), 0, f(-0.f), f(-0.f)},
      {f(1), 0, f(-0.f), 0},
      {f(infinity), f(1), f(-infinity), nan32},
      {f(1), f(1), 0x7f800001, nan32},
      {f(2), f(3), f(4), f(10)}}}};

/// copysign: 9.7.3.6, of the first source the sign. neg and abs of a NaN give some NaN, which the manual leaves open.
const std::vector<Form> quotients = {
    {{"div.rn.f32"},
     "rrr",
     {{f(1), f(3), 0x3eaaaaab},
      {f(2), f(3), 0x3f2aaaab},
      {1, f(2), 0},
      {3, f(2), 2},
      {f(1), 0, f(infinity)},
      {f(1), f(-0.f), f(-infinity)},
      {0, 0, nan32},
      {f(infinity), f(infinity), nan32},
      {f(-1), f(infinity), f(-0.f)},
      {0x7fc00001, f(1), nan32},
      {f(1), f(0x1.000002p0f), f(0x1.fffffcp-1f)},
      {f(largest), f(0.5f), f(infinity)}}},
    {{"sqrt.rn.f32"},
     "rr",
     {{f(2), 0x3fb504f3},
      {f(3), 0x3fddb3d7},
      {f(4), f(2)},
      {f(-0.f), f(-0.f)},
      {f(-1), nan32},
      {f(infinity), f(infinity)},
      {f(-infinity), nan32},
      {1, 0x1a3504f3},
      {0x7f800001, nan32},
      {0x80000001, nan32}}},
    {{"neg.f32"},
     "rr",
     {{f(1), f(-1)}, {0, f(-0.f)}, {f(-0.f), 0}, {f(infinity), f(-infinity)}, {1, 0x80000001}, {0x7fc00000, nan32}}},
    {{"abs.f32"},
     "rr",
     {{f(-1), f(1)}, {f(1), f(1)}, {f(-0.f), 0}, {f(-infinity), f(infinity)}, {0x80000001, 1}, {0xffc00000, nan32}}},
    {{"copysign.f32"},
     "rrr",
     {{f(-1), f(2), f(-2)}, {0, f(-2), f(2)}, {f(-0.f), f(-3), f(-3)}, {f(1), f(-0.f), 0}, {0xffc00000, f(1), f(-1)}}},
    {{"selp.f32"}, "rrrp", {{0x7f800001, f(1), 1, 0x7f800001}, {0x7f800001, 0xff800001, 0, 0xff800001}}},
    {{"mov.f32"}, "rr", {{0x7f800001, 0x7f800001}, {f(-0.f), f(-0.f)}}}};

/// PTX ISA 9.7.9.21, cvt.
const std::vector<Form> conversions = {
    {{"cvt.f32.f16"},
     "rh",
     {{0x3c00, f(1)},
      {1, f(0x1p-24f)},
      {0x03ff, f(0x1.ff8p-15f)},
      {0x8000, f(-0.f)},
      {0x8001, f(-0x1p-24f)},
      {0x7c00, f(infinity)},
      {0xfc00, f(-infinity)},
      {0x7c01, nan32},
      {0xfe00, nan32},
      {0x7bff, f(65504)},
      {0x0400, f(0x1p-14f)}}},
    {{"cvt.rzi.s32.f32"},
     "rr",
     {{f(0.99f), 0},
      {f(-1.99f), 0xffffffff},
      {f(2.5f), 2},
      {f(-0.f), 0},
      {1, 0},
      {f(0x1.fffffep30f), 0x7fffff80},
      {f(0x1p31f), 0x7fffffff},
      {f(-0x1p31f), 0x80000000},
      {f(infinity), 0x7fffffff},
      {f(-infinity), 0x80000000},
      {0x7fc00000, 0},
      {0xff800001, 0}}},
    {{"cvt.rn.f16.f32"},
     "hr",
     {{f(65504), 0x7bff},
      {0x477fefff, 0x7bff},
      {f(65520), 0x7c00},
      {f(0x1.002p0f), 0x3c00},
      {f(0x1.006p0f), 0x3c02},
      {f(0x1.002002p0f), 0x3c01},
      {f(0x1p-24f), 1},
      {f(0x1p-25f), 0},
      {f(0x1.000002p-25f), 1},
      {f(0x1.8p-24f), 2},
      {f(-0x1p-25f), 0x8000},
      {f(0x1.ffcp-15f), 0x0400},
      {f(0x1.ff8p-15f), 0x03ff},
      {0x7fc00000, 0x7fff},
      {0xff800001, 0x7fff},
      {f(infinity), 0x7c00},
      {f(-infinity), 0xfc00},
      {f(1e30f), 0x7c00},
      {1, 0},
      {f(-2), 0xc000}}},
    // The first source makes the upper half word.
    {{"cvt.rn.f16x2.f32"},
     "rrr",
     {{f(1), f(2), 0x3c004000}, {0x7fc00000, f(infinity), 0x7fff7c00}, {f(0x1p-25f), f(-0x1p-24f), 0x00008001}}},
    {{"cvt.rn.bf16x2.f32"},
     "rrr",
     {{f(1), f(-2), 0x3f80c000},
      {0x7fc00000, f(infinity), 0x7fff7f80},
      {0xff800001, 0x7f7fffff, 0x7fff7f80},
      {0x3f808000, 0x3f818000, 0x3f803f82},
      {0x3f808001, 0x3f807fff, 0x3f813f80},
      {0x80000001, 0x00018000, 0x80000002}}},
    {{"cvt.rn.satfinite.e4m3x2.f32"},
     "hrr",
     {{f(1), f(-2), 0x38c0},
      {0x7fc00000, f(infinity), 0x7f7e},
      {f(464), f(-0x1p-10f), 0x7e80},
      {f(17), f(19), 0x585a},
      {f(0x1.8p-9f), f(0x1p-9f), 0x0201}}},
    {{"cvt.rn.f32.s32"},
     "rr",
     {{0x7fffffff, f(0x1p31f)},
      {0x80000000, f(-0x1p31f)},
      {16777217, f(16777216)},
      {16777219, f(16777220)},
      {0xfeffffff, f(-16777216)},
      {0xffffffff, f(-1)},
      {0, 0},
      {63, f(63)}}},
    {{"cvt.rn.f32.u32"},
     "rr",
     {{0xffffffff, f(0x1p32f)},
      {0x80000080, f(0x1p31f)},
      {0x80000180, f(2147484160.f)},
      {0x80000081, f(2147483904.f)},
      {0, 0},
      {63, f(63)}}},
    {{"cvt.s64.s32"}, "dr", {{0x80000000, 0xffffffff80000000}, {0x7fffffff, 0x7fffffff}}},
    {{"cvt.u64.u32"}, "dr", {{0x80000000, 0x80000000}, {0xffffffff, 0xffffffff}}},
    {{"cvt.u32.u64"}, "rd", {{0xdeadbeefcafebabe, 0xcafebabe}, {0xffffffff00000000, 0}}},
    {{"cvt.u32.u16"}, "rh", {{0x8000, 0x8000}, {0xffff, 0xffff}}},
    {{"cvt.u16.u32"}, "hr", {{0xdead8001, 0x8001}, {0xffff0000, 0}}},
    {{"cvt.s32.s16"}, "rh", {{0x8000, 0xffff8000}, {0x7fff, 0x7fff}}},
    {{"cvta.to.global.u64"}, "dd", {{0x123456789abcdef0, 0x123456789abcdef0}}},
    // 9.4.1: a register may be wider than what cvt takes of it.
    {{"narrow.8.4"}, "dd", {{0xdeadbeef80000001, 0x80000001}}, "cvt.u64.u32 $d, $a"},
    {{"narrow.8.4"}, "dd", {{0x0000000080000001, 0xffffffff80000001}, {0xffffffff00000005, 5}}, "cvt.s64.s32 $d, $a"},
    {{"narrow.8.2"}, "rd", {{0xdeadbeef8001, 0x8001}}, "cvt.u32.u16 $d, $a"},
    {{"narrow.4.2"}, "rr", {{0xffff7fff, 0x7fff}, {0x00008000, 0xffff8000}}, "cvt.s32.s16 $d, $a"},
    // 9.7.9.6: the first of a list is the lowest.
    {{"pack.b64"}, "drr", {{0x11111111, 0x22222222, 0x2222222211111111}}, "mov.b64 $d, {$a, $b}"},
    {{"pack.b32"}, "rhh", {{0x1111, 0x2222, 0x22221111}}, "mov.b32 $d, {$a, $b}"},
    {{"unpack.b64"}, "rd", {{0x2222222211111111, 0x11111111}}, "mov.b64 {$d, %r9}, $a"},
    {{"unpack.b64"}, "rd", {{0x2222222211111111, 0x22222222}}, "mov.b64 {%r9, $d}, $a"},
    {{"unpack.b32"}, "hr", {{0x22221111, 0x1111}}, "mov.b32 {$d, %rs9}, $a"},
    {{"unpack.b32"}, "hr", {{0x22221111, 0x2222}}, "mov.b32 {%rs9, $d}, $a"}};

const std::vector<Form> predicates = {{{"and.pred"}, "ppp", {{0, 0, 0}, {0, 1, 0}, {1, 0, 0}, {1, 1, 1}}},
                                      {{"or.pred"}, "ppp", {{0, 0, 0}, {0, 1, 1}, {1, 0, 1}, {1, 1, 1}}},
                                      {{"xor.pred"}, "ppp", {{0, 0, 0}, {0, 1, 1}, {1, 0, 1}, {1, 1, 0}}},
                                      {{"not.pred"}, "pp", {{0, 1}, {1, 0}}},
                                      {{"mov.pred"}, "pp", {{0, 0}, {1, 1}}}};

/// Sources that are no registers, and registers that are source and result: PTX ISA 4.5 and 4.6.
const std::vector<Form> literals = {
    {{"add.s32"}, "rr", {{5, 4}}, "add.s32 $d, $a, -1"},
    {{"add.s32"}, "rr", {{1, 0x80000000}}, "add.s32 $d, $a, 0x7FFFFFFF"},
    {{"add.s32"}, "rr", {{1, 0}}, "add.s32 $d, 4294967295U, $a"},
    {{"max.s64"}, "dd", {{0x8000000000000000, 0xe000000000000000}}, "max.s64 $d, $a, -2305843009213693952"},
    {{"mul.rn.f32"}, "rr", {{f(2), f(3)}}, "mul.rn.f32 $d, $a, 0f3FC00000"},
    {{"selp.b16"}, "hp", {{1, 0xffff}, {0, 0}}, "selp.b16 $d, -1, 0, $a"},
    {{"mov.pred"}, "p", {{1}}, "mov.pred $d, -1"},
    {{"mov.u32"}, "r", {{33}}, "mov.u32 $d, %ntid.x"},
    {{"mov.b64"}, "d", {{emulated_cuda::shared_begin}}, "mov.b64 $d, shared"},
    {{"add.s32"}, "rr", {{3, 12}}, "add.s32 $a, $a, $a;\nadd.s32 $d, $a, $a"},
    {{"mov.b64"},
     "rd",
     {{0x700000005, 12}},
     "{ .reg .b32 t; mov.b64 {t, $d}, $a; add.s32 $d, $d, t; }\nmov.b32 $d, $d"}};

std::vector<Form> all_forms() {
    std::vector<Form> forms;
    for (const auto add : {add_integers, add_comparisons, add_logic, add_shifts}) {
        add_widths(forms, add);
    }
    for (const auto *const more : {&products, &fields, &sums, &quotients, &conversions, &predicates, &literals}) {
        forms.insert(forms.end(), more->begin(), more->end());
    }
    return forms;
}

}  // namespace

TEST_CASE("cuda machine: each opcode gives what the PTX ISA says", "[machine]") {
    std::set<std::string> tested;
    for (const Form &form : all_forms()) {
        for (const std::string &opcode : form.opcodes) {
            CAPTURE(opcode);
            check(form, opcode);
            tested.insert(opcode);
        }
    }
    const auto known = std::views::keys(emulated_cuda::operations());
    CHECK(tested == std::set<std::string>(known.begin(), known.end()));
}

// ---- Loads, stores, and where threads go
// -------------------------------------------------------------------------------

namespace {

constexpr u64 pattern = 0x8877665544332211;

/// Elements of a load or store, each in a register of the same width: {%r0, %r1} or %r0.
std::string elements(unsigned n, char type) {
    std::string list = name_of(type, 0);
    for (unsigned i = 1; i < n; i++) {
        list += ", " + name_of(type, i);
    }
    return n == 1 ? list : "{" + list + "}";
}

struct Widened {
    const char *body;
    u64 value;
};

// PTX ISA 9.4.1: signed elements are extended by their sign, all others by zeros; of what is stored the lower part
// counts.
const Widened widened[] = {
    {"ld.global.s16 %r0, [%rd10+6];\nst.global.b32 [%rd11], %r0;", 0xffff8877},
    {"ld.global.u16 %r0, [%rd10+6];\nst.global.b32 [%rd11], %r0;", 0x8877},
    {"ld.global.nc.b16 %r0, [%rd10+6];\nst.global.b32 [%rd11], %r0;", 0x8877},
    {"ld.global.s16 %rd0, [%rd10+6];\nst.global.b64 [%rd11], %rd0;", 0xffffffffffff8877},
    {"ld.global.nc.s32 %rd0, [%rd10+4];\nst.global.b64 [%rd11], %rd0;", 0xffffffff88776655},
    {"ld.global.s32 %rd0, [%rd10];\nst.global.b64 [%rd11], %rd0;", 0x44332211},
    {"ld.global.nc.b32 %rd0, [%rd10+4];\nst.global.b64 [%rd11], %rd0;", 0x88776655},
    {"ld.global.f32 %rd0, [%rd10+4];\nst.global.b64 [%rd11], %rd0;", 0x88776655},
    {"ld.global.v2.s16 {%r0, %r1}, [%rd10+4];\nst.global.v2.b32 [%rd11], {%r0, %r1};", 0xffff887700006655},
    {"ld.param.b8 %rs0, [byte];\nst.global.b16 [%rd11], %rs0;", 0x81},
    {"ld.param.s8 %rs0, [byte];\nst.global.b16 [%rd11], %rs0;", 0xff81},
    {"ld.param.u8 %r0, [byte];\nst.global.b32 [%rd11], %r0;", 0x81},
    {"ld.global.b64 %rd0, [%rd10];\nst.global.b16 [%rd11], %rd0;", 0x2211},
    {"ld.global.b64 %rd0, [%rd10];\nst.global.b32 [%rd11], %rd0;", 0x44332211},
    {"ld.global.v2.b32 {%r0, %r1}, [%rd10];\nst.global.v2.b16 [%rd11], {%r0, %r1};", 0x66552211},
    {"ld.global.b64 %rd10, [%rd10];\nst.global.b64 [%rd11], %rd10;", pattern},
    {"st.global.v2.b32 [%rd11], {7, -1};", 0xffffffff00000007},
    {"add.s64 %rd1, %rd10, 12;\nld.global.b16 %rs0, [%rd1+-10];\nst.global.b16 [%rd11], %rs0;", 0x4433}};

/// Moves n elements from the beginning of %rd10 to that of %rd11, if need be by shared memory.
std::string moving_body(const std::string &from, const std::string &type, unsigned n) {
    const std::string vector = (n == 1 ? "." : ".v" + std::to_string(n) + ".") + type + " ";
    const std::string list = elements(n, type.ends_with("16") ? 'h' : type.ends_with("32") ? 'r' : 'd');
    if (from != "shared") {
        return "ld." + from + vector + list + ", [%rd10];\nst.global" + vector + "[%rd11], " + list + ";\n";
    }
    return "ld.global.v4.b32 {%r4, %r5, %r6, %r7}, [%rd10];\nst.shared.v4.b32 [%rd14+32], {%r4, %r5, %r6, %r7};\n"
           "ld.shared" +
           vector + list + ", [%rd14+32];\nst.shared" + vector + "[%rd14+16], " + list + ";\nld.shared" + vector +
           list + ", [%rd14+16];\nst.global" + vector + "[%rd11], " + list + ";\n";
}

}  // namespace

TEST_CASE("cuda machine: loads and stores move each element to its place", "[machine]") {
    Scene scene;
    int n_forms = 0;
    const std::array<u64, 2> bytes = {pattern, ~pattern};
    for (const std::string type : {"b16", "u16", "s16", "b32", "u32", "s32", "f32", "b64", "u64", "s64"}) {
        const unsigned n_bytes = type.ends_with("16") ? 2 : type.ends_with("32") ? 4 : 8;
        for (const std::string from : {"global", "global.nc", "shared"}) {
            for (const unsigned n : {1u, 2u, 4u}) {
                if (n * n_bytes > 16) {
                    continue;
                }
                const std::string body = moving_body(from, type, n);
                INFO(body);
                scene.write(0, bytes);
                scene.fill(1, 0xee);
                CHECK(scene.run(body) == "");
                std::array<u64, 3> expected = {0xeeeeeeeeeeeeeeee, 0xeeeeeeeeeeeeeeee, 0xeeeeeeeeeeeeeeee};
                std::memcpy(expected.data(), bytes.data(), n * n_bytes);
                CHECK(scene.read<std::array<u64, 3>>(1) == expected);
                n_forms++;
            }
        }
    }
    CHECK(n_forms == 81);
    for (const auto &[body, value] : widened) {
        INFO(body);
        scene.write(0, pattern);
        scene.fill(1, 0);
        CHECK(scene.run(body) == "");
        CHECK(scene.read<u64>(1) == value);
    }
}

TEST_CASE("cuda machine: threads and blocks know their places", "[machine]") {
    // Each thread of each block stores what tells them apart, in a half word of its own.
    const std::string body = "mov.u32 %r0, %ntid.x;\nmov.u32 %r1, %ntid.y;\nmov.u32 %r2, %ntid.z;\n"
                             "mov.u32 %r3, %tid.x;\nmov.u32 %r4, %tid.y;\nmov.u32 %r5, %tid.z;\n"
                             "mad.lo.s32 %r6, %r5, %r1, %r4;\nmad.lo.s32 %r6, %r6, %r0, %r3;\n"
                             "mul.lo.s32 %r7, %r0, %r1;\nmul.lo.s32 %r7, %r7, %r2;\n"
                             "mov.u32 %r8, %ctaid.z;\nmad.lo.s32 %r9, %r8, %nctaid.y, %ctaid.y;\n"
                             "mad.lo.s32 %r9, %r9, %nctaid.x, %ctaid.x;\nmad.lo.s32 %r10, %r9, %r7, %r6;\n"
                             "mul.wide.u32 %rd0, %r10, 2;\nadd.s64 %rd0, %rd0, %rd11;\n"
                             "mad.lo.s32 %r11, %r9, 100, %r6;\nadd.s32 %r11, %r11, %nctaid.z;\n"
                             "st.global.b16 [%rd0], %r11;\n";
    Scene scene;
    INFO(body);
    // 30 words: five blocks of six threads, one more than run at once.
    for (const Size &size :
         {Size{{5, 1, 1}, {3, 2, 1}, 0}, Size{{1, 5, 1}, {1, 3, 2}, 0}, Size{{1, 1, 5}, {6, 1, 1}, 0}}) {
        CHECK(scene.run(body, size).empty());
        for (unsigned block = 0; block < 5; block++) {
            for (unsigned thread = 0; thread < 6; thread++) {
                CHECK(scene.read<std::uint16_t>(1, 2 * (6 * block + thread)) == 100 * block + thread + size.grid[2]);
            }
        }
    }
}

TEST_CASE("cuda machine: threads part, loop, wait for each other and end", "[machine]") {
    // Thread i adds 1 + 2 + … + i, even ones by one way and odd ones by another, and ends or not; the last thread is
    // told by %p3. Then each takes what its opposite stored.
    const std::string body = "mov.u32 %r0, %tid.x;\nmov.b32 %r1, 0;\nmov.b32 %r2, %r0;\nand.b32 %r3, %r0, 1;\n"
                             "setp.eq.s32 %p0, %r3, 0;\n@%p0 bra $even;\n@!%p0 bra $odd;\ntrap;\n"
                             "$even: setp.eq.s32 %p1, %r2, 0;\n@%p1 bra $meet;\nadd.s32 %r1, %r1, %r2;\n"
                             "sub.s32 %r2, %r2, 1;\nbra.uni $even;\n"
                             "$odd: add.s32 %r1, %r1, %r2;\nsub.s32 %r2, %r2, 1;\nsetp.ne.s32 %p2, %r2, 0;\n"
                             "@%p2 bra $odd;\nbra $meet;\n"
                             "$meet: mul.wide.u32 %rd0, %r0, 2;\nadd.s64 %rd1, %rd0, %rd14;\n"
                             "st.shared.b16 [%rd1], %r1;\nbar.sync 0;\nsub.s32 %r4, 24, %r0;\n"
                             "mul.wide.u32 %rd2, %r4, 2;\nadd.s64 %rd2, %rd2, %rd14;\nld.shared.b16 %rs0, [%rd2];\n"
                             "bar.sync 0;\nst.shared.b16 [%rd1], 0;\n"
                             "setp.ne.s32 %p3, %r0, 24;\n@%p3 bra $store;\nexit;\n"
                             "$store: add.s64 %rd0, %rd0, %rd11;\nst.global.b16 [%rd0], %rs0;\nret;\ntrap;\n";
    Scene scene;
    for (std::uint64_t seed = 1; seed <= 20; seed++) {
        scene.fill(1, 0xee);
        CHECK(scene.run(body, {.block = {25, 1, 1}}, seed) == "");
        for (unsigned i = 0; i < 25; i++) {
            const unsigned opposite = 24 - i;
            CHECK(scene.read<std::uint16_t>(1, 2 * i) == (i == 24 ? 0xeeee : opposite * (opposite + 1) / 2));
        }
    }
}

// What each opcode gives, as NVIDIA's PTX ISA has it. Results are constants, or computed in another way than the
// machine does it.
#include "cuda_scene.h"

#include <catch2/catch_test_macros.hpp>

#include <bit>
#include <limits>
#include <set>

using cuda_scene::Scene;
using cuda_scene::Size;

namespace {

using u64 = std::uint64_t;

constexpr u64 f(float value) { return std::bit_cast<std::uint32_t>(value); }
constexpr float infinity = std::numeric_limits<float>::infinity(), largest = std::numeric_limits<float>::max();
constexpr u64 nan32 = 0x7fffffff;  // the NaN that f32 arithmetic makes; 0x7fff is that of f16
constexpr u64 ones = ~u64{0};

/// A row has the sources, then the result. An opcode stands alone, or in a statement in which %d is the result and %a
/// to %c are the sources.
struct Form {
    std::string opcode;
    std::vector<std::vector<u64>> rows;
};

std::string body_of(const Form &form) {
    std::string statement = form.opcode, loads;
    for (std::size_t i = 0; i + 1 < form.rows[0].size(); i++) {
        const std::string source = std::string("%") + "abc"[i];
        loads += "ld.global.b64 " + source + ", [%rd10+" + std::to_string(8 * i) + "];\n";
        statement += form.opcode.find(' ') == std::string::npos ? (i == 0 ? " %d, " : ", ") + source : "";
    }
    return loads + statement + ";\nst.global.b64 [%rd11], %d;\n";
}

/// Runs a form on two blocks of 33 threads, which all have the same sources and so may store one result.
void check(const Form &form) {
    const std::string body = body_of(form);
    INFO(body);
    const auto module =
        std::make_shared<const emulated_cuda::Module>(emulated_cuda::decode(cuda_scene::module_of(body)));
    Scene scene;
    for (const std::vector<u64> &row : form.rows) {
        for (std::size_t i = 0; i + 1 < row.size(); i++) {
            scene.write(0, row[i], 8 * i);
        }
        CAPTURE(row);
        CHECK(scene.run(module, {.grid = {2, 1, 1}, .block = {33, 1, 1}}).empty());
        CHECK(scene.read<u64>(1) == row.back());
    }
}

/// Integers wrap around (PTX ISA 9.7.1), compare with their sign or without it (9.7.6), and all 32 bits of a shift's
/// amount count (9.7.8). All opcodes of 32 and 64 bits.
std::vector<Form> forms_of_integers(unsigned n) {
    const std::string bits = std::to_string(n);
    const u64 all = ones >> (64 - n), min = u64{1} << (n - 1), max = min - 1, half = u64{1} << n / 2;
    const u64 a = 0xf0f0f0f05a5aff00 & all, b = 0xff0000ff3c3c0ff0 & all;
    std::vector<Form> forms = {
        {"add.s", {{max, 1, min}, {all, 1, 0}, {half - 1, 1, half}}},
        {"sub.s", {{5, 3, 2}, {0, 1, all}, {half, 1, half - 1}}},
        {"mul.lo.s", {{half, half, 0}, {all, all, 1}, {half + 3, half, 3 * half}}},
        {"mad.lo.s", {{half, half, 7, 7}, {all, all, all, 0}, {half, 5, 1, 5 * half + 1}}},
        {"min.s", {{all, 1, all}, {min, max, min}, {6, 5, 5}}},
        {"max.s", {{all, 1, 1}, {min, max, max}, {5, 6, 6}}},
        {"min.u", {{all, 1, 1}, {min, max, max}, {6, 5, 5}}},
        {"max.u", {{all, 1, all}, {min, max, min}, {5, 6, 6}}},
        {"and.b", {{a, b, 0xf00000f018180f00 & all}}},
        {"or.b", {{a, b, 0xfff0f0ff7e7efff0 & all}}},
        {"xor.b", {{a, b, 0x0ff0f00f6666f0f0 & all}}},
        {"not.b", {{a, 0x0f0f0f0fa5a500ff & all}}},
        {"selp.b", {{a, b, 1, a}, {a, b, 0, b}}},
        {"mov.b", {{a, a}}},
        {"shl.b",
         {{all, 0, all}, {all, n - 1, min}, {all, n, 0}, {all, n + 1, 0}, {all, 256, 0}, {all, 0x80000000, 0}}},
        {"shr.u", {{min, 1, min / 2}, {all, n - 1, 1}, {all, n, 0}, {all, n + 1, 0}, {all, 256, 0}}},
        {"shr.s", {{min, 1, min | min / 2}, {min, n, all}, {min, 256, all}, {max, n - 1, 0}, {max, n + 1, 0}}}};
    const std::pair<const char *, const char *> comparisons[] = {
        {"lt.s", "1001"}, {"le.s", "1011"}, {"gt.s", "0100"}, {"ge.s", "0110"}, {"lt.u", "0100"},
        {"le.u", "0110"}, {"gt.u", "1001"}, {"ge.u", "1011"}, {"eq.b", "0010"}, {"ne.b", "1101"}};
    for (const auto &[name, result] : comparisons) {
        forms.push_back({std::string("setp.") + name, {}});
        const u64 pairs[][2] = {{all, 1}, {1, all}, {5, 5}, {min, max}};
        for (std::size_t i = 0; i < 4; i++) {
            forms.back().rows.push_back({pairs[i][0], pairs[i][1], result[i] == '1' ? 1u : 0u});
        }
    }
    for (Form &form : forms) {
        form.opcode += bits;
    }
    return forms;
}

const std::vector<Form> forms = {
    {"mul.wide.s32", {{0xffffffff, 1, ones}, {0x80000000, 0x80000000, u64{1} << 62}, {0x80000000, 2, ones << 32}}},
    {"mul.wide.u32", {{0xffffffff, 0xffffffff, 0xfffffffe00000001}, {0x80000000, 2, 0x100000000}}},
    {"mul.hi.u32", {{0xffffffff, 0xffffffff, 0xfffffffe}, {0x80000000, 2, 1}, {0xffff, 0xffff, 0}}},
    // Towards zero. What the smallest by -1 gives is not said; it must not end the machine.
    {"div.s32", {{7, 0xfffffffe, 0xfffffffd}, {0xfffffff9, 2, 0xfffffffd}, {0x80000000, 0xffffffff, 0x80000000}}},
    {"and.b16", {{0xff0f0f, 0xf00f00f0ff, 0x0f}}},
    {"setp.ne.b16", {{0xf00010001, 0x10001, 0}, {1, 2, 1}}},
    // 9.7.1.20: a field that reaches beyond the top goes on with zeros; the lowest 8 bits of position and length count.
    {"bfe.u32",
     {{0xabcd1234, 8, 8, 0x12},
      {0xabcd1234, 0, 32, 0xabcd1234},
      {0xabcd1234, 0, 0, 0},
      {0xabcd1234, 31, 5, 1},
      {0xabcd1234, 32, 4, 0},
      {0xabcd1234, 0x108, 0x108, 0x12},
      {0xabcd1234, 4, 100, 0xabcd123}}},
    // 9.7.9.7: a selector's bit 3 repeats a byte's sign.
    {"prmt.b32",
     {{0x7f80ff01, 0x10f0a005, 0x3210, 0x7f80ff01},
      {0x7f80ff01, 0x10f0a005, 0x7654, 0x10f0a005},
      {0x7f80ff01, 0x10f0a005, 0xba98, 0x00ffff00},
      {0x7f80ff01, 0x10f0a005, 0x9c50, 0xff00a001},
      {0x7f80ff01, 0x10f0a005, 0xffff5410, 0xa005ff01}}},
    // 9.7.3: to nearest even, with subnormals.
    {"add.rn.f32",
     {{f(1), f(0x1p-24f), f(1)},
      {f(0x1.000002p0f), f(0x1p-24f), f(0x1.000004p0f)},
      {f(infinity), f(-infinity), nan32},
      {f(1), 0xffc12345, nan32},
      {0x007fffff, 1, 0x00800000},
      {f(-0.f), f(-0.f), f(-0.f)},
      {f(largest), f(0x1p103f), f(infinity)}}},
    {"mul.rn.f32",
     {{f(0x1.000002p0f), f(0x1.000002p0f), f(0x1.000004p0f)},
      {3, f(0.5f), 2},
      {0x80000001, f(0.5f), f(-0.f)},
      {0, f(infinity), nan32},
      {f(largest), f(2), f(infinity)}}},
    // With one rounding: mul and add give 0 in the first row, and a sum in double the wrong neighbour in the second.
    {"fma.rn.f32",
     {{f(0x1.000002p0f), f(0x1.000002p0f), f(-0x1.000004p0f), f(0x1p-46f)},
      {f(0x1.000002p6f), f(0x1.fffffcp-1f), f(0x1.000002p30f), f(0x1.000002p30f)},
      {1, f(0.5f), 1, 2},
      {0, f(infinity), 0x7fc00000, nan32},
      {f(largest), f(2), f(-largest), f(largest)},
      {f(-1), 0, f(-0.f), f(-0.f)}}},
    {"div.rn.f32",
     {{f(1), f(3), 0x3eaaaaab},
      {3, f(2), 2},
      {f(1), f(-0.f), f(-infinity)},
      {0, 0, nan32},
      {f(1), f(0x1.000002p0f), f(0x1.fffffcp-1f)},
      {f(largest), f(0.5f), f(infinity)}}},
    {"sqrt.rn.f32", {{f(2), 0x3fb504f3}, {f(3), 0x3fddb3d7}, {f(-0.f), f(-0.f)}, {f(-1), nan32}, {1, 0x1a3504f3}}},
    {"neg.f32", {{0, f(-0.f)}, {f(infinity), f(-infinity)}, {1, 0x80000001}, {0x7fc00000, nan32}}},
    {"abs.f32", {{f(-1), f(1)}, {f(-0.f), 0}, {0x80000001, 1}, {0xffc00000, nan32}}},
    {"selp.f32", {{0x7f800001, f(1), 1, 0x7f800001}, {0x7f800001, 0xff800001, 0, 0xff800001}}},
    {"mov.f32", {{0x7f800001, 0x7f800001}}},
    // 9.7.9.21, cvt. Of two sources the first makes the upper half.
    {"cvt.f32.f16",
     {{1, f(0x1p-24f)}, {0x8001, f(-0x1p-24f)}, {0xfc00, f(-infinity)}, {0x7c01, nan32}, {0x7bff, f(65504)}}},
    {"cvt.rn.f16.f32",
     {{0x477fefff, 0x7bff},
      {f(65520), 0x7c00},
      {f(0x1.002p0f), 0x3c00},
      {f(0x1.006p0f), 0x3c02},
      {f(0x1.002002p0f), 0x3c01},
      {f(0x1p-25f), 0},
      {f(0x1.000002p-25f), 1},
      {f(-0x1p-25f), 0x8000},
      {f(0x1.ffcp-15f), 0x0400},
      {0xff800001, 0x7fff}}},
    {"cvt.rn.f16x2.f32", {{f(1), f(2), 0x3c004000}, {0x7fc00000, f(infinity), 0x7fff7c00}}},
    {"cvt.rn.bf16x2.f32",
     {{0xff800001, 0x7f7fffff, 0x7fff7f80},
      {0x3f808000, 0x3f818000, 0x3f803f82},
      {0x80000001, 0x00018000, 0x80000002}}},
    {"cvt.rn.satfinite.e4m3x2.f32",
     {{f(1), f(-2), 0x38c0},
      {0x7fc00000, f(infinity), 0x7f7e},
      {f(464), f(-0x1p-10f), 0x7e80},
      {f(17), f(19), 0x585a},
      {f(0x1.8p-9f), f(0x1p-9f), 0x0201}}},
    {"cvt.rn.f32.s32", {{0x7fffffff, f(0x1p31f)}, {16777219, f(16777220)}, {0xfeffffff, f(-16777216)}}},
    {"cvt.rn.f32.u32", {{0xffffffff, f(0x1p32f)}, {0x80000080, f(0x1p31f)}, {0x80000081, f(2147483904.f)}}},
    // 9.4.1: a register may be wider than what is taken of it.
    {"cvt.s64.s32", {{0x80000000, 0xffffffff80000000}, {0xffffffff00000005, 5}}},
    {"cvt.u64.u32", {{0xdeadbeef80000000, 0x80000000}}},
    {"cvt.u32.u64", {{0xdeadbeefcafebabe, 0xcafebabe}}},
    {"cvt.u32.u16", {{0xdead8001, 0x8001}}},
    {"cvt.u16.u32", {{0xdead8001, 0x8001}}},
    {"cvta.to.global.u64", {{0x123456789abcdef0, 0x123456789abcdef0}}},
    {"and.pred", {{0, 1, 0}, {1, 0, 0}, {1, 1, 1}}},
    {"or.pred", {{0, 0, 0}, {0, 1, 1}, {1, 0, 1}}},
    {"not.pred", {{0, 1}, {1, 0}}},
    {"mov.pred", {{0, 0}, {1, 1}}},
    {"mov.u32", {{1, 1}}},
    // 9.7.9.6: the first of a list is the lowest.
    {"mov.b64 %d, {%a, %b}", {{0xff11111111, 0x22222222, 0x2222222211111111}}},
    {"mov.b32 %d, {%a, %b}", {{0xff1111, 0x2222, 0x22221111}}},
    {"mov.b64 {%d, %r9}, %a;\nmov.b32 %d, %d", {{0x2222222211111111, 0x11111111}}},
    {"mov.b32 {%r9, %d}, %a", {{0x22221111, 0x2222}}},
    // Sources that are no registers, and registers that are source and result: 4.5 and 4.6.
    {"add.s32 %d, %a, -1", {{5, 4}}},
    {"add.s32 %d, %a, 0x7FFFFFFF", {{1, 0x80000000}}},
    {"add.s32 %d, 4294967295U, %a", {{1, 0}}},
    {"max.s64 %d, %a, -2305843009213693952", {{0x8000000000000000, 0xe000000000000000}}},
    {"mul.rn.f32 %d, %a, 0f3FC00000", {{f(2), f(3)}}},
    {"mov.pred %d, -1", {{1}}},
    {"mov.u32 %d, %ntid.x", {{33}}},
    {"mov.b64 %d, shared", {{emulated_cuda::shared_begin}}},
    {"{ .reg .b32 t; mov.b64 {t, %d}, %a; add.s32 %d, %d, t; }\nadd.s32 %d, %d, %d", {{0x700000005, 24}}}};

}  // namespace

TEST_CASE("cuda machine: each opcode gives what the PTX ISA says", "[machine]") {
    std::set<std::string> untested;
    for (const auto &[opcode, execute] : emulated_cuda::operations()) {
        untested.insert(opcode);
    }
    for (const auto &some : {forms_of_integers(32), forms_of_integers(64), forms}) {
        for (const Form &form : some) {
            check(form);
            untested.erase(form.opcode);
        }
    }
    CHECK(untested == std::set<std::string>());
}

TEST_CASE("cuda machine: loads and stores move each element to its place", "[machine]") {
    constexpr u64 pattern = 0x8877665544332211;
    const std::array<u64, 2> bytes = {pattern, ~pattern};
    const std::array<const char *, 3> lists = {"%r0", "{%r0, %r1}", "{%r0, %r1, %r2, %r3}"};
    Scene scene;
    for (const unsigned n_bytes : {2u, 4u, 8u}) {
        for (const std::string from : {"global", "global.nc", "shared"}) {
            for (std::size_t i = 0; i < 3 && (n_bytes << i) <= 16; i++) {
                const std::string type = (i == 0 ? "" : i == 1 ? ".v2" : ".v4") + (".b" + std::to_string(8 * n_bytes));
                const std::string list = lists[i], move = from == "shared" ? "%rd14+32" : "%rd10";
                const std::string body =
                    "ld.global.v2.b64 {%r4, %r5}, [%rd10];\nst.shared.v2.b64 [%rd14+32], {%r4, %r5};\nld." + from +
                    type + " " + list + ", [" + move + "];\nst.shared" + type + " [%rd14+16], " + list +
                    ";\nld.shared" + type + " " + list + ", [%rd14+16];\nst.global" + type + " [%rd11], " + list +
                    ";\n";
                INFO(body);
                scene.write(0, bytes);
                scene.fill(1, 0xee);
                CHECK(scene.run(body) == "");
                std::array<u64, 3> expected = {0xeeeeeeeeeeeeeeee, 0xeeeeeeeeeeeeeeee, 0xeeeeeeeeeeeeeeee};
                std::memcpy(expected.data(), bytes.data(), n_bytes << i);
                CHECK(scene.read<std::array<u64, 3>>(1) == expected);
            }
        }
    }
    // PTX ISA 9.4.1: elements are extended by zeros; of what is stored the lower part counts.
    const std::pair<const char *, u64> others[] = {
        {"ld.global.nc.b16 %r0, [%rd10+6];\nst.global.b64 [%rd11], %r0;", 0x8877},
        {"ld.param.b8 %r0, [byte];\nst.global.b64 [%rd11], %r0;", 0x81},
        {"ld.global.v2.b32 {%r0, %r1}, [%rd10];\nst.global.v2.b16 [%rd11], {%r0, %r1};", 0x66552211},
        {"ld.global.b64 %rd10, [%rd10];\nst.global.b64 [%rd11], %rd10;", pattern},
        {"st.global.v2.b32 [%rd11], {7, -1};", 0xffffffff00000007},
        {"add.s64 %rd1, %rd10, 12;\nld.global.b16 %r0, [%rd1+-10];\nst.global.b64 [%rd11], %r0;", 0x4433}};
    for (const auto &[body, value] : others) {
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
                             "setp.eq.b32 %p0, %r3, 0;\n@%p0 bra $even;\n@!%p0 bra $odd;\n"
                             "$even: setp.eq.b32 %p1, %r2, 0;\n@%p1 bra $meet;\nadd.s32 %r1, %r1, %r2;\n"
                             "sub.s32 %r2, %r2, 1;\nbra.uni $even;\n"
                             "$odd: add.s32 %r1, %r1, %r2;\nsub.s32 %r2, %r2, 1;\nsetp.ne.b32 %p2, %r2, 0;\n"
                             "@%p2 bra $odd;\nbra $meet;\n"
                             "$meet: mul.wide.u32 %rd0, %r0, 2;\nadd.s64 %rd1, %rd0, %rd14;\n"
                             "st.shared.b16 [%rd1], %r1;\nbar.sync 0;\nsub.s32 %r4, 24, %r0;\n"
                             "mul.wide.u32 %rd2, %r4, 2;\nadd.s64 %rd2, %rd2, %rd14;\nld.shared.b16 %rs0, [%rd2];\n"
                             "bar.sync 0;\nst.shared.b16 [%rd1], 0;\n"
                             "setp.ne.b32 %p3, %r0, 24;\n@%p3 bra $store;\nret;\n"
                             "$store: add.s64 %rd0, %rd0, %rd11;\nst.global.b16 [%rd0], %rs0;\nret;\n";
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

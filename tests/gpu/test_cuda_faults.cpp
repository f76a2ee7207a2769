// What programs do wrong, and the words that the machine has for it.
#include "cuda_scene.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <set>

using Catch::Matchers::ContainsSubstring;
using cuda_scene::Scene;
using cuda_scene::Size;

namespace {

struct Wrong {
    std::string body, words;
    Size size = {};
};

void check(const std::vector<Wrong> &all) {
    Scene scene;
    for (const auto &[body, words, size] : all) {
        // However threads and blocks are interleaved.
        for (std::uint64_t seed = 1; seed <= 20; seed++) {
            INFO(body << "\nseed " << seed);
            const std::string fault = scene.run(body, size, seed);
            if (words.empty()) {
                CHECK(fault == "");
            } else {
                CHECK_THAT(fault, ContainsSubstring(words));
            }
        }
    }
}

const Size two_threads = {.block = {2, 1, 1}}, two_blocks = {.grid = {2, 1, 1}};

/// What thread 0 does, and what thread 1 does, perhaps behind a barrier. %rd1 is where thread i has two bytes of its
/// own in shared memory, and %rs0 is i.
std::string of_two_threads(const std::string &first, const std::string &second, const std::string &between = "") {
    return "mov.u32 %r0, %tid.x;\ncvt.u16.u32 %rs0, %r0;\nmul.wide.u32 %rd1, %r0, 2;\nadd.s64 %rd1, %rd1, %rd14;\n"
           "setp.ne.b32 %p0, %r0, 0;\n@%p0 bra $other;\n" +
           first + "\n$other: " + between + "@!%p0 bra $end;\n" + second + "\n$end: ";
}

std::string of_two_blocks(const std::string &first, const std::string &second) {
    return "mov.u32 %r0, %ctaid.x;\ncvt.u16.u32 %rs0, %r0;\nsetp.ne.b32 %p0, %r0, 0;\n@%p0 bra $other;\n" + first +
           "\nbra $end;\n$other: " + second + "\n$end: ";
}

}  // namespace

TEST_CASE("cuda machine: accesses outside of memory are faults", "[machine]") {
    const char *const nowhere = "which is in no memory that is allocated";
    const char *const not_shared = "in shared memory, of which a launch has 20 bytes";
    const Size twenty = {.shared_bytes = 20};
    check({
        {"ld.global.b16 %rs0, [%rd10];\nld.global.b32 %r0, [%rd10+56];\nld.global.nc.v4.b32 {%r0, %r1, %r2, %r3}, "
         "[%rd10+32];",
         ""},
        {"ld.global.b32 %r0, [%rd10+-4];", nowhere},
        {"ld.global.b32 %r0, [%rd10+60];", nowhere},
        {"ld.global.v4.b32 {%r0, %r1, %r2, %r3}, [%rd10+48];", nowhere},
        {"st.global.b16 [%rd11+60], 0;", nowhere},
        {"ld.global.b32 %r0, [%rd13];", nowhere},             // freed
        {"ld.global.b32 %r0, [%rd10+1073741824];", nowhere},  // between allocations
        {"mov.b64 %rd0, 0;\nld.global.b32 %r0, [%rd0];", nowhere},
        {"cvt.u32.u64 %r0, %rd10;\ncvt.u64.u32 %rd0, %r0;\nld.global.b32 %r0, [%rd0];", nowhere},
        {"st.shared.v4.b32 [%rd14], {1, 2, 3, 4};\nst.shared.b32 [%rd14+16], 0;\nld.shared.b16 %rs0, [%rd14+18];", "",
         twenty},
        {"ld.shared.b32 %r0, [%rd14+20];", not_shared, twenty},
        {"st.shared.v4.b32 [%rd14+16], {1, 2, 3, 4};", not_shared, twenty},
        {"st.shared.b16 [%rd14+-2], 0;", not_shared, twenty},
        {"ld.shared.b32 %r0, [%rd10];", not_shared, twenty},
        {"ld.shared.b16 %rs0, [%rd14];", "of which a launch has 0 bytes", {.shared_bytes = 0}},
        {"mov.b64 %rd0, 0;\nst.shared.b32 [%rd0], 1;", not_shared, twenty},
    });
}

TEST_CASE("cuda machine: accesses off their alignment are faults", "[machine]") {
    const std::tuple<const char *, unsigned, const char *> accesses[] = {{".b16 ", 2, "%r0"},
                                                                         {".b32 ", 4, "%r0"},
                                                                         {".v2.b32 ", 8, "{%r0, %r1}"},
                                                                         {".v4.b16 ", 8, "{%r0, %r1, %r2, %r3}"},
                                                                         {".v2.b64 ", 16, "{%r0, %r1}"}};
    std::vector<Wrong> all;
    for (const auto &[type, n, registers] : accesses) {
        for (const unsigned off : {1u, n / 2, n}) {
            const std::string words = off == n ? "" : "which is not aligned to " + std::to_string(n) + " bytes";
            const std::string at = "+" + std::to_string(off) + "]", list = registers;
            all.push_back({"ld.global" + (type + list) + ", [%rd10" + at + ";", words});
            all.push_back({"ld.global.nc" + (type + list) + ", [%rd10" + at + ";", words});
            all.push_back({"ld.shared" + (type + list) + ", [%rd14" + at + ";", words});
            all.push_back({std::string("st.shared") + type + "[%rd14" + at + ", " + list + ";", words});
            all.push_back({std::string("st.global") + type + "[%rd11" + at + ", " + list + ";", words});
        }
    }
    check(all);
}

TEST_CASE("cuda machine: threads that touch one place of shared memory need a barrier in between", "[machine]") {
    const char *const none = "with no barrier in between", *const barrier = "bar.sync 0;\n";
    const std::string write = "st.shared.b16 [%rd14], 7;", write_other = "st.shared.b16 [%rd14], 8;",
                      read = "ld.shared.b16 %rs1, [%rd14];", write_wide = "st.shared.b64 [%rd14], %rd10;",
                      read_next = "ld.shared.b16 %rs1, [%rd14+2];";
    const std::string both = "st.shared.b16 [%rd1], %rs0;\nld.shared.b16 %rs1, [%rd1];\nst.shared.b16 [%rd1], 9;";
    std::vector<Wrong> all = {
        {of_two_threads(write, read), none},
        {of_two_threads(read, write), none},
        {of_two_threads(write, write_other), none},
        {of_two_threads(write, write), ""},  // one value
        {of_two_threads(write, read_next), ""},
        {of_two_threads(write_wide, read_next), none},
        {of_two_threads(read_next, write_wide), none},
        {of_two_threads(read, read), ""},
        {of_two_threads(both, both), ""},  // each its own
        {of_two_threads(write, read, barrier), ""},
        {of_two_threads(read, write, barrier), ""},
        {of_two_threads(write, write_other, barrier), ""},
        {of_two_threads(write, read + "\n" + write_other, barrier), ""},
        // Threads that read in another epoch are forgotten, but not those of this one.
        {of_two_threads(write + "\n", read, barrier) + "bar.sync 0;\n@%p0 bra $last;\n" + write_other + "\n$last: ",
         ""},
        {"st.shared.b16 [%rd14], 7;\nbar.sync 0;\n" + read + of_two_threads(write_other, ""), none},
        {"mov.u32 %r0, %tid.x;\ncvt.u16.u32 %rs0, %r0;\nst.shared.b16 [%rd14], %rs0;", none}};
    for (Wrong &wrong : all) {
        wrong.size = two_threads;
    }
    check(all);
    check({{of_two_blocks(write, read), "", two_blocks}});  // they have shared memory of their own
}

TEST_CASE("cuda machine: blocks of a launch must not touch one place of global memory", "[machine]") {
    const std::string write = "st.global.b16 [%rd11], 7;", write_other = "st.global.b16 [%rd11], 8;",
                      read = "ld.global.b16 %rs1, [%rd11];", row = "st.global.v2.b16 [%rd11], {%rs0, %rs0};";
    const Size many_blocks = {.grid = {9, 1, 1}};
    check({{of_two_blocks(write, read), "of this launch", two_blocks},
           {of_two_blocks(read, write), "of this launch", two_blocks},
           {of_two_blocks(write, write_other), "writes another value where block number", two_blocks},
           {of_two_blocks(write, write), "", two_blocks},  // one value, as blocks that report bad positions write
           {of_two_blocks(read, read), "", two_blocks},
           {of_two_blocks(write, "ld.global.b16 %rs1, [%rd11+2];"), "", two_blocks},
           // Rows that would be torn, between blocks that run at once and those that follow each other.
           {of_two_blocks(row, row), "writes another value where block number", two_blocks},
           {of_two_blocks(row, row), "", {}},
           {"mov.u32 %r0, %ctaid.x;\nsetp.ne.b32 %p0, %r0, 0;\n@%p0 bra $no;\n" + write +
                "\n$no: setp.ne.b32 %p1, %r0, 8;\n@%p1 bra $end;\n" + write_other + "\n$end: ",
            "writes another value where block number", many_blocks},
           {of_two_threads("st.global.b16 [%rd11], 7;", "ld.global.b16 %rs1, [%rd11];"), "with no barrier in between",
            two_threads},
           {of_two_threads("st.global.b16 [%rd11], 7;", "ld.global.b16 %rs1, [%rd11];", "bar.sync 0;\n"), "",
            two_threads}});
}

TEST_CASE("cuda machine: what a launch writes must not be read by ld.global.nc", "[machine]") {
    const std::string write = "st.global.b16 [%rd11], 7;\n", read = "ld.global.nc.b16 %rs1, [%rd11];\n";
    check({{write + read, "reads by ld.global.nc what this launch writes"},
           {read + write, "writes what this launch reads by ld.global.nc"},
           {read + "ld.global.b16 %rs1, [%rd11];\n" + write, "writes what this launch reads by ld.global.nc"},
           {of_two_blocks(write, read), "ld.global.nc", two_blocks},
           {of_two_threads(write, read, "bar.sync 0;\n"), "reads by ld.global.nc", two_threads},
           {"st.global.b16 [%rd11+2], 7;\n" + read, ""},
           {"ld.global.nc.v2.b32 {%r0, %r1}, [%rd11];\nst.global.b16 [%rd11+6], 7;", "reads by ld.global.nc"}});
    Scene scene;  // launches come one after the other
    CHECK(scene.run(write) == "");
    CHECK(scene.run(read) == "");
    CHECK(scene.run(write) == "");
}

TEST_CASE("cuda machine: what nothing has set is another value each time", "[machine]") {
    Scene scene;
    for (const char *const body :
         {"st.global.b64 [%rd11], %rd9;", "ld.shared.b64 %rd0, [%rd14+8];\nst.global.b64 [%rd11], %rd0;"}) {
        std::set<std::uint64_t> values;
        for (std::uint64_t seed = 1; seed <= 15; seed += 2) {
            CHECK(scene.run(body, {.shared_bytes = 64}, seed) == "");
            values.insert(scene.read<std::uint64_t>(1));
        }
        CHECK(values.size() == 8);
    }
}

TEST_CASE("cuda machine: barriers that not all threads reach are faults", "[machine]") {
    const char *const ends = "ends, or waits at a barrier, where other threads of the block do the other";
    check({{of_two_threads("bar.sync 0;", "bar.sync 0;"), "waits at another barrier", two_threads},
           {of_two_threads("bar.sync 0;", ""), ends, two_threads},
           {of_two_threads("ret;", "") + "bar.sync 0;", ends, two_threads},
           {of_two_threads("", "ret;") + "bar.sync 0;", ends, two_threads},
           {"bar.sync 0;\nbar.sync 0;", "", two_threads}});
    Scene scene;
    const std::string barriers = "mov.b32 %r0, 0;\n$loop: bar.sync 0;\nadd.s32 %r0, %r0, 1;\nsetp.lt.s32 %p0, %r0, ";
    CHECK(scene.run(barriers + "65535;\n@%p0 bra $loop;") == "");
    CHECK_THAT(scene.run(barriers + "65536;\n@%p0 bra $loop;"), ContainsSubstring("waits at more barriers than"));
}

TEST_CASE("cuda machine: a fault says which thread does wrong, and in which line", "[machine]") {
    const std::string body = "mov.u32 %r0, %tid.y;\nmov.u32 %r1, %ctaid.z;\nand.b32 %r2, %r0, %r1;\n"
                             "setp.eq.b32 %p0, %r2, 0;\n@%p0 bra $end;\n\tst.global.b32 [6], 0;  // here\n$end:";
    CHECK(Scene().run(body, {.grid = {1, 1, 2}, .block = {1, 2, 1}}) ==
          "thread (0, 1, 0) of block (0, 0, 1) of k, grid (1, 1, 2) of (1, 2, 1) threads, has the address 0x6, "
          "which is not aligned to 4 bytes, in line 21: st.global.b32 [6], 0;  // here");
}

TEST_CASE("cuda machine: what it does not know is named", "[machine]") {
    const std::string unknown = ", which the machine does not know", opcode = "has the opcode ";
    const std::pair<const char *, std::string> statements[] = {
        {"tanh.approx.f32 %r0, %r1;", opcode + "tanh.approx.f32" + unknown},
        {"add.ftz.f32 %r0, %r1, %r2;", opcode + "add.ftz.f32" + unknown},
        {"ld.local.b32 %r0, [%rd0];", opcode + "ld.local.b32" + unknown},
        {"ld.volatile.global.b32 %r0, [%rd0];", opcode + "ld.volatile.global.b32" + unknown},
        {"ld.global.s16 %r0, [%rd0];", opcode + "ld.global.s16" + unknown},
        {"@%p0 add.s32 %r0, %r1, %r2;",
         "has a predicate before add.s32, which the machine knows before branches alone"},
        {".local .b8 x[8];", "has the directive .local" + unknown}};
    for (const auto &[statement, words] : statements) {
        CHECK(Scene().run("\n" + std::string(statement)) == "line 17 of the module " + words);
    }
    CHECK_THROWS_WITH(emulated_cuda::decode("no PTX"), "line 1 of the module has the directive no" + unknown);
    CHECK(emulated_cuda::decode("").functions.empty());
}

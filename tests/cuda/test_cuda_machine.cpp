// The PTX interpreter of checks/cuda: the faults that it must find, and how opcodes read operands. Most opcodes are
// tested by kernels: their results on the interpreter are compared with the CPU's.
#include "checks/cuda/machine.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <cstring>
#include <set>

using Catch::Matchers::ContainsSubstring, Catch::Matchers::StartsWith;

namespace {

using emulated_cuda::Address;
using u64 = std::uint64_t;

/// A PTX module with a kernel k of these statements. %rd10 to %rd13 hold the addresses of four regions, %rd14 that of
/// shared memory. The kernel has a parameter `byte`.
std::string module_of(const std::string &body) {
    return ".version 7.0\n.target sm_80\n.address_size 64\n.extern .shared .align 16 .b8 shared[];\n"
           ".visible .entry k(.param .u64 p0, .param .u64 p1, .param .u64 p2, .param .u64 p3, .param .u8 byte)\n{\n"
           "ld.param.b64 %rd10, [p0]; ld.param.b64 %rd11, [p1]; ld.param.b64 %rd12, [p2]; ld.param.b64 %rd13, [p3];\n"
           "mov.b64 %rd14, shared;\n" +
           body + "\nret;\n}\n";
}

struct Size {
    std::array<unsigned, 3> grid = {1, 1, 1}, block = {1, 1, 1};
    unsigned shared_bytes = 64;
};

/// An emulated device with four regions of 60 bytes, at %rd10 to %rd13 for kernels. The last region is freed.
class Fixture {
public:
    Fixture() {
        for (Address &region : regions_) {
            region = memory_.allocate(60);
        }
        memory_.release(regions_[3]);
    }

    u64 &word(unsigned region, unsigned at = 0) {
        return reinterpret_cast<u64 *>(memory_.find(regions_[region], 60)->bytes(regions_[region]))[at];
    }

    /// Runs a kernel. Returns its error message, or an empty string.
    std::string run(const std::string &body, const Size &size = {}) {
        try {
            const auto module = emulated_cuda::decode(module_of(body));
            emulated_cuda::Launch launch = {module.at("k"), size.grid, size.block, size.shared_bytes,
                                            std::vector<std::uint8_t>(4 * sizeof(Address) + 1 + 16, 0x81)};
            std::memcpy(launch.parameters.data(), regions_.data(), sizeof(regions_));
            n_launches_++;
            emulated_cuda::execute(launch, memory_, n_launches_, n_launches_);
            return "";
        } catch (const emulated_cuda::Fault &fault) {
            return fault.what();
        }
    }

private:
    emulated_cuda::Memory memory_;
    std::array<Address, 4> regions_ = {};
    std::uint32_t n_launches_ = 0;
};

constexpr u64 ones = ~u64{0}, pattern = 0x8877665544332211;

/// An opcode, and rows that hold its source values and then its result. `opcode` may also be whole statements with the
/// sources %a to %c and the result %d. The first region of memory holds the source values, too.
struct Form {
    std::string opcode;
    std::vector<std::vector<u64>> rows;
};

const std::vector<Form> forms = {
    // PTX ISA, section 9.7.8: all 32 bits of a shift's amount count.
    {"shl.b32", {{ones, 31, 1u << 31}, {ones, 32, 0}, {ones, 256, 0}, {ones, 0x80000000, 0}}},
    {"shr.u64", {{ones, 63, 1}, {ones, 64, 0}, {ones, 256, 0}}},
    {"shr.s32", {{0x80000000, 1, 0xc0000000}, {0x80000000, 32, 0xffffffff}, {0x7fffffff, 33, 0}}},
    {"div.u32", {{7, 2, 3}, {0xffffffff, 2, 0x7fffffff}, {0x80000000, 0xffffffff, 0}}},
    // PTX ISA, sections 9.7.3 and 9.7.9.21: subnormal sums, large integers and saturation, which are rare in kernels.
    {"add.rn.f32", {{0x007fffff, 1, 0x00800000}, {0x00800000, 0x80000001, 0x007fffff}}},
    {"cvt.rn.f32.s32", {{0x7fffffff, 0x4f000000}, {16777219, 0x4b800002}, {0xfeffffff, 0xcb800000}}},
    {"cvt.rn.f32.u32", {{0xffffffff, 0x4f800000}, {0x80000080, 0x4f000000}, {0x80000081, 0x4f000001}}},
    {"cvt.rn.satfinite.e4m3x2.f32", {{0x7f800000, 0xc3f00000, 0x7efe}}},
    // PTX ISA, section 9.4.1: an operand may be wider than the type. Section 9.7.9.6: {low, high}, lowest first.
    {"cvt.s64.s32", {{0x80000000, 0xffffffff80000000}, {0xffffffff00000005, 5}}},
    {"mov.b64 %d, {%a, %b}", {{0xff11111111, 0x22222222, 0x2222222211111111}}},
    {"mov.b32 {%r9, %d}, %a", {{0x22221111, 0x2222}}},
    // Immediate operands (PTX ISA, sections 4.5 and 4.6), and registers that are both source and result.
    {"add.s32 %d, %a, 0x7FFFFFFF", {{1, 0x80000000}}},
    {"max.s64 %d, %a, -2305843009213693952", {{0x8000000000000000, 0xe000000000000000}}},
    {"mul.rn.f32 %d, %a, 0f3FC00000", {{0x40000000, 0x40400000}}},
    {"mov.b64 %d, shared", {{emulated_cuda::shared_begin}}},
    {"{ .reg .b32 t; mov.b64 {t, %d}, %a; add.s32 %d, %d, t; }\nadd.s32 %d, %d, %d", {{0x700000005, 24}}},
    // Loads zero-extend elements; stores write the low bits.
    {"ld.global.nc.b16 %d, [%rd10+6]", {{pattern, 0x8877}}},
    {"ld.param.b8 %d, [byte]", {{0x81}}},
    {"ld.global.v2.b32 {%r0, %r1}, [%rd10];\nst.shared.v2.b16 [%rd14+4], {%r0, %r1};\nld.shared.b32 %d, [%rd14+4]",
     {{pattern, 0x66552211}}},
    {"st.shared.v2.b32 [%rd14], {7, -1};\nld.shared.b64 %d, [%rd14]", {{0xffffffff00000007}}},
    {"add.s64 %rd1, %rd10, 12;\nld.global.b16 %d, [%rd1+-10]", {{pattern, 0x4433}}}};

}  // namespace

TEST_CASE("cuda machine: opcodes give what the PTX ISA says", "[machine]") {
    for (const auto &[opcode, rows] : forms) {
        std::string body, statement = opcode;
        for (std::size_t i = 0; i + 1 < rows[0].size(); i++) {
            const std::string source = std::string("%") + "abc"[i];
            body += "ld.global.b64 " + source + ", [%rd10+" + std::to_string(8 * i) + "];\n";
            statement += opcode.find(' ') == opcode.npos ? (i == 0 ? " %d, " : ", ") + source : "";
        }
        body += statement + ";\nst.global.b64 [%rd11], %d;";
        INFO(body);
        for (const std::vector<u64> &row : rows) {
            CAPTURE(row);
            Fixture fixture;
            for (unsigned i = 0; i + 1 < row.size(); i++) {
                fixture.word(0, i) = row[i];
            }
            CHECK(fixture.run(body) == "");
            CHECK(fixture.word(1) == row.back());
        }
    }
}

namespace {

struct Wrong {
    std::string body, words;  // `words` is empty if the kernel has no fault
};

void check(const Size &size, const std::vector<Wrong> &all) {
    for (const auto &[body, words] : all) {
        INFO(body);
        Fixture fixture;
        const std::string fault = fixture.run(body, size);
        CHECK_THAT(fault, ContainsSubstring(words));
        CHECK((words != "" || fault == ""));
    }
}

const Size two_threads = {.block = {2, 1, 1}}, two_blocks = {.grid = {2, 1, 1}};

/// A kernel body for two threads or two blocks: number 0 executes `first`, then both execute `between`, then number 1
/// executes `second`. %rs0 is the number, and %rd1 the address of two bytes of shared memory for that number alone.
std::string of_two(const std::string &which, const std::string &first, const std::string &second,
                   const std::string &between) {
    return "mov.u32 %r0, " + which +
           ";\ncvt.u16.u32 %rs0, %r0;\nmul.wide.u32 %rd1, %r0, 2;\nadd.s64 %rd1, %rd1, %rd14;\n"
           "setp.ne.b32 %p0, %r0, 0;\n@%p0 bra $other;\n" +
           first + "\n$other: " + between + "@!%p0 bra $end;\n" + second + "\n$end: ";
}
std::string of_two_threads(const std::string &first, const std::string &second, const std::string &between = "") {
    return of_two("%tid.x", first, second, between);
}
std::string of_two_blocks(const std::string &first, const std::string &second) {
    return of_two("%ctaid.x", first, second, "");
}

const std::string barrier = "bar.sync 0;\n";

}  // namespace

TEST_CASE("cuda machine: accesses outside of memory are faults", "[machine]") {
    const std::string nowhere = "which is in no memory that is allocated", load = "ld.global.b32 %r0, ",
                      not_shared = "in shared memory, of which a launch has 20 bytes";
    check({}, {{load + "[%rd10+56];\nld.global.nc.v4.b32 {%r0, %r1, %r2, %r3}, [%rd10+32];", ""},
               {load + "[%rd10+-4];", nowhere},
               {load + "[%rd10+60];", nowhere},
               {"ld.global.v4.b32 {%r0, %r1, %r2, %r3}, [%rd10+48];", nowhere},
               {"st.global.b16 [%rd11+60], 0;", nowhere},
               {load + "[%rd13];", nowhere},             // freed
               {load + "[%rd10+1073741824];", nowhere},  // between allocations
               {"cvt.u32.u64 %r0, %rd10;\ncvt.u64.u32 %rd0, %r0;\n" + load + "[%rd0];", nowhere}});
    check({.shared_bytes = 20}, {{"st.shared.v4.b32 [%rd14], {1, 2, 3, 4};\nst.shared.b32 [%rd14+16], 0;", ""},
                                 {"ld.shared.b32 %r0, [%rd14+20];", not_shared},
                                 {"st.shared.v4.b32 [%rd14+16], {1, 2, 3, 4};", not_shared},
                                 {"st.shared.b16 [%rd14+-2], 0;", not_shared},
                                 {"ld.shared.b32 %r0, [%rd10];", not_shared}});
}

TEST_CASE("cuda machine: accesses off their alignment are faults", "[machine]") {
    const std::tuple<std::string, unsigned, std::string> types[] = {
        {".b32 ", 4, "%r0"}, {".v4.b16 ", 8, "{%r0, %r1, %r2, %r3}"}, {".v2.b64 ", 16, "{%r0, %r1}"}};
    for (const auto &[type, n, list] : types) {
        for (const unsigned off : {1u, n / 2, n}) {
            const std::string at = "+" + std::to_string(off) + "]", from = type + list + ", [%rd1",
                              words = off == n ? "" : "which is not aligned to " + std::to_string(n) + " bytes";
            check({}, {{"ld.global.nc" + from + "0" + at + ";", words},
                       {"ld.shared" + from + "4" + at + ";", words},
                       {"st.shared" + type + "[%rd14" + at + ", " + list + ";", words},
                       {"st.global" + type + "[%rd11" + at + ", " + list + ";", words}});
        }
    }
}

TEST_CASE("cuda machine: threads that touch one place of shared memory need a barrier in between", "[machine]") {
    const std::string none = "by another thread, with no barrier in between", write = "st.shared.b16 [%rd14], 7;",
                      write_other = "st.shared.b16 [%rd14], 8;", read = "ld.shared.b16 %rs1, [%rd14];",
                      write_wide = "st.shared.b64 [%rd14], %rd10;", read_next = "ld.shared.b16 %rs1, [%rd14+2];",
                      both = "st.shared.b16 [%rd1], %rs0;\nld.shared.b16 %rs1, [%rd1];\nst.shared.b16 [%rd1], 9;";
    check(
        two_threads,
        {{of_two_threads(write, read), none},
         {of_two_threads(read, write), none},
         {of_two_threads(write, write_other), none},
         {of_two_threads(write, write), ""},  // the same value
         {of_two_threads(write, read_next), ""},
         {of_two_threads(write_wide, read_next), none},
         {of_two_threads(read_next, write_wide), none},
         {of_two_threads(both, both), ""},  // each accesses its own bytes
         {of_two_threads(write, read, barrier), ""},
         {of_two_threads(read, write, barrier), ""},
         {of_two_threads(write, read + "\n" + write_other, barrier), ""},
         // A read before the last barrier does not race with a write after it. In the next case, the read comes later.
         {of_two_threads(write + "\n", read, barrier) + barrier + "@%p0 bra $last;\n" + write_other + "\n$last: ", ""},
         {write + "\n" + barrier + read + of_two_threads("", write_other), none}});
    check(two_blocks, {{of_two_blocks(write, read), ""}});  // each block has its own shared memory
}

TEST_CASE("cuda machine: blocks of a launch must not touch one place of global memory", "[machine]") {
    const std::string write = "st.global.b16 [%rd11], 7;", write_other = "st.global.b16 [%rd11], 8;",
                      read = "ld.global.b16 %rs1, [%rd11];", row = "st.global.v2.b16 [%rd11], {%rs0, %rs0};",
                      another = "writes another value than what is written by another block";
    check(two_blocks, {{of_two_blocks(write, read), "reads what is written by another block of this launch"},
                       {of_two_blocks(read, write), "writes what is read by another block of this launch"},
                       {of_two_blocks(write, write_other), another},
                       {of_two_blocks(write, write), ""},  // the same value, like bad positions' reports
                       {read + "\n" + of_two_blocks("", write), "writes what is read by another block of this launch"},
                       {of_two_blocks(write, "ld.global.b16 %rs1, [%rd11+2];"), ""},
                       {of_two_blocks(row, row), another}});
    check(two_threads,
          {{of_two_threads(write, read), "with no barrier in between"}, {of_two_threads(write, read, barrier), ""}});
}

TEST_CASE("cuda machine: what a launch writes must not be read by ld.global.nc", "[machine]") {
    const std::string write = "st.global.b16 [%rd11], 7;\n", read = "ld.global.nc.b16 %rs1, [%rd11];\n",
                      reads = "reads by ld.global.nc what this launch writes",
                      writes = "writes what this launch reads by ld.global.nc";
    check({}, {{write + read, reads},
               {read + write, writes},
               {read + "ld.global.b16 %rs1, [%rd11];\n" + write, writes},
               {"st.global.b16 [%rd11+2], 7;\n" + read, ""},
               {"ld.global.nc.v2.b32 {%r0, %r1}, [%rd11];\nst.global.b16 [%rd11+6], 7;", writes}});
    check(two_blocks, {{of_two_blocks(write, read), reads}});
    check(two_threads, {{of_two_threads(write, read, barrier), reads}});
    Fixture fixture;  // launches are ordered
    for (const std::string &body : {write, read, write}) {
        CHECK(fixture.run(body) == "");
    }
}

TEST_CASE("cuda machine: what nothing has set is another value each time", "[machine]") {
    Fixture fixture;
    for (const char *const body :
         {"st.global.b64 [%rd11], %rd9;", "ld.shared.b64 %rd0, [%rd14+8];\nst.global.b64 [%rd11], %rd0;"}) {
        std::set<u64> values;
        for (int i = 0; i < 8; i++) {
            CHECK(fixture.run(body) == "");
            values.insert(fixture.word(1));
        }
        CHECK(values.size() == 8);
    }
}

TEST_CASE("cuda machine: barriers and shuffles that not all threads reach are faults", "[machine]") {
    const std::string elsewhere = "ends, or waits at a barrier, where other threads of the block do not",
                      shuffle = "shfl.sync.idx.b32 %r1, %r0, 0, 31, ";
    check(two_threads, {{of_two_threads(barrier, barrier), elsewhere},
                        {of_two_threads(barrier, ""), elsewhere},
                        {of_two_threads("ret;", "") + barrier, elsewhere},
                        {of_two_threads("", "ret;") + barrier, elsewhere},
                        {barrier + barrier, ""},
                        {shuffle + "-1;", ""},
                        {shuffle + "1;", "shuffles with some of its warp"},
                        {"shfl.sync.idx.b32 %r1, %r0, 2, 31, -1;", "shuffles from a lane that there is not"},
                        {of_two_threads(shuffle + "-1;", ""), "waits for threads of its warp that do not come"}});
    const std::string loop = "mov.b32 %r0, 0;\n$loop: bar.sync 0;\nadd.s32 %r0, %r0, 1;\nsetp.lt.s32 %p0, %r0, ";
    check({},
          {{loop + "65535;\n@%p0 bra $loop;", ""}, {loop + "65536;\n@%p0 bra $loop;", "waits at more barriers than"}});
}

TEST_CASE("cuda machine: a fault says which thread does wrong, and in which line", "[machine]") {
    const std::string body = "mov.u32 %r0, %tid.y;\nmov.u32 %r1, %ctaid.z;\nand.b32 %r2, %r0, %r1;\n"
                             "setp.eq.b32 %p0, %r2, 0;\n@%p0 bra $end;\n\tst.global.b32 [6], 0;  // here\n$end:";
    CHECK(Fixture().run(body, {.grid = {1, 1, 2}, .block = {1, 2, 1}}) ==
          "thread (0, 1, 0) of block (0, 0, 1) of k, grid (1, 1, 2) of (1, 2, 1) threads, has the address 0x6, "
          "which is not aligned to 4 bytes, in line 14: st.global.b32 [6], 0;");
}

TEST_CASE("cuda machine: what it does not know is named", "[machine]") {
    for (const std::string statement :
         {"tanh.approx.f32 %r0, %r1;", "ld.volatile.global.b32 %r0, [%rd0];", "ld.global.s16 %r0, [%rd0];",
          "@%p0 add.s32 %r0, %r1, %r2;", ".local .b8 x[8];", "bra $nowhere;", "add.s32 %r0, %r1;",
          "ld.param.b64 %r0, [q];", "ld.param.b32 %r0, [byte];", "add.s32 %r0, %r1"}) {
        CHECK_THAT(Fixture().run(statement), StartsWith("the module has what the machine does not know, in line 9: " +
                                                      statement.substr(0, statement.find_first_of(";\n"))));
    }
    CHECK_THROWS_WITH(emulated_cuda::decode("no PTX"), ContainsSubstring("line 1: "));
}

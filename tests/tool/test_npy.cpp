// The tool's reader and writer of .npy files: it reads what NumPy writes, and refuses all else.
#include "checks/scratch_dir.h"
#include "tool/files/npy.h"
#include "tool/files/refusal.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace {

using halyard::tool::NpyArray;
using halyard::tool::read_npy;
using halyard::tool::Refusal;
using halyard::tool::write_npy;

/// A file with the given version, header text and data, padded as NumPy pads it.
std::string make_npy(const std::string &dictionary, const std::string &data, char version = 1) {
    std::string header = dictionary;
    header.append(63 - (10 + header.size()) % 64, ' ');
    header += '\n';
    std::string file = "\x93NUMPY";
    file += {version, '\0', static_cast<char>(header.size() & 255), static_cast<char>(header.size() >> 8)};
    if (version != 1) {
        file += {'\0', '\0'};
    }
    return file + header + data;
}

std::string float_dictionary(const std::string &shape) {
    return "{'descr': '<f4', 'fortran_order': False, 'shape': " + shape + ", }";
}

std::string floats(std::size_t n) { return std::string(4 * n, 'x'); }

NpyArray read(const ScratchDir &dir, const std::string &bytes) {
    return read_npy(dir.write("x.npy", bytes), {"<f4", "<f2", "<i8"});
}

/// Writes an array of the number 1.
void write_one(const std::string &path) {
    const std::int64_t shape[] = {1};
    const float value = 1.0f;
    write_npy(path, "<f4", shape, &value, sizeof(value));
}

bool holds_one(const std::string &path) { return read_npy(path, {"<f4"}).elements<float>()[0] == 1.0f; }

/// Checks that the bytes are refused in one sentence that names the file and holds `reason`.
void check_refused(const std::string &bytes, const std::string &reason) {
    using Catch::Matchers::ContainsSubstring;
    using Catch::Matchers::MessageMatches;
    const ScratchDir dir;
    INFO(reason);
    CHECK_THROWS_MATCHES(read(dir, bytes), Refusal,
                         MessageMatches(ContainsSubstring(dir / "x.npy") && ContainsSubstring(reason)));
}

}  // namespace

TEST_CASE("npy: what is written is read back", "[npy]") {
    const ScratchDir dir;
    const auto shape =
        GENERATE(std::vector<std::int64_t>{}, std::vector<std::int64_t>{5}, std::vector<std::int64_t>{0},
                 std::vector<std::int64_t>{2, 3, 4, 5}, std::vector<std::int64_t>{3, 0, std::int64_t(1) << 62, 8});
    std::int64_t n = 1;
    for (const auto size : shape) {
        n = size == 0 ? 0 : n * size;
    }
    if (std::find(shape.begin(), shape.end(), 0) != shape.end()) {
        n = 0;
    }
    std::vector<float> values(static_cast<std::size_t>(n));
    for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = static_cast<float>(i) - 1.5f;
    }
    write_npy(dir / "x.npy", "<f4", shape, values.data(), values.size() * sizeof(float));
    CHECK(dir.count_entries() == 1);

    const auto array = read_npy(dir / "x.npy", {"<f4"});
    CHECK(array.descr == "<f4");
    CHECK(array.shape == shape);
    CHECK(array.n_elements == n);
    const auto read = array.elements<float>();
    CHECK(std::equal(read.begin(), read.end(), values.begin(), values.end()));
    // NumPy's rule: the data starts at a multiple of 64.
    CHECK((dir.read("x.npy").size() - values.size() * sizeof(float)) % 64 == 0);
}

TEST_CASE("npy: the header is exactly what NumPy writes", "[npy]") {
    const ScratchDir dir;
    const float value = 1.0f;
    using Shape = std::vector<std::int64_t>;
    for (const auto &[shape, words] : {std::pair(Shape{1}, "(1,)"), {Shape{1, 1}, "(1, 1)"}, {Shape{}, "()"}}) {
        write_npy(dir / "x.npy", "<f4", shape, &value, sizeof(value));
        CHECK(dir.read("x.npy") == make_npy(float_dictionary(words), std::string("\0\0\x80\x3f", 4)));
    }
}

TEST_CASE("npy: every way to spell a header is read", "[npy]") {
    const ScratchDir dir;
    const auto dictionary = GENERATE(as<std::string>(), "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }",
                                     "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)}",
                                     "{'shape':(2,3),'fortran_order':False,'descr':'<f4'}",
                                     "{ \"descr\" : \"<f4\" ,\n\t\"fortran_order\": False, \"shape\": ( 2 , 3 , ) }");
    const auto version = GENERATE(char(1), char(2), char(3));
    const auto array = read(dir, make_npy(dictionary, floats(6), version));
    CHECK(array.shape == std::vector<std::int64_t>{2, 3});
    CHECK(array.n_bytes == 24);
}

TEST_CASE("npy: a damaged file is refused", "[npy]") {
    const auto whole = make_npy(float_dictionary("(2, 3)"), floats(6));
    const auto header_size = whole.size() - 24;

    check_refused("", "not a .npy file");
    check_refused("hello, world: this is text", "not a .npy file");
    check_refused("\x93NUMPZ" + whole.substr(6), "not a .npy file");
    check_refused(std::string(200, '\0'), "not a .npy file");
    check_refused("\x93NUMPY\x04" + whole.substr(7), "version 4.0");
    check_refused(std::string("\x93NUMPY\0", 7) + whole.substr(7), "version 0.0");
    check_refused("\x93NUMPY\x01\x01" + whole.substr(8), "version 1.1");
    check_refused(whole + "x", "more bytes than the 24 of the array");
    check_refused(whole + whole, "more bytes than the 24 of the array");
    for (std::size_t n = 1; n < whole.size(); ++n) {
        CAPTURE(n);
        check_refused(whole.substr(0, n), n < 6 ? "not a .npy file" : n < header_size ? "header" : "truncated");
    }
    // The header's length takes in some of the data, or leaves out some of the header.
    auto longer = whole;
    longer[8] = static_cast<char>(longer[8] + 8);
    check_refused(longer, "header");
    auto shorter = whole;
    shorter[8] = 20;
    check_refused(shorter, "header");
    // A header of version 2 that claims nearly 4 GiB.
    check_refused(std::string("\x93NUMPY\x02\0\xf0\xff\xff\xff", 12) + whole.substr(10), "header");
}

TEST_CASE("npy: a malformed header is refused", "[npy]") {
    const std::string type = "{'descr': '<f4', ", good = type + "'fortran_order': False, 'shape': (2, 3)";
    const auto dictionary = GENERATE_COPY(
        as<std::string>(), "", " ", "{}", "{", "}", "()", "None", type + "'fortran_order': False}",
        type + "'shape': (2, 3)}", "{'fortran_order': False, 'shape': (2, 3)}", good + ", 'more': 1}",
        type + good.substr(1) + "}", "{'descr': '<f4' 'fortran_order': False, 'shape': (2, 3)}", good,
        good.substr(0, good.size() - 1), good + "} x", good + "}}", "{'descr': '<f4, 'fortran_order': False}",
        type + "'fortran_order': 0, 'shape': (2, 3)}", type + "'fortran_order': false, 'shape': (2, 3)}",
        type + "'fortran_order': Falsehood, 'shape': (2, 3)}",
        "{'descr': '<\\x664', 'fortran_order': False, 'shape': (2, 3)}",
        "{'descr': None, 'fortran_order': False, 'shape': (2, 3)}");
    check_refused(make_npy(dictionary, floats(6)), "header is malformed");
}

TEST_CASE("npy: a malformed shape is refused, and so are zeros in a header", "[npy]") {
    check_refused(make_npy(std::string("{'descr': '<f4\0', 'fortran_order': False, 'shape': (2, 3)}", 58), floats(6)),
                  "header is malformed");
    check_refused(make_npy(float_dictionary("(2, 3)") + '\0', floats(6)), "header is malformed");
    for (const char *shape : {"[2, 3]", "(6)", "6", "(-2, -3)", "(2.0, 3)", "(2 3)", "(,)", "(2, , 3)", "(0x2, 3)"}) {
        check_refused(make_npy(float_dictionary(shape), floats(6)), "header is malformed");
    }
}

TEST_CASE("npy: what is not a little-endian array of numbers in C order is refused", "[npy]") {
    const auto with_type = [](const std::string &descr) {
        return make_npy("{'descr': " + descr + ", 'fortran_order': False, 'shape': (2, 3), }", floats(6));
    };
    check_refused(with_type("'>f4'"), "big-endian");
    check_refused(with_type("'|O'"), "its type is '|O', but <f4, <f2 or <i8 is needed");
    check_refused(with_type("'<i4'"), "its type is '<i4'");
    check_refused(with_type("'<U1'"), "its type is '<U1'");
    check_refused(with_type("''"), "its type is ''");
    check_refused(with_type("'=f4'"), "its type is '=f4'");
    check_refused(with_type("[('a', '<f2'), ('b', '<f2')]"), "structured");
    check_refused(make_npy("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }", floats(6)), "Fortran order");
}

TEST_CASE("npy: a claimed size costs nothing", "[npy]") {
    check_refused(make_npy(float_dictionary("(1000000000000,)"), floats(6)), "truncated");
    check_refused(make_npy(float_dictionary("(9223372036854775807,)"), floats(6)), "truncated");
    check_refused(make_npy(float_dictionary("(4294967296, 4294967296, 4)"), floats(6)), "truncated");
    check_refused(make_npy(float_dictionary("(3037000500, 3037000500)"), floats(6)), "truncated");
    check_refused(make_npy(float_dictionary("(9223372036854775808,)"), floats(6)), "beyond 64 bits");
    check_refused(make_npy(float_dictionary("(99999999999999999999999,)"), floats(6)), "beyond 64 bits");
    check_refused(make_npy(float_dictionary("(9223372036854775807, 0)"), floats(6)),
                  "more bytes than the 0 of the array");
}

TEST_CASE("npy: what is not a file is refused", "[npy]") {
    const ScratchDir dir;
    REQUIRE(mkfifo((dir / "pipe").c_str(), 0600) == 0);
    // The last one cannot be opened for reading, by root neither.
    for (const auto &path :
         {dir / "missing.npy", dir / "", std::string(), dir / std::string(300, 'x'), std::string("/dev/null"),
          dir / "pipe", dir.write("plain", "x") + "/x.npy", std::string("/proc/sys/vm/drop_caches")}) {
        CHECK_THROWS_AS(read_npy(path, {"<f4"}), Refusal);
    }
}

TEST_CASE("npy: what can't be written leaves everything as it was", "[npy]") {
    const ScratchDir dir;
    std::filesystem::create_directory(dir / "folder");
    REQUIRE(mkfifo((dir / "pipe").c_str(), 0600) == 0);  // no device of the machine: broken code may replace it
    for (const auto &path : {std::string(), dir / "", dir / "missing/y.npy", dir / "folder", dir / "pipe"}) {
        CHECK_THROWS_AS(write_one(path), Refusal);
    }
    CHECK(dir.count_entries() == 2);
    CHECK(std::filesystem::is_fifo(dir / "pipe"));
    CHECK(std::filesystem::is_empty(dir / "folder"));
    std::filesystem::permissions(dir.write("protected", "precious"), std::filesystem::perms::owner_read);
    CHECK_THROWS_AS(write_one(dir / "protected"), Refusal);
    CHECK(dir.read("protected") == "precious");
}

TEST_CASE("npy: an existing file is replaced, through a link too", "[npy]") {
    const ScratchDir dir;
    const auto old = dir.write("old.npy", "something else");
    std::filesystem::permissions(old, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
    std::filesystem::create_symlink("old.npy", dir / "link.npy");
    write_one(dir / "link.npy");
    CHECK(std::filesystem::is_symlink(dir / "link.npy"));
    CHECK(holds_one(old));
    CHECK(std::filesystem::status(old).permissions() ==
          (std::filesystem::perms::owner_read | std::filesystem::perms::owner_write));
    CHECK(dir.count_entries() == 2);
}

TEST_CASE("npy: a link to a file that is not there yet stays, and the file is written", "[npy]") {
    const ScratchDir dir;
    std::filesystem::create_directory(dir / "folder");
    std::filesystem::create_symlink("folder/second.npy", dir / "first.npy");
    std::filesystem::create_symlink(dir / "new.npy", dir / "folder/second.npy");
    write_one(dir / "first.npy");
    CHECK(std::filesystem::is_symlink(dir / "first.npy"));
    CHECK(std::filesystem::is_symlink(dir / "folder/second.npy"));
    CHECK(!std::filesystem::is_symlink(dir / "new.npy"));
    CHECK(holds_one(dir / "new.npy"));
    CHECK(dir.count_entries() == 3);

    std::filesystem::create_symlink("missing/y.npy", dir / "nowhere.npy");
    std::filesystem::create_symlink("round.npy", dir / "round.npy");
    for (const char *name : {"nowhere.npy", "round.npy"}) {
        CHECK_THROWS_AS(write_one(dir / name), Refusal);
        CHECK(std::filesystem::is_symlink(dir / name));
    }
    CHECK(dir.count_entries() == 5);
}

TEST_CASE("npy: a disk that fills up leaves everything as it was", "[npy]") {
    const ScratchDir dir;
    const std::vector<float> values(100'000);
    const std::int64_t shape[] = {100'000};
    dir.write("old.npy", "precious");
    rlimit usual;
    REQUIRE(getrlimit(RLIMIT_FSIZE, &usual) == 0);
    const auto handler = std::signal(SIGXFSZ, SIG_IGN);
    const rlimit small = {4096, usual.rlim_max};
    REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
    for (const char *name : {"old.npy", "new.npy"}) {
        CHECK_THROWS_AS(write_npy(dir / name, "<f4", shape, values.data(), 400'000), Refusal);
    }
    setrlimit(RLIMIT_FSIZE, &usual);
    std::signal(SIGXFSZ, handler);
    CHECK(dir.read("old.npy") == "precious");
    CHECK(dir.count_entries() == 1);
}

TEST_CASE("npy: a writer that is killed leaves a whole file, the old one or the new one", "[npy]") {
    const ScratchDir dir;
    const std::int64_t shape[] = {1 << 18};
    const std::vector<float> kinds[] = {std::vector<float>(1 << 18, 1.0f), std::vector<float>(1 << 18, 2.0f)};
    const auto path = dir / "y.npy";
    write_npy(path, "<f4", shape, kinds[0].data(), 1 << 20);
    for (int i = 0; i < 20; i++) {
        const pid_t child = fork();
        REQUIRE(child >= 0);
        if (child == 0) {
            for (int kind = 1;; kind = 1 - kind) {
                write_npy(path, "<f4", shape, kinds[kind].data(), 1 << 20);
            }
        }
        usleep(static_cast<unsigned>(700 * i));
        kill(child, SIGKILL);
        REQUIRE(waitpid(child, nullptr, 0) == child);
        const auto array = read_npy(path, {"<f4"});
        const auto found = array.elements<float>();
        CHECK((std::ranges::equal(found, kinds[0]) || std::ranges::equal(found, kinds[1])));
    }
}

// The tool's reader and writer of .npy files. The reader accepts what NumPy writes, and refuses anything else.
#include "checks/scratch_dir.h"
#include "tool/files/file.h"
#include "tool/files/npy.h"

#include <catch2/catch_test_macros.hpp>

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <string>
#include <tuple>
#include <vector>

namespace {

using halyard::tool::NpyArray;
using halyard::tool::read_npy;
using halyard::tool::Refusal;
using halyard::tool::write_npy;
using Shape = std::vector<std::int64_t>;

/// The bytes of a .npy file with this header dictionary, data and version, padded as NumPy pads it.
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

NpyArray write_and_read(const ScratchDir &dir, const std::string &bytes) {
    return read_npy(dir.write("x.npy", bytes), {"<f4", "<f2", "<i8"});
}

/// Writes a .npy file with an array of the single number 1.
void write_one(const std::string &path) {
    const std::int64_t shape[] = {1};
    const float value = 1.0f;
    write_npy(path, "<f4", shape, &value, sizeof(value));
}

/// Checks that each of the files (bytes, reason) is refused with an error message that names the file and the reason.
void check_refused(const std::vector<std::pair<std::string, std::string>> &files) {
    const ScratchDir dir;
    for (const auto &[bytes, reason] : files) {
        CAPTURE(bytes, reason);
        std::string said;
        try {
            write_and_read(dir, bytes);
        } catch (const Refusal &refusal) {
            said = refusal.what();
        }
        CHECK(said.find(dir / "x.npy") != said.npos);
        CHECK(said.find(reason) != said.npos);
    }
}

}  // namespace

TEST_CASE("npy: what is written is read back, and is what NumPy writes", "[npy]") {
    const ScratchDir dir;
    const std::vector<float> values(120, 1.0f);
    const std::tuple<Shape, std::size_t, const char *> arrays[] = {
        {{}, 1, "()"},
        {{1}, 1, "(1,)"},
        {{5}, 5, "(5,)"},
        {{0}, 0, "(0,)"},
        {{2, 3, 4, 5}, 120, "(2, 3, 4, 5)"},
        {{3, 0, Shape::value_type{1} << 62, 8}, 0, "(3, 0, 4611686018427387904, 8)"}};
    for (const auto &[shape, n, words] : arrays) {
        write_npy(dir / "x.npy", "<f4", shape, values.data(), 4 * n);
        std::string data;
        for (std::size_t i = 0; i < n; ++i) {
            data += std::string("\0\0\x80\x3f", 4);
        }
        CHECK(dir.read("x.npy") == make_npy(float_dictionary(words), data));
        const auto array = read_npy(dir / "x.npy", {"<f4"});
        CHECK(array.descr == "<f4");
        CHECK(array.shape == shape);
        CHECK(array.n_elements == static_cast<std::int64_t>(n));
        const auto read = array.elements<float>();
        CHECK(std::equal(read.begin(), read.end(), values.begin(), values.begin() + static_cast<std::ptrdiff_t>(n)));
    }
    CHECK(dir.count_entries() == 1);
}

TEST_CASE("npy: every way to spell a header is read", "[npy]") {
    const ScratchDir dir;
    for (const char *dictionary : {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }",
                                   "{'shape':(2,3),'fortran_order':False,'descr':'<f4'}",
                                   "{ \"descr\" : \"<f4\" ,\n\t\"fortran_order\": False, \"shape\": ( 2 , 3 , ) }"}) {
        for (const char version : {1, 2, 3}) {
            const auto array = write_and_read(dir, make_npy(dictionary + std::string(300, ' '), floats(6), version));
            CHECK(array.shape == Shape{2, 3});
            CHECK(array.n_bytes == 24);
        }
    }
}

TEST_CASE("npy: a damaged file is refused", "[npy]") {
    const auto whole = make_npy(float_dictionary("(2, 3)"), floats(6));
    check_refused({{std::string(200, '\0'), "not a .npy file"},
                   {"\x93NUMPZ" + whole.substr(6), "not a .npy file"},
                   {"\x93NUMPY\x04" + whole.substr(7), "version 4.0"},
                   {std::string("\x93NUMPY\0", 7) + whole.substr(7), "version 0.0"},
                   {"\x93NUMPY\x01\x01" + whole.substr(8), "version 1.1"},
                   {whole + "x", "more bytes than the 24 of the array"},
                   // A header of version 2 that claims nearly 4 GiB.
                   {std::string("\x93NUMPY\x02\0\xf0\xff\xff\xff", 12) + whole.substr(10), "header"}});
    for (std::size_t n = 0; n < whole.size(); ++n) {
        check_refused({{whole.substr(0, n), n < 6                   ? "not a .npy file"
                                            : n < whole.size() - 24 ? "header"
                                                                    : "truncated"}});
    }
    for (const int n : {whole[8] + 8, 20}) {  // the header's length is too large or too small
        auto other = whole;
        other[8] = static_cast<char>(n);
        check_refused({{other, "header"}});
    }
}

TEST_CASE("npy: a malformed header is refused", "[npy]") {
    const std::string type = "{'descr': '<f4', ", good = type + "'fortran_order': False, 'shape': (2, 3)",
                      no_comma = "{'descr': '<f4' 'fortran_order': False, 'shape': (2, 3)}";
    for (const auto &dictionary :
         {std::string(), std::string("{}"), std::string("()"), type + "'fortran_order': False}",
          type + "'shape': (2, 3)}", "{" + good.substr(17) + "}", good + ", 'more': 1}", type + good.substr(1) + "}",
          no_comma, good, good.substr(0, good.size() - 1), good + "} x", good + "}}", good + ", 'shape': (2, 3)}",
          good + ", 'fortran_order': False}",
          std::string("{'descr': '<f4, 'fortran_order': False}"), type + "'fortran_order': 0, 'shape': (2, 3)}",
          type + "'fortran_order': Falsehood, 'shape': (2, 3)}",
          std::string("{'descr': '<\\x664', 'fortran_order': False, 'shape': (2, 3)}"),
          std::string("{'descr': '<f4\x1f', 'fortran_order': False, 'shape': (2, 3)}"),
          std::string("{'descr': '<f4\x7f', 'fortran_order': False, 'shape': (2, 3)}"),
          std::string("{'descr': None, 'fortran_order': False, 'shape': (2, 3)}"), float_dictionary("(2, 3)") + '\0'}) {
        check_refused({{make_npy(dictionary, floats(6)), "header is malformed"}});
    }
    for (const char *shape : {"[2, 3]", "(6)", "6", "(-2, -3)", "(2.0, 3)", "(2 3)", "(,)", "(2, , 3)", "(0x2, 3)"}) {
        check_refused({{make_npy(float_dictionary(shape), floats(6)), "header is malformed"}});
    }
}

TEST_CASE("npy: what is not a little-endian array of numbers in C order is refused", "[npy]") {
    const auto with = [](const std::string &descr, const std::string &order = "False") {
        return make_npy("{'descr': " + descr + ", 'fortran_order': " + order + ", 'shape': (2, 3), }", floats(6));
    };
    check_refused({{with("'>f4'"), "big-endian"},
                   {with("'|O'"), "its type is '|O', but <f4, <f2 or <i8 is needed"},
                   {with("''"), "its type is ''"},
                   {with("[('a', '<f2'), ('b', '<f2')]"), "structured"},
                   {with("'<f4'", "True"), "Fortran order"}});
    // A huge shape in the header must not make the reader allocate memory.
    for (const auto &[shape, reason] : {std::pair("(1000000000000,)", "truncated"),
                                        {"(9223372036854775807,)", "truncated"},
                                        {"(4294967296, 4294967296, 4)", "truncated"},
                                        {"(3037000500, 3037000500)", "truncated"},
                                        {"(9223372036854775808,)", "beyond 64 bits"},
                                        {"(9223372036854775807, 0)", "more bytes than the 0"}}) {
        check_refused({{make_npy(float_dictionary(shape), floats(6)), reason}});
    }
}

TEST_CASE("npy: what can't be read or written is refused, and stays as it was", "[npy]") {
    const ScratchDir dir;
    std::filesystem::create_directory(dir / "folder");
    REQUIRE(mkfifo((dir / "pipe").c_str(), 0600) == 0);  // not a device file, which broken code might replace
    std::filesystem::permissions(dir.write("protected", "precious"), std::filesystem::perms::owner_read);
    std::filesystem::create_symlink("missing/y.npy", dir / "nowhere.npy");
    std::filesystem::create_symlink("round.npy", dir / "round.npy");
    // Not even root can open drop_caches for reading.
    for (const auto &path : {dir / "missing.npy", std::string("/dev/null"), std::string("/proc/sys/vm/drop_caches")}) {
        CHECK_THROWS_AS(read_npy(path, {"<f4"}), Refusal);
    }
    for (const auto &path : {std::string(), dir / "", dir / "missing/y.npy", dir / "folder", dir / "pipe",
                             dir / "protected", dir / "protected/x.npy", dir / "nowhere.npy", dir / "round.npy",
                             dir / std::string(300, 'x')}) {
        CAPTURE(path);
        CHECK_THROWS_AS(read_npy(path, {"<f4"}), Refusal);
        CHECK_THROWS_AS(write_one(path), Refusal);
    }
    CHECK(dir.count_entries() == 5);
    CHECK(std::filesystem::is_fifo(dir / "pipe"));
    CHECK(std::filesystem::is_empty(dir / "folder"));
    CHECK(dir.read("protected") == "precious");
    CHECK(std::filesystem::is_symlink(dir / "nowhere.npy"));
    CHECK(std::filesystem::is_symlink(dir / "round.npy"));
}

TEST_CASE("npy: what a link leads to is written, whether it is there or not", "[npy]") {
    const ScratchDir dir;
    std::filesystem::create_directory(dir / "folder");
    std::filesystem::create_symlink("folder/second.npy", dir / "first.npy");
    std::filesystem::create_symlink(dir / "file.npy", dir / "folder/second.npy");
    for (const auto permissions : {std::filesystem::perms::none, std::filesystem::perms(0600)}) {
        if (permissions != std::filesystem::perms::none) {
            dir.write("file.npy", "something else");
            std::filesystem::permissions(dir / "file.npy", permissions);
        }
        write_one(dir / "first.npy");
        CHECK(std::filesystem::is_symlink(dir / "first.npy"));
        CHECK(std::filesystem::is_symlink(dir / "folder/second.npy"));
        CHECK(!std::filesystem::is_symlink(dir / "file.npy"));
        CHECK(read_npy(dir / "file.npy", {"<f4"}).elements<float>()[0] == 1.0f);
        CHECK(dir.count_entries() == 3);
    }
    CHECK(std::filesystem::status(dir / "file.npy").permissions() == std::filesystem::perms(0600));
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

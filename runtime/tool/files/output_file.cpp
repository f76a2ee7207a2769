#include "tool/files/output_file.h"

#include "tool/files/input_file.h"
#include "tool/files/refusal.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <random>
#include <system_error>

namespace halyard::tool {
namespace {

[[noreturn]] void refuse(const std::string &name, const std::string &why) {
    throw Refusal("can't write " + name + ": " + why);
}

std::filesystem::path name_temporary(const std::filesystem::path &target) {
    static constexpr char digits[] = "0123456789abcdef";
    std::random_device random;
    std::string name = ".halyard-";
    for (int i = 0; i < 4; ++i) {
        for (auto [word, n] = std::pair(random(), 0); n < 4; ++n, word >>= 4) {
            name += digits[word & 15];
        }
    }
    // Beside the target, because a rename does not cross file systems.
    return target.parent_path() / name;
}

/// Where a path leads through symbolic links, whether or not there is a file yet.
std::filesystem::path follow_links(std::filesystem::path path, const std::string &name) {
    std::error_code code;
    // A loop is found before: the system gives up at 40.
    while (std::filesystem::is_symlink(std::filesystem::symlink_status(path, code))) {
        const auto next = std::filesystem::read_symlink(path, code);
        if (code) {
            refuse(name, code.message());
        }
        path = path.parent_path() / next;
    }
    return path;
}

/// Throws Refusal where a rename would replace what must not be: a device such as /dev/null, a protected file.
void check_replaceable(const std::string &path, const std::string &name) {
    std::error_code code;
    const auto status = std::filesystem::status(path, code);
    if (path.empty() || !std::filesystem::path(path).has_filename()) {
        refuse(name, "it names no file");
    }
    if (!std::filesystem::status_known(status)) {
        refuse(name, code.message());
    }
    if (std::filesystem::exists(status)) {
        if (!std::filesystem::is_regular_file(status)) {
            refuse(name, std::filesystem::is_directory(status) ? "it is a directory" : "it is not a regular file");
        }
        const File probe(std::fopen(path.c_str(), "r+b"));
        if (probe == nullptr) {
            refuse(name, std::strerror(errno));
        }
    }
}

}  // namespace

void write_file(const std::string &path, std::initializer_list<std::string_view> parts) {
    const std::string name = "'" + path + "'";
    check_replaceable(path, name);
    const auto target = follow_links(path, name), temporary = name_temporary(target);
    File file(std::fopen(temporary.c_str(), "wbx"));
    if (file == nullptr) {
        refuse(name, std::strerror(errno));
    }
    std::error_code code, ignored;
    if (const auto old = std::filesystem::status(target, ignored); std::filesystem::exists(old)) {
        std::filesystem::permissions(temporary, old.permissions(), ignored);
    }
    for (const auto part : parts) {
        if (!code && std::fwrite(part.data(), 1, part.size(), file.get()) != part.size()) {
            code.assign(errno, std::generic_category());
        }
    }
    // fclose flushes: a full disk may show only here.
    if (std::fclose(file.release()) != 0 && !code) {
        code.assign(errno, std::generic_category());
    }
    if (!code) {
        std::filesystem::rename(temporary, target, code);
    }
    if (code) {
        std::filesystem::remove(temporary, ignored);
        refuse(name, code.message());
    }
}

void print(const std::string &text) {
    if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
        refuse("to the standard output", std::strerror(errno));
    }
}

}  // namespace halyard::tool

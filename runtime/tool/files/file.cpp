#include "tool/files/file.h"

#include "tool/files/refusal.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>
#include <system_error>

namespace halyard::tool {
namespace {

struct CloseFile {
    void operator()(std::FILE *file) const noexcept { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

[[noreturn]] void refuse_output(const std::string &name, const std::string &why) {
    throw Refusal("can't write " + name + ": " + why);
}

/// Beside the target, because a rename does not cross file systems.
std::filesystem::path name_temporary(const std::filesystem::path &target) {
    std::random_device random;
    return target.parent_path() / (".halyard-" + std::to_string(random()) + "-" + std::to_string(random()));
}

/// Where a path leads through symbolic links, whether or not there is a file yet.
std::filesystem::path follow_links(std::filesystem::path path, const std::string &name) {
    std::error_code code;
    // A loop is found before: the system gives up at 40.
    while (std::filesystem::is_symlink(std::filesystem::symlink_status(path, code))) {
        const auto next = std::filesystem::read_symlink(path, code);
        if (code) {
            refuse_output(name, code.message());
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
        refuse_output(name, "it names no file");
    }
    if (!std::filesystem::status_known(status)) {
        refuse_output(name, code.message());
    }
    if (std::filesystem::exists(status)) {
        if (!std::filesystem::is_regular_file(status)) {
            refuse_output(name,
                          std::filesystem::is_directory(status) ? "it is a directory" : "it is not a regular file");
        }
        const File probe(std::fopen(path.c_str(), "r+b"));
        if (probe == nullptr) {
            refuse_output(name, std::strerror(errno));
        }
    }
}

}  // namespace

void refuse_input(const std::string &path, const std::string &why) {
    throw Refusal("can't read '" + path + "': " + why);
}

std::string read_file(const std::string &path) {
    std::error_code code;
    const auto status = std::filesystem::status(path, code);
    if (!std::filesystem::exists(status)) {
        refuse_input(path, code.message());
    }
    // Looked at before opening, which would wait at a pipe without a writer.
    if (!std::filesystem::is_regular_file(status)) {
        refuse_input(path, std::filesystem::is_directory(status) ? "it is a directory" : "it is not a regular file");
    }
    const File file(std::fopen(path.c_str(), "rb"));
    if (file == nullptr) {
        refuse_input(path, std::strerror(errno));
    }
    const auto n_bytes = std::filesystem::file_size(path, code);
    if (code) {
        refuse_input(path, code.message());
    }
    std::string bytes(static_cast<std::size_t>(n_bytes), '\0');
    if (std::fread(bytes.data(), 1, bytes.size(), file.get()) != bytes.size()) {
        refuse_input(path, std::ferror(file.get()) != 0 ? std::strerror(errno) : "it became shorter while being read");
    }
    return bytes;
}

std::string read_standard_input(std::size_t limit) {
    std::string bytes;
    char some[1 << 16];
    while (const std::size_t n = std::fread(some, 1, sizeof(some), stdin)) {
        bytes.append(some, n);
        if (bytes.size() > limit) {
            throw Refusal("can't read the standard input: it is longer than the " + std::to_string(limit) +
                          " bytes that are read");
        }
    }
    if (std::ferror(stdin) != 0) {
        throw Refusal(std::string("can't read the standard input: ") + std::strerror(errno));
    }
    return bytes;
}

void write_file(const std::string &path, std::initializer_list<std::string_view> parts) {
    const std::string name = "'" + path + "'";
    check_replaceable(path, name);
    const auto target = follow_links(path, name), temporary = name_temporary(target);
    File file(std::fopen(temporary.c_str(), "wbx"));
    if (file == nullptr) {
        refuse_output(name, std::strerror(errno));
    }
    std::error_code code, ignored;
    if (const auto old = std::filesystem::status(target, ignored); std::filesystem::exists(old)) {
        std::filesystem::permissions(temporary, old.permissions(), ignored);
    }
    for (const auto part : parts) {
        if (!code && !part.empty() && std::fwrite(part.data(), 1, part.size(), file.get()) != part.size()) {
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
        refuse_output(name, code.message());
    }
}

void print(const std::string &text) {
    if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
        refuse_output("to the standard output", std::strerror(errno));
    }
}

}  // namespace halyard::tool

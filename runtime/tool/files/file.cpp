#include "tool/files/file.h"

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

/// The name of a temporary file in the target's folder, because a rename cannot cross file systems.
std::filesystem::path name_temporary(const std::filesystem::path &target) {
    std::random_device random;
    return target.parent_path() / (".halyard-" + std::to_string(random()) + "-" + std::to_string(random()));
}

/// The path after following symbolic links, whether or not the file exists. Throws Refusal if a rename would replace a
/// file that must stay: a device such as /dev/null, a write-protected file.
std::filesystem::path follow_links_to_output(std::filesystem::path path, const std::string &quoted_path) {
    std::error_code code;
    const auto status = std::filesystem::status(path, code);
    if (!std::filesystem::status_known(status)) {  // for example a cycle of links
        refuse_output(quoted_path, code.message());
    }
    if (std::filesystem::exists(status)) {
        if (!std::filesystem::is_regular_file(status)) {
            refuse_output(quoted_path, "it is not a regular file");
        }
        if ((status.permissions() & std::filesystem::perms::owner_write) == std::filesystem::perms::none) {
            refuse_output(quoted_path, "it is write-protected");
        }
    }
    while (std::filesystem::is_symlink(path)) {
        path = path.parent_path() / std::filesystem::read_symlink(path);
    }
    return path;
}

}  // namespace

void refuse_input(const std::string &path, const std::string &why) {
    throw Refusal("can't read '" + path + "': " + why);
}

std::string read_file(const std::string &path) {
    std::error_code code;
    // Checked before the file is opened, because opening a pipe without a writer would block.
    const auto status = std::filesystem::status(path, code);
    if (!std::filesystem::is_regular_file(status)) {
        refuse_input(path, std::filesystem::exists(status) ? "it is not a regular file" : code.message());
    }
    const File file(std::fopen(path.c_str(), "rb"));
    if (file == nullptr) {
        refuse_input(path, std::strerror(errno));
    }
    std::string bytes(static_cast<std::size_t>(std::filesystem::file_size(path)), '\0');
    bytes.resize(
        std::fread(bytes.data(), 1, bytes.size(), file.get()));  // a file that became shorter is found truncated
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
    const auto target = follow_links_to_output(path, name), temporary = name_temporary(target);
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
    // fclose flushes, so a full disk may be reported only here.
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

#include "tool/files/input_file.h"

#include "tool/files/refusal.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace halyard::tool {

void refuse_input(const std::string &path, const std::string &why) {
    throw Refusal("can't read '" + path + "': " + why);
}

std::string read_file(const std::string &path) {
    std::error_code code;
    const auto status = std::filesystem::status(path, code);
    if (!std::filesystem::exists(status)) {
        refuse_input(path, code && status.type() == std::filesystem::file_type::none ? code.message()
                                                                                     : "there is no such file");
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

}  // namespace halyard::tool

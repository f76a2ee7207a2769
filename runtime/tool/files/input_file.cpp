#include "tool/files/input_file.h"

#include "tool/files/refusal.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace halyard::tool {

std::string name_input(const std::string &path) {
    return path == standard_stream ? "the standard input" : "'" + path + "'";
}

void refuse_input(const std::string &path, const std::string &why) {
    throw Refusal("can't read " + name_input(path) + ": " + why);
}

InputFile::InputFile(const std::string &path) : path_(path) {
    if (path == standard_stream) {
        return;
    }
    std::error_code code;
    const auto status = std::filesystem::status(path, code);
    if (!std::filesystem::exists(status)) {
        refuse_input(path, code && status.type() == std::filesystem::file_type::none ? code.message()
                                                                                     : "there is no such file");
    }
    // Looked at before opening, which would wait at a pipe without a writer.
    if (!std::filesystem::is_regular_file(status)) {
        refuse_input(path, std::filesystem::is_directory(status)
                               ? "it is a directory"
                               : "it is not a regular file; '-' reads the standard input, which may be a pipe");
    }
    file_.reset(std::fopen(path.c_str(), "rb"));
    if (file_ == nullptr) {
        refuse_input(path, std::strerror(errno));
    }
    remaining_ = std::filesystem::file_size(path, code);
    if (code) {
        refuse_input(path, code.message());
    }
}

bool InputFile::holds(std::uintmax_t n_bytes) {
    constexpr std::size_t least = 1 << 16;
    while (file_ == nullptr && remaining_ < n_bytes) {
        ahead_.erase(ahead_.begin(), ahead_.end() - static_cast<std::ptrdiff_t>(remaining_));
        const auto n_kept = ahead_.size();
        // Doubled, so that a long input is not copied often, but to no more than is asked for and a little.
        ahead_.resize(n_kept + static_cast<std::size_t>(std::min<std::uintmax_t>(n_bytes - n_kept, n_kept + least)));
        const auto n_read = std::fread(ahead_.data() + n_kept, 1, ahead_.size() - n_kept, stdin);
        if (std::ferror(stdin) != 0) {
            refuse_input(path_, std::strerror(errno));
        }
        ahead_.resize(n_kept + n_read);
        remaining_ = ahead_.size();
        if (n_read == 0) {
            return false;
        }
    }
    return n_bytes <= remaining_;
}

void InputFile::read(void *data, std::size_t n_bytes) {
    if (file_ == nullptr) {
        std::copy_n(ahead_.end() - static_cast<std::ptrdiff_t>(remaining_), n_bytes,
                    static_cast<unsigned char *>(data));
        remaining_ -= n_bytes;
        return;
    }
    if (n_bytes != 0 && std::fread(data, 1, n_bytes, file_.get()) != n_bytes) {
        refuse_input(path_,
                     std::ferror(file_.get()) != 0 ? std::strerror(errno) : "it became shorter while being read");
    }
    remaining_ -= n_bytes;
}

std::string read_text(const std::string &path, std::size_t limit) {
    InputFile file(path);
    if (file.holds(limit + 1)) {
        refuse_input(path, "it is longer than the " + std::to_string(limit) + " bytes that are read");
    }
    std::string text(static_cast<std::size_t>(file.remaining()), '\0');
    file.read(text.data(), text.size());
    return text;
}

}  // namespace halyard::tool

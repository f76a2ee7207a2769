#include "tool/files/input_file.h"

#include "tool/refusal.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace halyard::tool {

void refuse_input(const std::string &path, const std::string &why) {
    throw Refusal("can't read '" + path + "': " + why);
}

InputFile::InputFile(const std::string &path) : path_(path) {
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
    file_.reset(std::fopen(path.c_str(), "rb"));
    if (file_ == nullptr) {
        refuse_input(path, std::strerror(errno));
    }
    remaining_ = std::filesystem::file_size(path, code);
    if (code) {
        refuse_input(path, code.message());
    }
}

void InputFile::read(void *data, std::size_t n_bytes) {
    if (n_bytes != 0 && std::fread(data, 1, n_bytes, file_.get()) != n_bytes) {
        refuse_input(path_,
                     std::ferror(file_.get()) != 0 ? std::strerror(errno) : "it became shorter while being read");
    }
    remaining_ -= n_bytes;
}

std::string read_text(const std::string &path, std::size_t limit) {
    InputFile file(path);
    if (file.remaining() > limit) {
        refuse_input(path, "it has " + std::to_string(file.remaining()) + " bytes, but at most " +
                               std::to_string(limit) + " are read");
    }
    std::string text(static_cast<std::size_t>(file.remaining()), '\0');
    file.read(text.data(), text.size());
    return text;
}

}  // namespace halyard::tool

// Files that are read whole, and written complete or not at all; the standard streams; and Refusal, the exception for
// well-formed requests that can't be carried out.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>

namespace halyard::tool {

/// The request can't be carried out. what() is a message that names the file or option; the exit status is 1. (Wrong
/// usage is a CLI::ParseError, with exit status 2.)
class Refusal : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

/// Joins words for messages: "f32, f16 or bf16".
template <typename Words>
std::string join(const Words &words, const std::string &between = ", ", const std::string &before_last = " or ") {
    std::string text;
    for (auto word = words.begin(); word != words.end(); ++word) {
        text += (word == words.begin() ? "" : word + 1 == words.end() ? before_last : between) + std::string(*word);
    }
    return text;
}

/// Throws Refusal because a file can't be read; `why` is the reason.
[[noreturn]] void refuse_input(const std::string &path, const std::string &why);

/// Reads all bytes of a regular file. Throws Refusal, naming the file.
std::string read_file(const std::string &path);

/// Reads all bytes of the standard input, which may be a pipe. Throws Refusal, also if there are more than `limit`.
std::string read_standard_input(std::size_t limit);

/// Writes a file atomically: writes a temporary file beside `path` and renames it at the end, so that readers see the
/// old file or the whole new one, and a failure leaves no trace. If path is a symbolic link, the file that it leads to
/// is replaced. Throws Refusal for a directory, a device, a file without write permission, or a missing folder.
void write_file(const std::string &path, std::initializer_list<std::string_view> parts);

/// Writes a text to the standard output. Throws Refusal if that fails, because of a full disk for instance.
void print(const std::string &text);

}  // namespace halyard::tool

// Files that are read whole, and written complete or not at all; the standard streams; and how the tool says that a
// well-formed request can't be carried out.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>

namespace halyard::tool {

/// what() is one sentence that names the file or option; the exit status is 1. (Wrong usage is a CLI::ParseError, with
/// exit status 2.)
class Refusal : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

/// Words as a sentence lists them: "f32, f16 or bf16".
template <typename Words>
std::string join(const Words &words, const std::string &between = ", ", const std::string &before_last = " or ") {
    std::string text;
    for (auto word = words.begin(); word != words.end(); ++word) {
        text += (word == words.begin() ? "" : word + 1 == words.end() ? before_last : between) + std::string(*word);
    }
    return text;
}

/// Throws Refusal: the file can't be read, and why.
[[noreturn]] void refuse_input(const std::string &path, const std::string &why);

/// All bytes of a regular file. Throws Refusal, naming the file.
std::string read_file(const std::string &path);

/// All bytes of the standard input, which may be a pipe, if there are at most `limit`. Throws Refusal.
std::string read_standard_input(std::size_t limit);

/// Writes to a temporary file beside `path` and gives it the name at the end, so that whoever looks sees the old file
/// or the whole new one, and a failure leaves no trace. A symbolic link stays, and the file that it leads to is
/// written. Throws Refusal where it can't: a directory, a device, a file without write permission, a missing folder.
void write_file(const std::string &path, std::initializer_list<std::string_view> parts);

/// Writes a text to the standard output. Throws Refusal where it can't, a full disk for instance.
void print(const std::string &text);

}  // namespace halyard::tool

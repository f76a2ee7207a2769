// Files that are read whole.
#pragma once

#include <cstddef>
#include <cstdio>
#include <memory>
#include <string>

namespace halyard::tool {

struct CloseFile {
    void operator()(std::FILE *file) const noexcept { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

/// Throws Refusal: the file can't be read, and why.
[[noreturn]] void refuse_input(const std::string &path, const std::string &why);

/// All bytes of a regular file. Throws Refusal, naming the file.
std::string read_file(const std::string &path);

/// All bytes of the standard input, which may be a pipe, if there are at most `limit`. Throws Refusal.
std::string read_standard_input(std::size_t limit);

}  // namespace halyard::tool

// Files that are read whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

namespace halyard::tool {

/// What stands for the standard input or the standard output where a file is asked for.
inline constexpr const char *standard_stream = "-";

struct CloseFile {
    void operator()(std::FILE *file) const noexcept { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

/// A file for sentences: 'x.npy', or the standard input.
std::string name_input(const std::string &path);

/// Throws Refusal: the file can't be read, and why.
[[noreturn]] void refuse_input(const std::string &path, const std::string &why);

/// A regular file, or the standard input, which may be a pipe. Everything throws Refusal, naming the file. `path` must
/// outlive it.
class InputFile {
public:
    explicit InputFile(const std::string &path);

    /// Whether n_bytes or more are left. Of the standard input as many are read ahead, so that memory is taken for what
    /// has come, and never for what is only announced.
    bool holds(std::uintmax_t n_bytes);

    /// How many bytes are known to be left: all that are, unless holds() has just said yes to the standard input.
    std::uintmax_t remaining() const { return remaining_; }

    /// Reads n_bytes, which holds() has said yes to.
    void read(void *data, std::size_t n_bytes);

private:
    const std::string &path_;
    File file_;  // NULL: the standard input
    std::uintmax_t remaining_ = 0;
    std::vector<unsigned char> ahead_;  // of the standard input: its last remaining_ bytes have not been taken yet
};

/// All of a file that is at most `limit` bytes long. Throws Refusal.
std::string read_text(const std::string &path, std::size_t limit);

}  // namespace halyard::tool

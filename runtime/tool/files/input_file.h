// Files that are read whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

namespace halyard::tool {

/// Throws Refusal: the file can't be read, and why.
[[noreturn]] void refuse_input(const std::string &path, const std::string &why);

/// A regular file of known size. Everything throws Refusal, naming the file. `path` must outlive it.
class InputFile {
public:
    explicit InputFile(const std::string &path);

    std::uintmax_t remaining() const { return remaining_; }

    /// Reads n_bytes, at most remaining().
    void read(void *data, std::size_t n_bytes);

private:
    struct Closer {
        void operator()(std::FILE *file) const noexcept { std::fclose(file); }
    };

    const std::string &path_;
    std::unique_ptr<std::FILE, Closer> file_;
    std::uintmax_t remaining_ = 0;
};

/// All of a file that is at most `limit` bytes long. Throws Refusal.
std::string read_text(const std::string &path, std::size_t limit);

}  // namespace halyard::tool

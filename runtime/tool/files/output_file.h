// Files that are there complete or not at all; and the standard output.
#pragma once

#include "tool/files/input_file.h"

#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <string>

namespace halyard::tool {

/// Writes to a temporary file beside `path` and gives it the name at the end, so that whoever looks sees the old file
/// or the whole new one, and a failure leaves no trace. A symbolic link stays, and the file that it leads to is
/// written.
/// "-" is the standard output, to which everything goes as it is written.
class OutputFile {
public:
    /// Creates the temporary file. Throws Refusal where `path` could not be replaced later: a directory, a device, a
    /// file without write permission, a missing folder.
    explicit OutputFile(const std::string &path);
    OutputFile(const OutputFile &) = delete;
    OutputFile &operator=(const OutputFile &) = delete;
    /// Removes the temporary file unless commit() succeeded.
    ~OutputFile();

    void write(const void *data, std::size_t n_bytes);
    /// Gives the finished file its name. Call it last.
    void commit();

private:
    std::FILE *stream() const noexcept { return file_ != nullptr ? file_.get() : stdout; }

    std::string name_;              // as the user wrote it, for sentences
    std::filesystem::path target_;  // where that leads, through symbolic links
    std::filesystem::path temporary_;
    File file_;  // NULL: the standard output
};

/// Writes a text to the standard output. Throws Refusal where it can't, a full disk for instance.
void print(const std::string &text);

}  // namespace halyard::tool

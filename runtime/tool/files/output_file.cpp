#include "tool/files/output_file.h"

#include "tool/files/refusal.h"

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <random>
#include <system_error>

namespace halyard::tool {
namespace {

[[noreturn]] void refuse(const std::string &name, const std::string &why) {
    throw Refusal("can't write " + name + ": " + why);
}

std::filesystem::path name_temporary(const std::filesystem::path &target) {
    static constexpr char digits[] = "0123456789abcdef";
    std::random_device random;
    std::string name = ".halyard-";
    for (int i = 0; i < 4; ++i) {
        for (auto [word, n] = std::pair(random(), 0); n < 4; ++n, word >>= 4) {
            name += digits[word & 15];
        }
    }
    // Beside the target, because a rename does not cross file systems.
    return target.parent_path() / name;
}

/// Where a path leads through symbolic links, whether or not there is a file yet.
std::filesystem::path follow_links(std::filesystem::path path, const std::string &name) {
    std::error_code code;
    // A loop is found before: the system gives up at 40.
    while (std::filesystem::is_symlink(std::filesystem::symlink_status(path, code))) {
        const auto next = std::filesystem::read_symlink(path, code);
        if (code) {
            refuse(name, code.message());
        }
        path = path.parent_path() / next;
    }
    return path;
}

}  // namespace

OutputFile::OutputFile(const std::string &path) : name_("'" + path + "'"), target_(path) {
    if (path == standard_stream) {
        name_ = "to the standard output";
        return;
    }
    std::error_code code;
    const auto status = std::filesystem::status(target_, code);
    if (path.empty() || !target_.has_filename()) {
        refuse(name_, "it names no file");
    }
    if (std::filesystem::is_directory(status)) {
        refuse(name_, "it is a directory");
    }
    if (!std::filesystem::status_known(status)) {
        refuse(name_, code.message());
    }
    if (std::filesystem::exists(status)) {
        // A rename would replace /dev/null by a file, and a file that its owner has protected.
        if (!std::filesystem::is_regular_file(status)) {
            refuse(name_, "it is not a regular file");
        }
        const File probe(std::fopen(path.c_str(), "r+b"));
        if (probe == nullptr) {
            refuse(name_, std::strerror(errno));
        }
    }
    target_ = follow_links(target_, name_);
    temporary_ = name_temporary(target_);
    file_.reset(std::fopen(temporary_.c_str(), "wbx"));
    if (file_ == nullptr) {
        refuse(name_, std::strerror(errno));
    }
    if (std::filesystem::exists(status)) {
        std::filesystem::permissions(temporary_, status.permissions(), code);
    }
}

OutputFile::~OutputFile() {
    if (!temporary_.empty()) {
        file_.reset();
        std::error_code ignored;
        std::filesystem::remove(temporary_, ignored);
    }
}

void OutputFile::write(const void *data, std::size_t n_bytes) {
    if (n_bytes != 0 && std::fwrite(data, 1, n_bytes, stream()) != n_bytes) {
        refuse(name_, std::strerror(errno));
    }
}

void OutputFile::commit() {
    if (file_ == nullptr) {
        if (std::fflush(stdout) != 0) {
            refuse(name_, std::strerror(errno));
        }
        return;
    }
    // fclose flushes: a full disk may show only here.
    if (std::fclose(file_.release()) != 0) {
        refuse(name_, std::strerror(errno));
    }
    std::error_code code;
    std::filesystem::rename(temporary_, target_, code);
    if (code) {
        refuse(name_, code.message());
    }
    temporary_.clear();
}

void print(const std::string &text) {
    OutputFile output(standard_stream);
    output.write(text.data(), text.size());
    output.commit();
}

}  // namespace halyard::tool

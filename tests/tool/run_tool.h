// Runs the command-line tool as a program, and checks its output.
#pragma once

#include "checks/scratch_dir.h"
#include "data/paths.h"
#include "tool/files/npy.h"

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include <sys/wait.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <type_traits>
#include <vector>

struct Result {
    int status = -1;  // the exit status, or 128 + the signal that killed the tool
    std::string output;
    std::string errors;
};

/// A temporary folder with the tool's input and output files. The tool runs in it.
class ToolFolder : public ScratchDir {
public:
    /// Runs a shell command line, which is given without the leading `halyard`.
    Result run(const std::string &command, const std::string &input = "/dev/null",
               const std::string &output = "") const {
        const ScratchDir streams;
        const std::string to = output.empty() ? streams / "output" : output,
                          line = "cd '" + *this / "" + "' && " + places::tool_launcher() + " '" + places::tool() +
                                 "' " + command + " <'" + input + "' >'" + to + "' 2>'" + streams / "errors" + "'";
        const int status = std::system(line.c_str());
        return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
                output.empty() ? streams.read("output") : "", streams.read("errors")};
    }

    /// Runs a command that must succeed and write nothing to standard error. Returns its standard output.
    std::string succeed(const std::string &command, const std::string &input = "/dev/null") const {
        const auto result = run(command, input);
        CAPTURE(command);
        REQUIRE(result.errors == "");
        REQUIRE(result.status == 0);
        return result.output;
    }

    /// Runs a command that must fail with this status, print one line that starts with `halyard:` and holds these
    /// words, and leave no new file.
    void fail(int status, const std::string &command, const std::string &words = "") const {
        const auto n_entries = count_entries();
        const auto result = run(command);
        CAPTURE(command, result.errors, words);
        CHECK(result.status == status);
        CHECK(result.output == "");
        CHECK(result.errors.starts_with("halyard: "));
        CHECK(result.errors.find('\n') == result.errors.size() - 1);
        CHECK(result.errors.find(words) != std::string::npos);
        CHECK(count_entries() == n_entries);
    }

    /// Makes a symbolic link in this folder to one of the tests' configs.
    void add_config(const std::string &name) const {
        std::filesystem::create_symlink(places::configs() + "/" + name + ".json", *this / (name + ".json"));
    }
};

// ---- The .npy files that tests hand to the tool and read back ----

using Shape = std::vector<std::int64_t>;

/// Writes an array to a .npy file in the folder. Returns its name, for command lines.
template <typename Element>
std::string write(const ToolFolder &folder, const std::string &name, const Shape &shape,
                  const std::vector<Element> &values) {
    const std::string descr = (std::is_floating_point_v<Element> ? "<f" : "<i") + std::to_string(sizeof(Element));
    halyard::tool::write_npy(folder / name, descr, shape, values.data(), values.size() * sizeof(Element));
    return name;
}

/// Pseudo-random numbers, the same in every run.
inline std::vector<float> make_values(std::size_t n) {
    std::vector<float> values(n);
    std::uint32_t state = 12345;
    for (auto &value : values) {
        state = state * 1664525 + 1013904223;
        value = static_cast<float>(static_cast<std::int32_t>(state)) * 0x1p-30f;
    }
    return values;
}

// Runs the command-line tool as its users do.
#pragma once

#include "checks/scratch_dir.h"
#include "data/places.h"
#include "tool/files/npy.h"

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>

#include <cstdint>
#include <cstring>
#include <sstream>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

extern char **environ;

using Arguments = std::vector<std::string>;

/// The words of a line. As in a shell, '' is an empty word.
inline Arguments split(const std::string &line) {
    std::istringstream stream(line);
    Arguments words;
    for (std::string word; stream >> word;) {
        words.push_back(word == "''" ? "" : word);
    }
    return words;
}

/// What stands behind `halyard` on a command line: words, or a line of them.
struct Command : Arguments {
    Command(const char *line) : Arguments(split(line)) {}
    Command(const std::string &line) : Arguments(split(line)) {}
    Command(Arguments words) : Arguments(std::move(words)) {}
};

struct Result {
    int status = -1;  // 128 + the signal where the tool was killed
    std::string output;
    std::string errors;
};

struct How {
    std::string input = "/dev/null", output = "";  // files; "": Result::output
};

/// A folder with the tool's files, in which it runs.
class ToolFolder : public ScratchDir {
public:
    Result run(const Command &command, const How &how = {}) const {
        const ScratchDir streams;
        Arguments words = split(places::tool_launcher());
        words.push_back(places::tool());
        words.insert(words.end(), command.begin(), command.end());
        std::vector<char *> argv;
        for (auto &word : words) {
            argv.push_back(word.data());
        }
        argv.push_back(nullptr);
        const auto output = how.output.empty() ? streams / "output" : how.output, errors = streams / "errors";
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_addchdir_np(&actions, (*this / "").c_str());
        posix_spawn_file_actions_addopen(&actions, 0, how.input.c_str(), O_RDONLY, 0);
        posix_spawn_file_actions_addopen(&actions, 1, output.c_str(), O_WRONLY | O_CREAT, 0600);
        posix_spawn_file_actions_addopen(&actions, 2, errors.c_str(), O_WRONLY | O_CREAT, 0600);
        pid_t child = 0;
        const int failed = posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), environ);
        posix_spawn_file_actions_destroy(&actions);
        if (failed != 0) {
            throw std::runtime_error("can't start " + words[0] + ": " + std::strerror(failed));
        }
        int status = 0;
        waitpid(child, &status, 0);
        return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
                how.output.empty() ? streams.read("output") : "", streams.read("errors")};
    }

    /// It must succeed and write nothing to standard error. Returns its standard output.
    std::string succeed(const Command &command, const How &how = {}) const {
        const auto result = run(command, how);
        CAPTURE(command);
        REQUIRE(result.errors == "");
        REQUIRE(result.status == 0);
        return result.output;
    }

    /// Checks what every error promises: the status, a line that begins with `halyard:` and says these words, and no
    /// file left behind.
    void fail(int status, const Command &command, const std::string &words = "") const {
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
};

// ---- The .npy files that tests hand to the tool and read back ----

using Shape = std::vector<std::int64_t>;

template <typename Element>
std::string descr_of() {
    static_assert(std::is_floating_point_v<Element> || std::is_signed_v<Element>);
    return (std::is_floating_point_v<Element> ? "<f" : "<i") + std::to_string(sizeof(Element));
}

/// Returns the name, which is what a command in that folder says.
template <typename Element>
std::string write(const ToolFolder &folder, const std::string &name, const Shape &shape,
                  const std::vector<Element> &values, const std::string &descr = descr_of<Element>()) {
    halyard::tool::write_npy(folder / name, descr, shape, values.data(), values.size() * sizeof(Element));
    return name;
}

/// Numbers without a pattern, the same in every run.
inline std::vector<float> make_values(std::size_t n) {
    std::vector<float> values(n);
    std::uint32_t state = 12345;
    for (auto &value : values) {
        state = state * 1664525 + 1013904223;
        value = static_cast<float>(static_cast<std::int32_t>(state)) * 0x1p-30f;
    }
    return values;
}

inline std::vector<float> floats_of(const std::string &path) {
    const auto array = halyard::tool::read_npy(path, {"<f4"});
    const auto elements = array.elements<float>();
    return {elements.begin(), elements.end()};
}

/// The CPU's targets that this machine can run.
inline std::vector<std::string> supported_targets() {
    std::vector<std::string> names;
    for (const auto &target : nlohmann::json::parse(ToolFolder().succeed("list --json"))) {
        const std::string name = target.at("name");
        if (!name.starts_with("cuda_") && target.at("built").get<bool>() && target.at("supported").get<bool>()) {
            names.push_back(name);
        }
    }
    return names;
}

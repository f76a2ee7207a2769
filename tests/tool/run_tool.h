// Runs the command-line tool as its users do.
#pragma once

#include "checks/scratch_dir.h"
#include "data/places.h"

#include <catch2/catch_test_macros.hpp>

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstring>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

extern char **environ;

using Arguments = std::vector<std::string>;

inline Arguments operator+(Arguments left, const Arguments &right) {
    left.insert(left.end(), right.begin(), right.end());
    return left;
}

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

    std::string line() const {
        std::string text = "halyard";
        for (const auto &word : *this) {
            text += " " + word;
        }
        return text;
    }
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
        Arguments words = split(places::tool_launcher()) + Arguments{places::tool()} + command;
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
        INFO(command.line());
        REQUIRE(result.errors == "");
        REQUIRE(result.status == 0);
        return result.output;
    }

    /// Checks what every error promises: the status, a line that begins with `halyard:` and says these words, and no
    /// file left behind.
    void fail(int status, const Command &command, const std::string &words = "") const {
        const auto n_entries = count_entries();
        const auto result = run(command);
        INFO(command.line());
        CAPTURE(result.errors, words);
        CHECK(result.status == status);
        CHECK(result.output == "");
        CHECK(result.errors.starts_with("halyard: "));
        CHECK(result.errors.ends_with('\n'));
        CHECK(std::count(result.errors.begin(), result.errors.end(), '\n') == 1);
        CHECK(result.errors.find(words) != std::string::npos);
        CHECK(count_entries() == n_entries);
    }

    /// Adds each of these options to the command.
    void fail_each(int status, const std::string &command, const Arguments &options) const {
        for (const auto &each : options) {
            fail(status, command + " " + each);
        }
    }
    /// Adds each of these options to the command, against which it says these words.
    void fail_saying(int status, const std::string &command,
                     const std::vector<std::pair<std::string, std::string>> &said) const {
        for (const auto &[options, words] : said) {
            fail(status, command + " " + options, words);
        }
    }
};

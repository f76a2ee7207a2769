// Runs the command-line tool as its users do. HALYARD_TOOL_PATH is the program. HALYARD_TOOL_LAUNCHER is the emulator
// that runs it where it is built for another machine.
#pragma once

#include "checks/scratch_dir.h"

#include <catch2/catch_test_macros.hpp>

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#if !defined(HALYARD_TOOL_LAUNCHER)
#define HALYARD_TOOL_LAUNCHER ""
#endif

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

struct Result {
    int status = -1;  // 128 + the signal where the tool was killed
    std::string output;
    std::string errors;
};

/// Runs `halyard arguments…`. Its standard output goes to `output_path`, or to Result::output when that is empty. Kills
/// it after a while where it is told to. Its standard input comes from `input_path`.
inline Result run_tool(const Arguments &arguments, const std::string &output_path = "",
                       std::optional<std::chrono::nanoseconds> kill_after = std::nullopt,
                       const std::string &input_path = "/dev/null") {
    const ScratchDir dir;
    Arguments words = split(HALYARD_TOOL_LAUNCHER) + Arguments{HALYARD_TOOL_PATH} + arguments;
    std::vector<char *> argv;
    for (auto &word : words) {
        argv.push_back(word.data());
    }
    argv.push_back(nullptr);

    const auto output = output_path.empty() ? dir / "output" : output_path;
    const auto errors = dir / "errors";
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, input_path.c_str(), O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, output.c_str(), O_WRONLY | O_CREAT, 0600);
    posix_spawn_file_actions_addopen(&actions, 2, errors.c_str(), O_WRONLY | O_CREAT, 0600);
    pid_t child = 0;
    const int failed = posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    if (failed != 0) {
        throw std::runtime_error("can't start " + words[0] + ": " + std::strerror(failed));
    }
    if (kill_after) {
        std::this_thread::sleep_for(*kill_after);
        kill(child, SIGKILL);
    }
    int status = 0;
    waitpid(child, &status, 0);
    Result result;
    result.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    result.output = output_path.empty() ? dir.read("output") : "";
    result.errors = dir.read("errors");
    return result;
}

inline std::string join(const Arguments &arguments) {
    std::string text = "halyard";
    for (const auto &argument : arguments) {
        text += " " + argument;
    }
    return text;
}

/// Runs the tool, which must succeed and write nothing to standard error. Returns its standard output.
inline std::string succeed(const Arguments &arguments) {
    const auto result = run_tool(arguments);
    INFO(join(arguments));
    REQUIRE(result.errors == "");
    REQUIRE(result.status == 0);
    return result.output;
}

/// The words of the API that a text holds, which mean nothing to those who use the tool; "" if none. Its environment
/// variables are theirs.
inline std::string find_api_words(std::string text) {
    for (const std::string variable : {"HALYARD_TARGET", "HALYARD_MAX_TARGET"}) {
        for (auto at = text.find(variable); at != text.npos; at = text.find(variable)) {
            text.erase(at, variable.size());
        }
    }
    std::string found;
    for (const char *word :
         {"tensors[", "tensor 0's", "desc.",  "args.",      "options.",   "HALYARD_",     "halyard_",
          "x[0]",     "y[0]",       "stride", "positions[", "listed",     "angle source", "axis_counts",
          "n_axes",   "n_pairs",    "n_rows", "n_tokens",   "rows_dtype", "the plan",     "executor",
          "NULL",     "struct",     ".h ",    "PHASE",      "FACTORED",   "HF_F32",       "VLLM_",
          "GGML",     "stages[",    "slots[", "->",         "scales_out", "weight_dtype"}) {
        found += text.find(word) != text.npos ? std::string(word) + " " : "";
    }
    return found;
}

/// Checks what every error promises: the status, a few lines that begin with `halyard:` and speak of options and files,
/// and no file left behind.
inline void check_fails(int status, const Arguments &arguments, const ScratchDir &dir) {
    const auto n_entries = dir.count_entries();
    const auto result = run_tool(arguments);
    INFO(join(arguments));
    CAPTURE(result.errors);
    CHECK(result.status == status);
    CHECK(result.output == "");
    CHECK(result.errors.starts_with("halyard: "));
    CHECK(result.errors.ends_with('\n'));
    const auto n_lines = std::count(result.errors.begin(), result.errors.end(), '\n');
    CHECK(n_lines <= (status == 1 ? 1 : 6));
    CHECK(find_api_words(result.errors) == "");
    CHECK(dir.count_entries() == n_entries);
}

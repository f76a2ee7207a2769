// Other programs that the tuner starts, and the user's wish to stop.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

namespace halyard::bench {

/// Thrown where the user wants to stop.
struct Interrupted : std::runtime_error {
    Interrupted() : std::runtime_error("interrupted") {}
};

/// From now on Ctrl-C is noted, so that what is at hand can be ended. A second one ends the process.
void watch_for_interrupts();
bool is_interrupted();
void stop_if_interrupted();

/// For a shell.
std::string quote(const std::string &word);
std::string join(const std::vector<std::string> &words);

/// A shell's command in a group of its own, so that all of it can be ended. What it prints goes to the log. It has an
/// ordinary priority even where what is timed has not.
pid_t start(const std::string &command, const std::filesystem::path &log);

/// Ends a process and those that it started.
void end(pid_t child);

/// Waits for a process, and ends it after the time `until`, and where the user wants to stop. Why it failed, or
/// nothing.
std::string wait_for(pid_t child, double until, const std::filesystem::path &log);

}  // namespace halyard::bench

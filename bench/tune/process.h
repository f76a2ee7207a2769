// Starts other programs for the tuner and ends them, also when the user wants to stop.
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

/// One word, or several, as a shell reads them.
std::string quote(const std::string &word);
std::string join(const std::vector<std::string> &words);

/// Starts a shell's command in a process group of its own, so that all of it can be ended. What it prints goes to the
/// log. It has an ordinary priority even where this process has a higher one for timing.
pid_t start(const std::string &command, const std::filesystem::path &log);

/// Ends a process and those that it started.
void end(pid_t child);

/// Waits for a process. Ends it after the time `until`, and where the user wants to stop. Returns why it failed, or
/// nothing.
std::string wait_for(pid_t child, double until, const std::filesystem::path &log);

}  // namespace halyard::bench

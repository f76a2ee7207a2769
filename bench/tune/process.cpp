#include "tune/process.h"

#include "measure/timing.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <fstream>
#include <system_error>

namespace halyard::bench {

namespace {

volatile std::sig_atomic_t was_interrupted = 0;

/// The last line of a file that is not blank.
std::string last_line(const std::filesystem::path &path) {
    std::ifstream file(path);
    std::string last;
    for (std::string line; std::getline(file, line);) {
        if (line.find_first_not_of(" \t\r") != line.npos) {
            last = line.substr(line.find_first_not_of(" \t"));
        }
    }
    return last.substr(0, 300);
}

}  // namespace

void watch_for_interrupts() {
    struct sigaction action = {};
    action.sa_handler = [](int) { was_interrupted = 1; };
    action.sa_flags = SA_RESETHAND;
    sigaction(SIGINT, &action, nullptr);
    sigaction(SIGTERM, &action, nullptr);
}

bool is_interrupted() { return was_interrupted != 0; }

void stop_if_interrupted() {
    if (is_interrupted()) {
        throw Interrupted();
    }
}

std::string quote(const std::string &word) {
    std::string text = "'";
    for (const char c : word) {
        text += c == '\'' ? std::string("'\\''") : std::string(1, c);
    }
    return text + "'";
}

std::string join(const std::vector<std::string> &words) {
    std::string text;
    for (const std::string &word : words) {
        text += text.empty() ? "" : " ";
        text += quote(word);
    }
    return text;
}

pid_t start(const std::string &command, const std::filesystem::path &log) {
    const pid_t child = fork();
    if (child < 0) {
        throw std::system_error(errno, std::generic_category(), "can't start a process");
    }
    if (child == 0) {
        setpgid(0, 0);
        const sched_param ordinary = {};
        sched_setscheduler(0, SCHED_OTHER, &ordinary);
        const int output = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
        const int input = open("/dev/null", O_RDONLY);
        dup2(input, 0);
        dup2(output, 1);
        dup2(output, 2);
        execl("/bin/sh", "sh", "-c", command.c_str(), static_cast<char *>(nullptr));
        _exit(127);
    }
    setpgid(child, child);  // parent and child both do this, because either may come first
    return child;
}

void end(pid_t child) {
    kill(-child, SIGKILL);
    waitpid(child, nullptr, 0);
}

std::string wait_for(pid_t child, double until, const std::filesystem::path &log) {
    int status = 0;
    for (;;) {
        const pid_t ended = waitpid(child, &status, WNOHANG);
        if (ended == child) {
            break;
        }
        if (now() > until) {
            end(child);
            return "took too long";
        }
        if (is_interrupted()) {
            end(child);
            throw Interrupted();
        }
        usleep(2000);
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        return "";
    }
    std::error_code ignored;
    if (std::filesystem::space(log.parent_path(), ignored).available < 1 << 16) {
        return "failed: the disk is full";
    }
    const std::string why = last_line(log);
    return "failed: " + (why.empty() ? "status " + std::to_string(status) : why);
}

}  // namespace halyard::bench

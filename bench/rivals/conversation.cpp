#include "rivals/conversation.h"

#include "measure/timing.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

extern char **environ;

namespace halyard::bench {

namespace {

void close_and_forget(int &file) {
    if (file >= 0) {
        close(file);
    }
    file = -1;
}

/// Waits until a file can be read or written; Lost after the deadline.
void wait_for(int file, short event, double deadline) {
    pollfd entry = {file, event, 0};
    const double left = deadline - now();
    const int ready = left <= 0 ? 0 : poll(&entry, 1, static_cast<int>(left * 1000) + 1);
    if (ready == 0) {
        throw Conversation::Lost("did not answer in time");
    }
}

}  // namespace

Conversation::Conversation(std::vector<std::string> command) {
    std::signal(SIGPIPE, SIG_IGN);  // write() then fails where the program has ended
    int to[2], from[2];
    if (pipe2(to, O_CLOEXEC) != 0) {
        throw std::runtime_error("can't be talked to");
    }
    if (pipe2(from, O_CLOEXEC) != 0) {
        close(to[0]);
        close(to[1]);
        throw std::runtime_error("can't be talked to");
    }
    log_ = memfd_create("halyard_conversation_log", MFD_CLOEXEC);
    to_ = to[1];
    from_ = from[0];
    fcntl(to_, F_SETFL, O_NONBLOCK);
    std::vector<char *> argv;
    for (std::string &word : command) {
        argv.push_back(word.data());
    }
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, to[0], 0);
    posix_spawn_file_actions_adddup2(&actions, from[1], 1);
    posix_spawn_file_actions_adddup2(&actions, log_, 2);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);  // stop() ends the whole group
    const int failed = posix_spawnp(&child_, argv[0], &actions, &attributes, argv.data(), environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    close(to[0]);
    close(from[1]);
    if (failed != 0) {
        child_ = -1;
        stop();
        throw std::runtime_error("can't be started: " + std::string(std::strerror(failed)));
    }
}

Conversation::~Conversation() { stop(); }

void Conversation::stop() {
    close_and_forget(to_);
    close_and_forget(from_);
    close_and_forget(log_);
    if (child_ > 0) {
        kill(-child_, SIGKILL);
        while (waitpid(child_, nullptr, 0) < 0 && errno == EINTR) {
        }
        child_ = -1;
    }
}

std::string Conversation::last_words() const {
    char text[4096];
    const off_t size = log_ < 0 ? 0 : lseek(log_, 0, SEEK_END);
    const off_t first = std::max<off_t>(0, size - static_cast<off_t>(sizeof(text)));
    const ssize_t n = size <= 0 ? 0 : pread(log_, text, sizeof(text), first);
    std::string words(text, n > 0 ? static_cast<std::size_t>(n) : 0);
    words.erase(std::find_if(words.rbegin(), words.rend(), [](char c) { return c != '\n'; }).base(), words.end());
    words = words.substr(words.rfind('\n') + 1);
    return words.substr(0, 200);
}

std::string Conversation::ask(const std::string &request, double seconds_limit) {
    const double deadline = now() + seconds_limit;
    const std::string line = request + "\n";
    for (std::size_t done = 0; done < line.size();) {
        wait_for(to_, POLLOUT, deadline);
        const ssize_t n = write(to_, line.data() + done, line.size() - done);
        if (n < 0 && errno != EAGAIN && errno != EINTR) {
            throw Lost("ended");
        }
        done += n > 0 ? static_cast<std::size_t>(n) : 0;
    }
    while (unread_.find('\n') == unread_.npos) {
        wait_for(from_, POLLIN, deadline);
        char text[4096];
        const ssize_t n = read(from_, text, sizeof(text));
        if (n == 0 || (n < 0 && errno != EINTR)) {
            throw Lost("ended");
        }
        unread_.append(text, n > 0 ? static_cast<std::size_t>(n) : 0);
    }
    const std::string answer = unread_.substr(0, unread_.find('\n'));
    unread_.erase(0, answer.size() + 1);
    return answer;
}

}  // namespace halyard::bench

#include "peers.h"

#include "measure.h"

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
#include <stdexcept>
#include <utility>

extern char **environ;

namespace halyard::bench {

namespace {

using nlohmann::json;

/// The process can't be talked to any more.
struct Lost : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// The process says that it could not do this, and goes on.
struct Declined : std::runtime_error {
    using std::runtime_error::runtime_error;
};

constexpr int n_failures_allowed = 3;

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
        throw Lost("did not answer in time");
    }
}

}  // namespace

Peers::Peers(std::vector<std::string> command, const Arena &arena, double seconds_limit)
    : command_(std::move(command)), arena_(arena), seconds_limit_(seconds_limit) {
    std::signal(SIGPIPE, SIG_IGN);  // a process that is gone shows when it is written to
    try {
        start();
        list_ = ask({{"do", "list"}}, 10 * seconds_limit_);
        list_["refused"] = json::array();
        for (const char *kind : {"peers", "absent"}) {
            for (const json &peer : list_.at(kind)) {
                peer.at("name").get<std::string>();
                peer.at(kind == std::string("peers") ? "version" : "why").get<std::string>();
            }
        }
    } catch (const std::exception &error) {
        const std::string words = last_words();
        stop();
        throw std::runtime_error("the peers' process " + command_.back() + " is of no use: it " + error.what() +
                                 (words.empty() ? "" : " (" + words + ")"));
    }
}

Peers::~Peers() { stop(); }

void Peers::start() {
    int to[2], from[2];
    if (pipe2(to, O_CLOEXEC) != 0) {
        throw std::runtime_error("can't be talked to");
    }
    if (pipe2(from, O_CLOEXEC) != 0) {
        close(to[0]);
        close(to[1]);
        throw std::runtime_error("can't be talked to");
    }
    log_ = memfd_create("halyard_peers_log", MFD_CLOEXEC);
    to_ = to[1];
    from_ = from[0];
    fcntl(to_, F_SETFL, O_NONBLOCK);
    std::vector<std::string> words = command_;
    words.push_back(std::to_string(arena_.file()));
    words.push_back(std::to_string(arena_.n_bytes()));
    std::vector<char *> argv;
    for (std::string &word : words) {
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
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);  // so that what it starts ends with it
    const int failed = posix_spawnp(&child_, argv[0], &actions, &attributes, argv.data(), environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    close(to[0]);
    close(from[1]);
    if (failed != 0) {
        child_ = -1;
        throw std::runtime_error("can't be started: " + std::string(std::strerror(failed)));
    }
}

void Peers::stop() {
    close_and_forget(to_);
    close_and_forget(from_);
    close_and_forget(log_);
    unread_.clear();
    if (child_ > 0) {
        kill(-child_, SIGKILL);
        while (waitpid(child_, nullptr, 0) < 0 && errno == EINTR) {
        }
        child_ = -1;
    }
}

void Peers::restart() {
    stop();
    start();
    prepared_ = nullptr;
}

std::string Peers::last_words() {
    char text[4096];
    const off_t size = log_ < 0 ? 0 : lseek(log_, 0, SEEK_END);
    const off_t first = std::max<off_t>(0, size - static_cast<off_t>(sizeof(text)));
    const ssize_t n = size <= 0 ? 0 : pread(log_, text, sizeof(text), first);
    std::string words(text, n > 0 ? static_cast<std::size_t>(n) : 0);
    words.erase(std::find_if(words.rbegin(), words.rend(), [](char c) { return c != '\n'; }).base(), words.end());
    words = words.substr(words.rfind('\n') + 1);
    return words.substr(0, 200);
}

/// Sends a line and returns the line that comes back.
json Peers::ask(const json &request, double seconds_limit) {
    const double deadline = now() + seconds_limit;
    const std::string line = request.dump() + "\n";
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
    const json parsed = json::parse(answer, nullptr, false);
    if (!parsed.is_object()) {
        throw Lost("answered nonsense: " + answer.substr(0, 60));
    }
    if (parsed.contains("error")) {
        throw Declined(parsed["error"].is_string() ? parsed["error"].get<std::string>() : "an error without a word");
    }
    return parsed;
}

void Peers::give_up(const std::string &peer, const std::string &why) {
    const std::string words = last_words();
    list_["absent"].push_back({{"name", peer}, {"why", why + (words.empty() ? "" : " (" + words + ")")}});
    lost_.push_back(peer);
}

/// Asks about one peer. Where the process is lost it starts again and makes the others ready for the same work.
json Peers::ask_peer(const json &request) {
    const std::string peer = request["peer"];
    try {
        return ask(request, seconds_limit_);
    } catch (const Lost &lost) {
        give_up(peer, lost.what());
    }
    for (; n_failures_ < n_failures_allowed; n_failures_++) {
        try {
            stop();
            start();
            if (prepared_.is_object()) {
                prepared_["without"] = lost_;
                ask(prepared_, 10 * seconds_limit_);
            }
            break;
        } catch (const std::exception &) {
        }
    }
    throw Lost("was lost");
}

std::vector<Peers::Ready> Peers::prepare(const Cell &cell) {
    const Work &work = cell.work();
    if (work.model.in != work.model.out || n_failures_ == n_failures_allowed) {
        return {};
    }
    json slots = json::array();
    for (const Cell::Slot &slot : cell.slots()) {
        slots.push_back({slot.x, slot.y});
    }
    prepared_ = {{"do", "prepare"},
                 {"dtype", name_of(work.type)},
                 {"pairing", name_of(work.model.in)},
                 {"in_place", work.in_place},
                 {"tokens", work.n_tokens},
                 {"heads", work.model.n_heads()},
                 {"head_dim", work.model.head_dim},
                 {"rotary_dim", work.model.rotary_dim},
                 {"base", rope_base},
                 {"threads", work.n_threads},
                 {"positions", cell.positions_offset()},
                 {"max_position", cell.last_position() + 1},
                 {"slots", std::move(slots)},
                 {"without", lost_}};
    std::vector<Ready> ready;
    try {
        const json answer = ask(prepared_, 10 * seconds_limit_);
        for (const json &peer : answer.at("ready")) {
            const std::string name = peer.at("peer");
            if (std::find(lost_.begin(), lost_.end(), name) == lost_.end()) {
                ready.push_back({name, peer.at("form")});
            }
        }
        for (const json &peer : answer.at("refused")) {
            const json known = {{"name", peer.at("peer").get<std::string>()},
                                {"why", peer.at("why").get<std::string>()}};
            json &refused = list_["refused"];
            if (std::find(refused.begin(), refused.end(), known) == refused.end()) {
                refused.push_back(known);
            }
        }
        return ready;
    } catch (const Declined &) {
        return {};
    } catch (const std::exception &error) {
        if (++n_failures_ == n_failures_allowed) {
            give_up("every peer",
                    std::string("making ready failed three times; the last time the process ") + error.what());
            stop();
        } else {
            restart();
        }
        return {};
    }
}

/// One number of the answer about a peer; none where it is lost or declines.
std::optional<double> Peers::ask_number(const char *what, const std::string &peer, long n_calls, const char *key) {
    if (child_ < 0 || std::find(lost_.begin(), lost_.end(), peer) != lost_.end()) {
        return std::nullopt;
    }
    try {
        const json answer = ask_peer({{"do", what}, {"peer", peer}, {"times", n_calls}});
        if (answer.contains(key) && answer[key].is_number() && answer[key] >= 0) {
            return answer[key].get<double>();
        }
        give_up(peer, std::string("answered without ") + key);
    } catch (const std::runtime_error &) {
    }
    return std::nullopt;
}

double Peers::run(const std::string &peer, long n_calls) {
    return ask_number("run", peer, n_calls, "seconds").value_or(-1.0);
}

double Peers::overhead(const std::string &peer, long n_calls) {
    return ask_number("overhead", peer, n_calls, "seconds").value_or(-1.0);
}

std::optional<std::size_t> Peers::result(const std::string &peer) {
    const auto at = ask_number("result", peer, 1, "at");
    return at && *at < static_cast<double>(arena_.n_bytes()) ? std::optional(static_cast<std::size_t>(*at))
                                                             : std::nullopt;
}

}  // namespace halyard::bench

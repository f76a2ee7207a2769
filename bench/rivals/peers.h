// Other libraries, which run in a Python process on the same memory and answer a line for a line. What is asked and
// answered is said in peers.py.
#pragma once

#include "measure/cell.h"
#include "rivals/conversation.h"

#include <nlohmann/json.hpp>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace halyard::bench {

class Peers {
public:
    /// What a prepared peer does, in its own words.
    struct Ready {
        std::string name, form;
    };

    /// Starts `command… <file> <bytes>`. An answer may take seconds_limit; making ready may take ten times that.
    /// Throws std::runtime_error where even the list of peers cannot be had.
    Peers(std::vector<std::string> command, const Arena &arena, double seconds_limit);
    Peers(const Peers &) = delete;
    Peers &operator=(const Peers &) = delete;

    /// {"peers": [...], "absent": [...], "refused": [...]}: the versions of those that there are, why others are not
    /// there, or not any more, and why some could not do some of the works.
    const nlohmann::json &list() const { return list_; }

    /// Prepares those that can do a cell's work, and have not failed before.
    std::vector<Ready> prepare(const Cell &cell);

    // Of a prepared peer. One that crashes, hangs or answers nonsense becomes absent, and the process starts again
    // without it.
    /// Seconds that n calls took; negative where they failed.
    double run(const std::string &peer, long n_calls);
    /// The same for the smallest tensor that it takes.
    double overhead(const std::string &peer, long n_calls);
    /// Where in the arena its result for slot 0 lies.
    std::optional<std::size_t> result(const std::string &peer);

    /// Starts the process anew, on the CPUs that this thread has now.
    void restart();

private:
    void start();
    nlohmann::json ask(const nlohmann::json &request, double seconds_limit);
    nlohmann::json ask_peer(const nlohmann::json &request);
    std::optional<double> ask_number(const char *what, const std::string &peer, long n_calls, const char *key);
    void give_up(const std::string &peer, const std::string &why);

    std::vector<std::string> command_;
    const Arena &arena_;
    double seconds_limit_;
    nlohmann::json list_, prepared_;
    std::vector<std::string> lost_;
    int n_failures_ = 0;  // of making ready, which name no culprit
    std::unique_ptr<Conversation> process_;
};

}  // namespace halyard::bench

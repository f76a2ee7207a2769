// Other libraries. They run in a Python process on the same memory, which answers each line with a line; peers.py says
// what is asked and answered.
#pragma once

#include "measure/placed_work.h"
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
    /// A prepared peer, and in its own words what it does.
    struct Ready {
        std::string name, form;
    };

    /// Starts `command… <file> <bytes>`. An answer may take seconds_limit, and preparing ten times that. Throws
    /// std::runtime_error where the process cannot even list its peers.
    Peers(std::vector<std::string> command, const Arena &arena, double seconds_limit);
    Peers(const Peers &) = delete;
    Peers &operator=(const Peers &) = delete;

    /// {"peers": [...], "absent": [...], "refused": [...]}: the versions of the peers that are there, why others are
    /// not there or no longer there, and why some could not do some of the works.
    const nlohmann::json &list() const { return list_; }

    /// Prepares the peers that can do a work and have not failed before.
    std::vector<Ready> prepare(const PlacedWork &placed);
    /// The same for a request to prepare that is made elsewhere.
    std::vector<Ready> prepare(nlohmann::json request);

    // The following need a prepared peer. One that crashes, hangs or answers nonsense becomes absent, and the process
    // starts again without it.

    /// The seconds that n calls took; negative where they failed.
    double run(const std::string &peer, long n_calls);
    /// The same for the smallest tensor that the peer takes.
    double overhead(const std::string &peer, long n_calls);
    /// Where in the arena the peer's result for slot 0 lies.
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
    int n_failures_ = 0;  // to prepare, where no single peer is known to be at fault
    std::unique_ptr<Conversation> process_;
};

}  // namespace halyard::bench

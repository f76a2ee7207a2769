#include "rivals/peers.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace halyard::bench {

namespace {

using nlohmann::json;

/// The process could not do something, says so, and goes on.
struct Declined : std::runtime_error {
    using std::runtime_error::runtime_error;
};

constexpr int n_failures_allowed = 3;

}  // namespace

Peers::Peers(std::vector<std::string> command, const Arena &arena, double seconds_limit)
    : command_(std::move(command)), arena_(arena), seconds_limit_(seconds_limit) {
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
        const std::string words = process_ == nullptr ? "" : process_->last_words();
        throw std::runtime_error("the peers' process " + command_.back() + " is of no use: it " + error.what() +
                                 (words.empty() ? "" : " (" + words + ")"));
    }
}

void Peers::start() {
    std::vector<std::string> command = command_;
    command.push_back(std::to_string(arena_.file()));
    command.push_back(std::to_string(arena_.n_bytes()));
    process_.reset();
    process_ = std::make_unique<Conversation>(std::move(command));
}

void Peers::restart() {
    start();
    prepared_ = nullptr;
}

json Peers::ask(const json &request, double seconds_limit) {
    const std::string answer = process_->ask(request.dump(), seconds_limit);
    const json parsed = json::parse(answer, nullptr, false);
    if (!parsed.is_object()) {
        throw Conversation::Lost("answered nonsense: " + answer.substr(0, 60));
    }
    if (parsed.contains("error")) {
        throw Declined(parsed["error"].is_string() ? parsed["error"].get<std::string>() : "an error without a word");
    }
    return parsed;
}

void Peers::give_up(const std::string &peer, const std::string &why) {
    const std::string words = process_->last_words();
    list_["absent"].push_back({{"name", peer}, {"why", why + (words.empty() ? "" : " (" + words + ")")}});
    lost_.push_back(peer);
}

/// Asks one peer. Where the process is lost, starts it again and prepares the other peers for the same work.
json Peers::ask_peer(const json &request) {
    const std::string peer = request["peer"];
    try {
        return ask(request, seconds_limit_);
    } catch (const Conversation::Lost &lost) {
        give_up(peer, lost.what());
    }
    for (; n_failures_ < n_failures_allowed; n_failures_++) {
        try {
            start();
            if (prepared_.is_object()) {
                prepared_["without"] = lost_;
                ask(prepared_, 10 * seconds_limit_);
            }
            break;
        } catch (const std::exception &) {
        }
    }
    throw Conversation::Lost("was lost");
}

std::vector<Peers::Ready> Peers::prepare(const PlacedWork &placed) {
    const Work &work = placed.work();
    if (work.model.in != work.model.out) {
        return {};
    }
    json slots = json::array();
    for (const PlacedWork::Slot &slot : placed.slots()) {
        slots.push_back({slot.x, slot.y});
    }
    return prepare({{"do", "prepare"},
                    {"dtype", name_of(work.type)},
                    {"pairing", name_of(work.model.in)},
                    {"in_place", work.in_place},
                    {"tokens", work.n_tokens},
                    {"heads", work.model.n_heads()},
                    {"head_dim", work.model.head_dim},
                    {"rotary_dim", work.model.rotary_dim},
                    {"base", rope_base},
                    {"threads", work.n_threads},
                    {"positions", placed.positions_offset()},
                    {"max_position", placed.last_position() + 1},
                    {"slots", std::move(slots)}});
}

std::vector<Peers::Ready> Peers::prepare(json request) {
    if (n_failures_ == n_failures_allowed) {
        return {};
    }
    prepared_ = std::move(request);
    prepared_["without"] = lost_;
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
            process_.reset();
        } else {
            restart();
        }
        return {};
    }
}

/// One number of a peer's answer; nothing where the peer is lost or declines.
std::optional<double> Peers::ask_number(const char *what, const std::string &peer, long n_calls, const char *key) {
    if (process_ == nullptr || std::find(lost_.begin(), lost_.end(), peer) != lost_.end()) {
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

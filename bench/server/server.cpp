// halyard_bench_server: makes works ready and times calls of them, as the driver (bench/*.py) asks. It reads JSON
// objects from standard input, one a line, and answers each with a line; standard error is the log.
//   {"do":"describe"}                -> {"compiler","halide","loops","targets":[{"name","active","supported"}...]}
//   {"do":"reserve","works":[...]}   -> {"file","bytes"}: memory that is enough for each of them, and its file here
//   {"do":"prepare","kind":"rotation|road|shift", "target", and what the work is: work.cpp reads it}
//       -> {"subjects":[{"name","kind","threads","max_error","wrong"}...],"target", and what else there is}
//      Each result is compared with the formula first. Where "with_peers" is true, "places" says where peers find what
//      they need.
//   {"do":"round","calls":[[SUBJECT,n]...]}  -> {"seconds":[...]}: n calls of each, in this order
//   {"do":"reset"}                   -> {}: inputs are as they were, outputs are poisoned
//   {"do":"check"}                   -> {"max_error","wrong"} of what a peer has left in the first output
//   variants.h has what the tuner asks beside these.
//   What fails is answered with {"error":"one sentence"}.
#include "server/loops.h"
#include "server/prepared.h"
#include "server/serve.h"
#include "server/variants.h"

#include <algorithm>
#include <iostream>
#include <optional>

namespace {

using namespace halyard;
using namespace halyard::bench;
using nlohmann::json;

class Server {
public:
    json answer(const json &request) {
        static const std::map<std::string, json (Server::*)(const json &)> answers = {
            {"describe", &Server::describe}, {"reserve", &Server::reserve}, {"prepare", &Server::prepare},
            {"round", &Server::round},       {"reset", &Server::reset},     {"check", &Server::check},
            {"open", &Server::open},         {"load", &Server::load},       {"prove", &Server::prove},
            {"choose", &Server::choose}};
        const std::string what = request.at("do");
        const auto found = answers.find(what);
        if (found == answers.end()) {
            throw std::runtime_error("can't " + what);
        }
        return (this->*found->second)(request);
    }

private:
    std::optional<Arena> arena_;
    std::map<int, pool> pools_;
    std::unique_ptr<Prepared> prepared_;
    std::unique_ptr<Variants> variants_;
    std::vector<Subject> subjects_;

    json describe(const json &) {
        json listed = json::array();
        for (const halyard_target_info &target : targets()) {
            listed.push_back(
                {{"name", target.name}, {"active", target.active != 0}, {"supported", target.supported != 0}});
        }
        std::string compilers;
        for (const auto &[name, loops] : all_loops) {
            compilers += (compilers.empty() ? "" : ", ") + (loops ? loops->compiler : std::string("no ") + name);
        }
        return {{"compiler", HALYARD_COMPILER}, {"halide", HALYARD_HALIDE}, {"loops", compilers}, {"targets", listed}};
    }

    json reserve(const json &request) {
        std::size_t n_bytes = 0;
        for (const json &work : request.at("works")) {
            n_bytes = std::max(n_bytes, Placed::bytes_needed(read_work(work)));
        }
        subjects_.clear();
        prepared_.reset();
        arena_.emplace(n_bytes);
        return {{"file", arena_->file()}, {"bytes", n_bytes}};
    }

    json prepare(const json &request) {
        if (!arena_ || Placed::bytes_needed(read_work(request)) > arena_->n_bytes()) {
            throw std::runtime_error("too little memory is reserved");
        }
        subjects_.clear();
        prepared_.reset();
        prepared_ = std::make_unique<Prepared>(request, Site{*arena_, pools_});
        subjects_ = std::move(prepared_->subjects);
        json answer = prepared_->about;
        answer["subjects"] = list_subjects(subjects_);
        return answer;
    }

    json round(const json &request) { return time_round(subjects_, request); }

    Prepared &prepared() { return prepared_ != nullptr ? *prepared_ : throw std::runtime_error("nothing is ready"); }
    json reset(const json &) {
        prepared().reset();
        return json::object();
    }
    json check(const json &) { return prepared().check(); }

    Variants &variants() { return variants_ != nullptr ? *variants_ : throw std::runtime_error("no kernel is open"); }
    json open(const json &request) {
        subjects_.clear();
        variants_.reset();  // its memory goes first
        variants_ = std::make_unique<Variants>(request);
        return json::object();
    }
    json load(const json &request) { return variants().load(request); }
    json prove(const json &request) { return variants().prove(request); }
    json choose(const json &request) {
        subjects_ = variants().choose(request);
        return json::object();
    }
};

}  // namespace

int main(int argc, char **) {
    if (argc > 1) {
        std::cerr << "halyard_bench_server is asked on standard input, by ./run bench\n";
        return 2;
    }
    Server server;
    serve([&](const json &request) { return server.answer(request); });
    return 0;
}

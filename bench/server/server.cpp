// halyard_bench_server: makes works ready and times calls of them, as the driver (bench/*.py) asks. It reads JSON
// objects from standard input, one a line, and answers each with a line; standard error is the log.
//   {"do":"describe"}                -> {"compiler","halide","loops","targets":[{"name","active","supported"}...],
//                                        "road_models":[NAMES]}
//   {"do":"reserve","works":[...]}   -> {"file","bytes"}: memory that is enough for each of them, and its file here
//   {"do":"prepare","kind":"rotation|road|shift", "target", and what the work is}
//       -> {"subjects":[{"name","kind","threads","max_error","wrong"}...],"target","peers", and what else there is}
//      Each result is compared with the formula first. "peers" is what peers are to be asked, where "with_peers" is
//      true.
//   {"do":"round","calls":[[SUBJECT,n]...]}  -> {"seconds":[...]}: n calls of each, in this order
//   {"do":"reset"}                   -> {}: inputs are as they were, outputs are poisoned
//   {"do":"check","at":OFFSET}       -> {"max_error","wrong"} of what a peer has left there
//   variants.h has what the tuner asks beside these.
//   What fails is answered with {"error":"one sentence"}.
#include "rivals/loops.h"
#include "server/prepared_road.h"
#include "server/prepared_rotation.h"
#include "server/prepared_shift.h"
#include "server/serve.h"
#include "server/variants.h"

#include <algorithm>
#include <iostream>
#include <optional>

namespace {

using namespace halyard;
using namespace halyard::bench;
using nlohmann::json;

json describe_build() {
    json listed = json::array();
    for (const halyard_target_info &target : targets()) {
        listed.push_back({{"name", target.name}, {"active", target.active != 0}, {"supported", target.supported != 0}});
    }
    json models = json::array();
    for (const RoadModel &model : road_models()) {
        models.push_back(model.name);
    }
    std::string loops;
#if defined(HALYARD_LOOPS_GCC)
    loops += halyard_loops_gcc.compiler;
#else
    loops += "no gcc";
#endif
#if defined(HALYARD_LOOPS_CLANG)
    loops += std::string(", ") + halyard_loops_clang.compiler;
#else
    loops += ", no clang";
#endif
    return {{"compiler", HALYARD_COMPILER},
            {"halide", HALYARD_HALIDE},
            {"loops", loops},
            {"targets", listed},
            {"road_models", models}};
}

std::size_t bytes_needed(const json &work) {
    const std::string kind = work.at("kind");
    return kind == "road"    ? PlacedRoad::bytes_needed(read_road(work))
           : kind == "shift" ? static_cast<std::size_t>(read_shift(work).n_bytes())
                             : PlacedWork::bytes_needed(read_work(work));
}

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

    json describe(const json &) { return describe_build(); }

    json reserve(const json &request) {
        std::size_t n_bytes = 0;
        for (const json &work : request.at("works")) {
            n_bytes = std::max(n_bytes, bytes_needed(work));
        }
        subjects_.clear();
        prepared_.reset();
        arena_.emplace(n_bytes);
        return {{"file", arena_->file()}, {"bytes", n_bytes}};
    }

    json prepare(const json &request) {
        if (!arena_ || bytes_needed(request) > arena_->n_bytes()) {
            throw std::runtime_error("too little memory is reserved");
        }
        const Site site = {*arena_, pools_};
        const std::string kind = request.at("kind");
        subjects_.clear();
        prepared_.reset();
        prepared_ = kind == "road"    ? prepare_road(request, site)
                    : kind == "shift" ? prepare_shift(request, site)
                                      : prepare_rotation(request, site);
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
    json check(const json &request) { return prepared().check(request.at("at")); }

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

// halyard_bench_server: makes works ready and times calls of them, as the driver (bench/*.py) asks. It reads JSON
// objects from standard input, one a line, and answers each with a line; standard error is the log.
//   {"do":"describe"}                -> {"compiler","halide","loops","targets":[{"name","active","supported"}...]}
//   {"do":"reserve","works":[...]}   -> {"file","bytes"}: memory that is enough for each of them, and its file here
//   {"do":"prepare","kind":"rotation|road|shift", "target", and what the work is: work.cpp reads it}
//       -> {"subjects":[{"name","kind","max_error","wrong"}...],"target", and what else there is}
//      Each result is compared with the formula first. Where "with_peers" is true, "places" says where peers find what
//      they need.
//   {"do":"round","calls":[[SUBJECT,n]...]}  -> {"seconds":[...]}: n calls of each, in this order
//   {"do":"reset"}                   -> {}: inputs are as they were, outputs are poisoned
//   {"do":"check"}                   -> {"max_error","wrong"} of what a peer has left in the first output
//   {"do":"angles","angles","reference","last"}  -> {"max_error"} of the cos and sin that a source makes
//   variants.h has what the tuner asks beside these.
//   What fails is answered with {"error":"one sentence"}.
#include "checks/oracle.h"
#include "server/loops.h"
#include "server/prepared.h"
#include "server/serve.h"
#include "server/variants.h"

#include <algorithm>
#include <cmath>
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
            {"angles", &Server::angles},     {"open", &Server::open},       {"load", &Server::load},
            {"prove", &Server::prove},       {"choose", &Server::choose}};
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

    /// At 64 positions up to the last, beside long double.
    json angles(const json &request) {
        constexpr std::int64_t n_tokens = 64, rotary_dim = 128, n_pairs = rotary_dim / 2;
        constexpr double base = 500000.0;
        const std::int32_t last = request.at("last");
        auto desc = describe_angles(read_angles(request.at("angles")), last - (n_tokens - 1), last);
        desc.reference = request.at("reference");
        const angle_source source(frequencies::from_base(base, rotary_dim), desc);
        const plan maker(plan_desc(rotary_dim, {describe_tensor(dtype::f32, rotary_dim, pairing::half)}));
        const auto start = consecutive_positions(&desc.first, 1);
        std::vector<float> rows(n_tokens * rotary_dim);
        make_rows(maker, source, &start, 1, n_tokens, rows.data(), static_cast<std::int64_t>(rows.size()));
        const auto inv_freq = oracle::inv_freq_of(base, rotary_dim);
        double worst = 0.0;
        for (std::size_t i = 0; i < rows.size() / 2; i++) {
            const std::size_t t = i / n_pairs, k = i % n_pairs;
            const long double theta =
                inv_freq[k] * (static_cast<long double>(desc.first) + static_cast<long double>(t));
            const float *const cos = &rows[t * rotary_dim + k], *const sin = cos + n_pairs;
            worst = std::max({worst, static_cast<double>(std::fabs(*cos - std::cos(theta))),
                              static_cast<double>(std::fabs(*sin - std::sin(theta)))});
        }
        return {{"max_error", worst}};
    }

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

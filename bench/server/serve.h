// What a server times, and how it is asked: a JSON object in each line of standard input, and a line on standard output
// for each answer.
#pragma once

#include <nlohmann/json.hpp>

#include <chrono>
#include <functional>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

namespace halyard::bench {

/// Seconds of a clock that never goes back.
inline double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Something that is timed: calls of it in this process, as many as are asked for.
struct Subject {
    std::string name, kind;
    std::function<double(long n_calls)> seconds_for;
    double max_error = 0.0;
    bool wrong = false;
};

/// The loop is made for the call, so that a call of some nanoseconds is not timed with one by a pointer.
template <typename Call>
Subject make_subject(std::string name, std::string kind, Call call) {
    return {std::move(name), std::move(kind), [call = std::move(call)](long n_calls) mutable {
                const double start = now();
                for (long i = 0; i < n_calls; i++) {
                    call();
                }
                return now() - start;
            }};
}

/// {"seconds":[...]} of {"calls":[[SUBJECT,n]...]}: n calls of each, in this order.
inline nlohmann::json time_round(const std::vector<Subject> &subjects, const nlohmann::json &request) {
    nlohmann::json seconds = nlohmann::json::array();
    for (const nlohmann::json &call : request.at("calls")) {
        seconds.push_back(subjects.at(call.at(0)).seconds_for(call.at(1)));
    }
    return {{"seconds", seconds}};
}

/// What a driver has to know of the subjects.
inline nlohmann::json list_subjects(const std::vector<Subject> &subjects) {
    nlohmann::json listed = nlohmann::json::array();
    for (const Subject &subject : subjects) {
        listed.push_back({{"name", subject.name},
                          {"kind", subject.kind},
                          {"max_error", subject.max_error},
                          {"wrong", subject.wrong}});
    }
    return listed;
}

/// Answers until the input ends. What fails is answered with {"error":"one sentence"}.
template <typename Answer>
void serve(const Answer &answer) {
    for (std::string line; std::getline(std::cin, line);) {
        nlohmann::json said;
        try {
            said = answer(nlohmann::json::parse(line));
        } catch (const std::exception &error) {
            said = {{"error", error.what()}};
        }
        std::cout << said.dump() << std::endl;
    }
}

}  // namespace halyard::bench

// How a server is asked: a JSON object in each line of standard input, and a line on standard output for each answer.
#pragma once

#include "measure/subject.h"

#include <nlohmann/json.hpp>

#include <iostream>
#include <string>
#include <vector>

namespace halyard::bench {

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
                          {"threads", subject.n_threads},
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

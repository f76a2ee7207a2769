// How the tool says that a well-formed request can't be carried out.
#pragma once

#include <stdexcept>
#include <string>

namespace halyard::tool {

/// what() is one sentence that names the file or option; the exit status is 1. (Wrong usage is a CLI::ParseError, with
/// exit status 2.)
class Refusal : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

/// Words as a sentence lists them: "f32, f16 or bf16".
template <typename Words>
std::string join(const Words &words, const std::string &between = ", ", const std::string &before_last = " or ") {
    std::string text;
    for (auto word = words.begin(); word != words.end(); ++word) {
        text += (word == words.begin() ? "" : word + 1 == words.end() ? before_last : between) + std::string(*word);
    }
    return text;
}

}  // namespace halyard::tool

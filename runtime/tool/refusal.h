// How the tool says that a well-formed request can't be carried out.
#pragma once

#include <stdexcept>

namespace halyard::tool {

/// what() is one sentence that names the file or option; the exit status is 1. (Wrong usage is a CLI::ParseError, with
/// exit status 2.)
class Refusal : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

}  // namespace halyard::tool

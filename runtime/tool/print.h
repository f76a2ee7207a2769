// Text for the standard output.
#pragma once

#include <string>

namespace halyard::tool {

/// Writes all of it; throws Refusal where it can't, a full disk for instance.
void print(const std::string &text);

}  // namespace halyard::tool

// What the tool says to people: the library's sentences in the words of the command line, and what was perhaps meant.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace halyard::tool {

/// The library speaks of the fields and the constants of its API. This puts the options in their place: what the tool's
/// users typed.
std::string say_options(std::string sentence);

/// The one of `known` that `word` is a slip of, or the beginning; "" where none is near.
std::string find_nearest(std::string_view word, const std::vector<std::string> &known);

}  // namespace halyard::tool

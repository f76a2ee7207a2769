// Where the tests' data and the tool are. places.cpp alone is told so when it is compiled, so that all else compiles
// the same in every checkout, and a compiler's cache serves them all.
#pragma once

#include <string>

namespace places {

std::string golden();
std::string configs();
std::string models_page();
std::string tool();
std::string tool_launcher();  // what starts a program of another machine, or nothing

}  // namespace places

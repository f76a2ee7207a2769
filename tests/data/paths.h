// The paths of the tests' data and of the tool. Only paths.cpp is compiled with these paths: all other files compile
// the same in every checkout, so that a compiler cache can serve them.
#pragma once

#include <string>

namespace places {

std::string golden();
std::string configs();
std::string models_page();
std::string tool();
std::string tool_launcher();  // the emulator that starts the tool, or empty

}  // namespace places

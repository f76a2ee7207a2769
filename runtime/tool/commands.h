// The sub-commands. Each function adds a sub-command and its options to `app`. Parsing the command line runs the
// sub-command. It throws CLI::ParseError for wrong usage, and Refusal or halyard::error if the request can't be carried
// out, before anything has been written.
#pragma once

#include <CLI/CLI.hpp>

namespace halyard::tool {

void add_list(CLI::App &app);
void add_explain(CLI::App &app);
void add_rotate(CLI::App &app);
void add_angles(CLI::App &app);
void add_frequencies(CLI::App &app);

}  // namespace halyard::tool

// The sub-commands. Each teaches `app` its options. Parsing, which ends by doing what the one that is given says,
// throws a CLI::ParseError for wrong usage, and Refusal or halyard::error where the request can't be carried out:
// before anything has been written.
#pragma once

#include <CLI/CLI.hpp>

namespace halyard::tool {

void add_list(CLI::App &app);
void add_explain(CLI::App &app);
void add_rotate(CLI::App &app);
void add_angles(CLI::App &app);
void add_frequencies(CLI::App &app);

}  // namespace halyard::tool

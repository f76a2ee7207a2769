// What each sub-command does. Each throws Refusal or halyard::error where the request can't be carried out, before it
// has written anything.
#pragma once

#include "tool/options.h"

namespace halyard::tool {

void list(const ListOptions &options);
void explain(const ExplainOptions &options);
void rotate(const RotateOptions &options);
void write_angles(const AnglesOptions &options);
void print_frequencies(const FrequencyOptions &options);

}  // namespace halyard::tool

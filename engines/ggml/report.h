// Counts what was replaced and what was left to ggml, for who asks.
#pragma once

#include <string>

namespace halyard_ggml {

/// Whether HALYARD_GGML_REPORT names a file. It is written when the process ends.
bool is_reporting();

/// Counts nodes. Thread-safe.
void report_replaced(const std::string &what, int n_nodes);
void report_left(const std::string &why);

}  // namespace halyard_ggml

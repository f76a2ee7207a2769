// Counts what was replaced and what was left to ggml, for who asks.
#pragma once

#include <map>
#include <string>

namespace halyard_ggml {

/// Whether HALYARD_GGML_REPORT names a file. It is written when the process ends.
bool is_reporting();

/// Why that file cannot be written, or nothing.
std::string why_no_report();

/// How many nodes, by what replaced them and by why they were left.
struct Counts {
    std::map<std::string, long long> replaced, left;
};

/// Adds to the report. Thread-safe.
void report(const Counts &counts);

}  // namespace halyard_ggml

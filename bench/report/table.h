// The table of a run, for readers and as JSON.
#pragma once

#include "measure/row.h"

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace halyard::bench {

/// Lines for standard output. Rows in which a loop or a peer is faster come first. A noisy machine gets a warning.
std::string format_rows(const std::vector<Row> &rows);

std::string format_accuracy(const std::vector<Accuracy> &all);

nlohmann::json to_json(const Row &row);
nlohmann::json to_json(const Accuracy &accuracy);

/// Writes a file whole or not at all.
void save_json(const std::string &path, const nlohmann::json &value);
/// Throws std::runtime_error where there is no such file, or no JSON in it.
nlohmann::json load_json(const std::string &path);

}  // namespace halyard::bench

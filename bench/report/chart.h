// Draws a run as a chart: for each row the ratio to its ceiling, of Halyard, the C loops and the best
// peer; first the rows of what engines do most.
#pragma once

#include <nlohmann/json.hpp>

#include <string>

namespace halyard::bench {

/// An SVG of the rows whose names match, in colours that read on white and on black pages. Throws std::runtime_error
/// where no row matches, or the JSON is not what --json writes.
std::string draw_chart(const nlohmann::json &run, const std::string &filter);

}  // namespace halyard::bench

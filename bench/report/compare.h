// One run against another, or against ratios that were recorded. Only ratios to the ceiling of the same run are
// compared, never times.
#pragma once

#include <nlohmann/json.hpp>

#include <map>
#include <string>
#include <vector>

namespace halyard::bench {

/// What `compare` has to say.
struct Comparison {
    int n_compared = 0, n_faster = 0, n_only_in_one = 0;
    std::vector<std::string> slower;  // a sentence each

    std::string text() const;
};

/// Compares two runs as --json writes them. A row is slower when its ratio fell by more than 5 % and by more than three
/// times the spread of what it was made from. Throws std::runtime_error where one is no such run.
Comparison compare(const nlohmann::json &before, const nlohmann::json &after);

/// The lowest part of a recorded ratio that passes.
inline constexpr double floor_margin = 0.6;

/// Ratios of the fastest rounds, which others on the machine disturb less than the medians.
/// {"<CPU family>": {"<target>": {"cpu", "commit", "date", "rows": {"<name>": ratio}}}}: `recorded` with the least that
/// some runs of a machine measured in place of what there was for its CPU and target. Rows beyond the caches get no
/// floor: what other programs do to the memory shows in them.
nlohmann::json record_floors(nlohmann::json recorded, const std::vector<nlohmann::json> &runs);

struct FloorCheck {
    int n_checked = 0;                         // none where no ratios are recorded for this CPU and target
    std::map<std::string, std::string> below;  // a sentence for each row, by its name
};
FloorCheck check_floors(const nlohmann::json &recorded, const nlohmann::json &run);

}  // namespace halyard::bench

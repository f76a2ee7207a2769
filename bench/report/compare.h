// Compares a run with another, or with recorded ratios. It compares ratios to the ceiling of the same run, never times.
#pragma once

#include <nlohmann/json.hpp>

#include <map>
#include <string>
#include <vector>

namespace halyard::bench {

/// What `compare` finds.
struct Comparison {
    int n_compared = 0, n_faster = 0, n_only_in_one = 0;
    std::vector<std::string> slower;  // a sentence for each row

    std::string text() const;
};

/// Compares two runs as --json writes them. A row is slower when its ratio fell by more than 5 % and by more than three
/// times the spread of the times that it comes from. Throws std::runtime_error where an argument is no such run.
Comparison compare(const nlohmann::json &before, const nlohmann::json &after);

/// The lowest part of a recorded ratio that still passes.
inline constexpr double floor_margin = 0.6;

/// Records the least ratio that some runs measured for each row. Returns `recorded` with what it held for this CPU and
/// target replaced, as
/// {"<CPU family>": {"<target>": {"cpu", "commit", "date", "rows": {"<name>": ratio}}}}.
/// These are ratios of the fastest rounds, which other programs disturb less than the medians. Rows beyond the caches
/// get no floor, because other programs that use the memory slow them down.
nlohmann::json record_floors(nlohmann::json recorded, const std::vector<nlohmann::json> &runs);

struct FloorCheck {
    int n_checked = 0;                         // 0 where no ratios are recorded for this CPU and target
    std::map<std::string, std::string> below;  // a sentence for each row, by its name
};
FloorCheck check_floors(const nlohmann::json &recorded, const nlohmann::json &run);

}  // namespace halyard::bench

#include "report/compare.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <stdexcept>

namespace halyard::bench {

namespace {

using nlohmann::json;

constexpr double least_fall = 0.05, spreads = 3.0;
constexpr double cache_bytes = 32 << 20;

/// The part of a row that is compared.
struct Ratio {
    std::string name, target;
    double value, relative_spread;  // of medians
    double fastest;
    bool beyond_caches;
};

double positive(const json &value, const char *key) {
    const double number = value.at(key).get<double>();
    if (!(number > 0.0)) {
        throw std::runtime_error(std::string(key) + " is not positive");
    }
    return number;
}

/// The ratios of a run, by name and target.
std::map<std::string, Ratio> read_ratios(const json &run) {
    std::map<std::string, Ratio> ratios;
    try {
        for (const json &row : run.at("rows")) {
            const json &ceiling = row.at("memory");
            const double own = row.at("spread_seconds").get<double>() / positive(row, "median_seconds");
            const double other = ceiling.at("spread_seconds").get<double>() / positive(ceiling, "median_seconds");
            const std::string name = row.at("name"), target = row.at("target");
            ratios[name + " " + target] = {name,
                                           target,
                                           positive(ceiling, "ratio"),
                                           std::hypot(own, other),
                                           positive(ceiling, "fastest_seconds") / positive(row, "fastest_seconds"),
                                           row.at("cold").get<bool>() || row.at("bytes").get<double>() > cache_bytes};
        }
    } catch (const std::exception &error) {
        throw std::runtime_error(std::string("that is not what halyard_bench --json writes: ") + error.what());
    }
    return ratios;
}

std::string format_fall(const std::string &name, double from, double to, const char *least, double at_least) {
    char text[512];
    std::snprintf(text, sizeof(text), "%s: %.3f of memory's speed, %s %.3f (at least %.3f passes)", name.c_str(), to,
                  least, from, at_least);
    return text;
}

}  // namespace

Comparison compare(const json &before, const json &after) {
    const auto old_ratios = read_ratios(before), new_ratios = read_ratios(after);
    Comparison result;
    for (const auto &[name, was] : old_ratios) {
        const auto found = new_ratios.find(name);
        if (found == new_ratios.end()) {
            result.n_only_in_one++;
            continue;
        }
        result.n_compared++;
        const double noise = std::hypot(was.relative_spread, found->second.relative_spread);
        const double tolerance = std::max(least_fall, spreads * noise);
        if (found->second.value < was.value * (1.0 - tolerance)) {
            result.slower.push_back(
                format_fall(name, was.value, found->second.value, "was", was.value * (1.0 - tolerance)));
        } else if (found->second.value > was.value * (1.0 + tolerance)) {
            result.n_faster++;
        }
    }
    result.n_only_in_one += static_cast<int>(new_ratios.size()) - result.n_compared;
    return result;
}

std::string Comparison::text() const {
    std::string text;
    for (const std::string &sentence : slower) {
        text += "slower: " + sentence + "\n";
    }
    return text + std::to_string(n_compared) + " rows compared: " + std::to_string(slower.size()) + " slower, " +
           std::to_string(n_faster) + " faster beyond noise; " + std::to_string(n_only_in_one) +
           " are in one run only\n";
}

json record_floors(json recorded, const std::vector<json> &runs) {
    std::map<std::string, json> rows;
    for (const json &run : runs) {
        for (const auto &[key, ratio] : read_ratios(run)) {
            if (!ratio.beyond_caches) {
                json &floor = rows[ratio.target][ratio.name];
                const double rounded = std::round(ratio.fastest * 1000.0) / 1000.0;
                floor = floor.is_null() ? rounded : std::min(floor.get<double>(), rounded);
            }
        }
    }
    const json &machine = runs.front().at("machine");
    for (const auto &[target, ratios] : rows) {
        recorded[machine.at("family").get<std::string>()][target] = {{"cpu", machine.at("cpu")},
                                                                     {"commit", machine.at("commit")},
                                                                     {"date", machine.at("date")},
                                                                     {"rows", ratios}};
    }
    return recorded;
}

FloorCheck check_floors(const json &recorded, const json &run) {
    FloorCheck check;
    const json floors = recorded.value(run.at("machine").at("family").get<std::string>(), json::object());
    for (const auto &[key, ratio] : read_ratios(run)) {
        const json rows = floors.value(ratio.target, json::object()).value("rows", json::object());
        if (!rows.contains(ratio.name)) {
            continue;
        }
        check.n_checked++;
        const double floor = rows[ratio.name], least = floor_margin * floor;
        if (ratio.fastest < least) {
            check.below[ratio.name] = format_fall(key, floor, ratio.fastest, "recorded", least);
        }
    }
    return check;
}

}  // namespace halyard::bench

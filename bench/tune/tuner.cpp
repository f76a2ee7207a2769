#include "tune/tuner.h"

#include "report/table.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <numeric>

namespace halyard::bench {

namespace {

using nlohmann::json;

constexpr Effort glance = {3, 2e-4}, look = {5, 1e-3}, duel = {11, 2e-3};
constexpr std::size_t n_finalists = 3;
constexpr double least_gain = 0.01;  // for less than this, a schedule is not worth its file
constexpr double least_gain_of_a_shape = 0.95;
constexpr double making_share = 0.6;  // of the time; the rest is for timing

double median(std::vector<double> values) { return summarise(std::move(values)).median; }

/// Ratios of times in the same round, so that what disturbs a whole round cancels out.
std::vector<double> ratios_of(const std::vector<double> &base, const std::vector<double> &other) {
    std::vector<double> ratios;
    for (std::size_t i = 0; i < std::min(base.size(), other.size()); i++) {
        ratios.push_back(base[i] / other[i]);
    }
    return ratios;
}

double distance(const Parameters &a, const Parameters &b) {
    const auto log = [](int value) { return std::log2(std::max(static_cast<double>(value), 0.5)); };  // some may be 0
    return std::transform_reduce(a.begin(), a.end(), b.begin(), 0.0, std::plus(), [&](const auto &x, const auto &y) {
        return std::fabs(log(x.second) - log(y.second));
    });
}

/// The names of loops, each once, in the order of the space.
std::vector<std::string> list_loops(const Space &space) {
    std::vector<std::string> loops;
    for (const Parameter &parameter : space) {
        if (std::find(loops.begin(), loops.end(), parameter.loops) == loops.end()) {
            loops.push_back(parameter.loops);
        }
    }
    return loops;
}

/// The fastest `n` of the variants, each compared with `best`.
std::vector<Parameters> keep_fastest(const std::vector<Parameters> &variants, const Parameters &best, std::size_t n,
                                     Workshop &workshop, const Effort &effort) {
    std::vector<Parameters> all = {best};
    all.insert(all.end(), variants.begin(), variants.end());
    const std::vector<Samples> samples = workshop.measure(all, effort);
    std::vector<std::pair<double, std::size_t>> order;
    for (std::size_t i = 0; i < variants.size(); i++) {
        order.emplace_back(-compare_samples(samples[0], samples[i + 1], samples[0]).gain, i);
    }
    std::sort(order.begin(), order.end());
    std::vector<Parameters> kept;
    for (std::size_t i = 0; i < std::min(n, order.size()); i++) {
        kept.push_back(variants[order[i].second]);
    }
    return kept;
}

json describe_timing(const std::vector<double> &seconds) {
    const Timing timing = summarise(seconds);
    return {{"median", timing.median}, {"spread", timing.spread}};
}

json describe(const Comparison &comparison, const std::vector<std::string> &shapes, const Samples &base,
              const Samples &other) {
    json result = {{"gain", comparison.gain}, {"noise", comparison.noise}, {"shapes", json::array()}};
    for (std::size_t i = 0; i < shapes.size(); i++) {
        result["shapes"].push_back({{"name", shapes[i]},
                                    {"default", describe_timing(base[i])},
                                    {"tuned", describe_timing(other[i])},
                                    {"gain", comparison.shapes[i]}});
    }
    return result;
}

}  // namespace

std::string label(const Parameters &parameters) {
    std::string text;
    for (const auto &[name, value] : parameters) {
        text += text.empty() ? "" : "/";
        text += std::to_string(value);
    }
    return text;
}

std::string list_changes(const Parameters &from, const Parameters &to) {
    std::string text;
    for (const auto &[name, value] : to) {
        if (value != from.at(name)) {
            text += (text.empty() ? "" : ", ") + name + " " + std::to_string(value);
        }
    }
    return text;
}

std::vector<Parameters> list_variants(const Space &space, const Parameters &from, const std::string &loops) {
    std::vector<Parameters> variants = {from};
    for (const Parameter &parameter : space) {
        if (parameter.loops != loops) {
            continue;
        }
        std::vector<Parameters> more;
        for (Parameters variant : variants) {
            for (const int value : parameter.values) {
                variant[parameter.name] = value;
                more.push_back(variant);
            }
        }
        variants = std::move(more);
    }
    std::erase_if(variants, [&](const Parameters &variant) {
        return variant == from || std::any_of(space.begin(), space.end(), [&](const Parameter &parameter) {
                   return parameter.limit != "none" && variant.at(parameter.name) > variant.at(parameter.limit);
               });
    });
    std::stable_sort(variants.begin(), variants.end(),
                     [&](const Parameters &a, const Parameters &b) { return distance(a, from) < distance(b, from); });
    return variants;
}

bool Comparison::is_better() const {
    return gain > 1.0 + std::max(noise, least_gain) &&
           std::all_of(shapes.begin(), shapes.end(), [](double g) { return g > least_gain_of_a_shape; });
}

Comparison compare_samples(const Samples &base, const Samples &other, const Samples &control) {
    Comparison comparison;
    double log_gain = 0.0, log_control = 0.0, variance = 0.0;
    for (std::size_t i = 0; i < base.size(); i++) {
        const std::vector<double> ratios = ratios_of(base[i], other[i]);
        const Timing ratio = summarise(ratios);
        comparison.shapes.push_back(ratio.median);
        log_gain += std::log(ratio.median);
        log_control += std::log(median(ratios_of(base[i], control[i])));
        // The standard error of a median is half the distance of the quartiles times 1.25 / 0.67, over the root of n.
        // Student's t of 95 % widens it, for 3 rounds and for 11.
        const double error = 1.86 * ratio.relative_spread() / std::sqrt(static_cast<double>(ratios.size()));
        const double reach = ratios.size() <= 3 ? 4.3 : 2.2;
        variance += reach * reach * error * error;
    }
    const auto n = static_cast<double>(base.size());
    comparison.gain = std::exp(log_gain / n);
    comparison.noise = std::max(std::sqrt(variance) / n, std::fabs(std::expm1(log_control / n)));
    return comparison;
}

json tune_kernel(Space space, const Parameters &defaults, Workshop &workshop, double until) {
    std::erase_if(space, [&](const Parameter &parameter) { return !defaults.contains(parameter.name); });
    if (const std::string why = workshop.make({defaults}, INFINITY)[0]; !why.empty()) {
        throw std::runtime_error("the default schedule can't be taken: " + why);
    }
    json refused = json::array();
    int n_tried = 0;
    bool is_complete = true;
    const auto refuse = [&](const Parameters &variant, const std::string &why) {
        refused.push_back({{"variant", list_changes(defaults, variant)}, {"why", why}});
    };

    Parameters best = defaults, candidate = defaults;
    const std::vector<std::string> all_loops = list_loops(space);
    for (std::size_t i = 0; i < all_loops.size(); i++) {
        const std::vector<Parameters> variants = list_variants(space, best, all_loops[i]);
        std::size_t n_later = 0;
        for (std::size_t later = i + 1; later < all_loops.size(); later++) {
            n_later += list_variants(space, best, all_loops[later]).size();
        }
        const double share =
            making_share * static_cast<double>(variants.size()) / static_cast<double>(variants.size() + n_later);
        const double now = workshop.now();
        const std::vector<std::string> faults = workshop.make(variants, now + share * (until - now));
        std::vector<Parameters> alive;
        for (std::size_t v = 0; v < variants.size(); v++) {
            if (faults[v] == Workshop::not_tried) {
                is_complete = false;
                continue;
            }
            n_tried++;
            if (faults[v].empty()) {
                alive.push_back(variants[v]);
            } else {
                refuse(variants[v], faults[v]);
            }
        }
        // Successive halving, here by thirds: the faster a variant looks, the more time it is given.
        const std::size_t a_third = std::max(n_finalists, (alive.size() + 2) / 3);
        for (const auto &[n, effort] : {std::pair(a_third, glance), std::pair(n_finalists, look)}) {
            if (alive.size() > n) {
                alive = keep_fastest(alive, best, n, workshop, effort);
            }
        }
        std::erase_if(alive, [&](const Parameters &variant) {
            const std::string why = workshop.prove(variant);
            if (!why.empty()) {
                refuse(variant, why);
            }
            return !why.empty();
        });
        if (alive.empty()) {
            continue;
        }
        alive.insert(alive.begin(), best);
        alive.push_back(best);
        const std::vector<Samples> samples = workshop.measure(alive, duel);
        Comparison most;
        most.gain = 0.0;
        std::size_t winner = 0;
        for (std::size_t v = 1; v + 1 < alive.size(); v++) {
            const Comparison comparison = compare_samples(samples.front(), samples[v], samples.back());
            if (std::pair(comparison.is_better(), comparison.gain) > std::pair(most.is_better(), most.gain)) {
                most = comparison;
                winner = v;
            }
        }
        if (most.is_better()) {
            best = candidate = alive[winner];
        } else if (candidate == defaults) {
            candidate = alive[winner];  // to show by how much it does not win
        }
    }

    // The fastest of many was also lucky, so it is compared with the default once more.
    json result = {{"gain", 1.0}, {"noise", 0.0}, {"shapes", json::array()}};
    bool improved = false;
    if (candidate != defaults) {
        const std::vector<Samples> samples = workshop.measure({defaults, candidate, defaults}, duel);
        const Comparison comparison = compare_samples(samples[0], samples[1], samples[2]);
        result = describe(comparison, workshop.shapes(), samples[0], samples[1]);
        improved = best != defaults && comparison.is_better();
    }
    result["improved"] = improved;
    result["default"] = defaults;
    result["parameters"] = candidate;
    result["variants"] = {{"tried", n_tried}, {"refused", refused}, {"complete", is_complete}};
    return result;
}

json tune_kernels(const TuningRun &run) {
    json journal = {{"key", run.key}, {"seconds", 0.0}, {"kernels", json::object()}};
    if (std::filesystem::exists(run.journal)) {
        try {
            if (const json found = load_json(run.journal); found.at("key") == run.key) {
                journal = found;
            }
        } catch (const std::exception &) {
            // This file is no journal of ours, so the run begins anew.
        }
    }
    const double start = run.now() - journal["seconds"].get<double>();
    std::size_t n_left = run.kernels.size() - journal["kernels"].size();
    for (const auto &[kernel, defaults] : run.kernels) {
        if (journal["kernels"].contains(kernel)) {
            continue;
        }
        const double now = run.now();
        const double share = (start + run.seconds - now) / static_cast<double>(n_left--);
        if (share <= 0.0) {
            continue;
        }
        json result = tune_kernel(run.space, defaults, *run.open(kernel), now + share);
        run.finish(kernel, result);
        journal["kernels"][kernel] = std::move(result);
        journal["seconds"] = run.now() - start;
        save_json(run.journal, journal);
    }
    std::filesystem::remove(run.journal);
    return journal["kernels"];
}

std::string format_results(const json &results) {
    std::string text;
    char line[400];
    const auto add = [&](auto... values) {
        std::snprintf(line, sizeof(line), values...);
        text += line;
    };
    for (const auto &[kernel, result] : results.items()) {
        const auto before = result["default"].get<Parameters>(), after = result["parameters"].get<Parameters>();
        const json &variants = result["variants"];
        add("%s: %s", kernel.c_str(), label(before).c_str());
        if (before == after) {
            add(" stays");
        } else {
            add(result["improved"] ? " -> %s, %.3f +- %.3f times as fast" : " stays; %s is %.3f +- %.3f times as fast",
                list_changes(before, after).c_str(), result["gain"].get<double>(), result["noise"].get<double>());
        }
        add(" (%d variants tried, %zu refused%s)\n", variants["tried"].get<int>(), variants["refused"].size(),
            variants["complete"].get<bool>() ? "" : ", out of time");
        for (const json &shape : result["shapes"]) {
            const auto us = [&](const char *which, const char *what) { return shape[which][what].get<double>() * 1e6; };
            add("    %-48s %10.3f +- %6.3f -> %10.3f +- %6.3f us %7.3f\n", shape["name"].get<std::string>().c_str(),
                us("default", "median"), us("default", "spread"), us("tuned", "median"), us("tuned", "spread"),
                shape["gain"].get<double>());
        }
        for (const json &refusal : variants["refused"]) {
            text += "    refused " + refusal["variant"].get<std::string>() + ": " +
                    refusal["why"].get<std::string>().substr(0, 300) + "\n";
        }
    }
    return text;
}

}  // namespace halyard::bench

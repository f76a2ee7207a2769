// halyard_bench: times kernels on the shapes of real models, in the same rounds as rivals and as what memory allows.
// Exit status: 0 done; 1 something failed, is wrong or got slower; 2 wrong usage.
#include "measure/growth.h"
#include "measure/machine.h"
#include "report/compare.h"
#include "report/table.h"
#include "road/road_row.h"
#include "road/shift_row.h"
#include "tool/files/output_file.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <sstream>
#include <unistd.h>

namespace {

using namespace halyard;
using namespace halyard::bench;
using nlohmann::json;

struct Options {
    Selection selection;
    std::string shapes = HALYARD_SOURCE_DIR "/bench/shapes.txt";
    std::string floors = HALYARD_SOURCE_DIR "/bench/floors.json";
    std::string json, target, peers;
    bool check_floors = false, write_floors = false;
    double peer_seconds = 60.0;
};

std::vector<std::string> split_words(const std::string &text) {
    std::istringstream stream(text);
    std::vector<std::string> words;
    for (std::string word; stream >> word;) {
        words.push_back(word);
    }
    return words;
}

std::vector<Row> measure_rows(const std::vector<Work> &works, const Arena &arena, const Setting &setting) {
    std::vector<Row> rows;
    const bool is_watched = isatty(STDERR_FILENO) != 0;
    for (std::size_t i = 0; i < works.size(); i++) {
        if (is_watched) {
            std::fprintf(stderr, "\r\033[K%zu of %zu: %s", i + 1, works.size(), works[i].name().c_str());
        }
        // A single thread shares one core with its peers; several threads need all cores.
        if (pin_to_one_cpu(works[i].n_threads == 1) && setting.peers != nullptr) {
            setting.peers->restart();
        }
        rows.push_back(measure_row(works[i], arena, setting));
    }
    if (is_watched) {
        std::fprintf(stderr, "\r\033[K");
    }
    return rows;
}

/// The command that measures the same rows again.
std::string command_of(const Options &options) {
    const Selection &selection = options.selection;
    std::string command = "./run bench";
    command += selection.quick ? " --quick" : "";
    command += selection.filter == "*" ? "" : " --filter '" + selection.filter + "'";
    command += options.target.empty() ? "" : " --target " + options.target;
    command += options.shapes == Options().shapes ? "" : " --shapes " + options.shapes;
    if (selection.n_threads != std::vector<int>{1}) {
        for (std::size_t i = 0; i < selection.n_threads.size(); i++) {
            command += (i == 0 ? " --threads " : ",") + std::to_string(selection.n_threads[i]);
        }
    }
    return command + (options.peers.empty() ? "" : " --peers");
}

json make_record(const Options &options, const Machine &machine, const std::vector<Row> &rows) {
    json record = {{"machine", machine.json()}, {"command", command_of(options)}, {"rows", json::array()}};
    for (const Row &row : rows) {
        record["rows"].push_back(to_json(row));
    }
    return record;
}

/// Measures rows below their floor again, thoroughly and up to three times. Returns those that are below it every time.
FloorCheck check_floors_again(const Options &options, const std::vector<Work> &works, const Arena &arena,
                              Setting &setting, const json &record) {
    const json recorded = load_json(options.floors);
    const FloorCheck first = check_floors(recorded, record);
    FloorCheck check = first;
    setting.effort = thorough;
    for (int again = 0; again < 3 && !check.below.empty(); again++) {
        std::vector<Work> below;
        std::copy_if(works.begin(), works.end(), std::back_inserter(below),
                     [&](const Work &work) { return check.below.contains(work.name()); });
        check = check_floors(recorded, make_record(options, describe_machine(), measure_rows(below, arena, setting)));
    }
    return {first.n_checked, check.below};
}

void print_budget(const std::vector<Budget> &budgets) {
    for (const Budget &budget : budgets) {
        std::printf("%s: %d kernels, %d of them stages, %.2f MB of objects", budget.target.c_str(), budget.n_kernels,
                    budget.n_stage_kernels, static_cast<double>(budget.n_bytes) * 1e-6);
        std::printf(budget.seconds > 0.0 ? ", %.0f s of one core to emit\n" : "\n", budget.seconds);
    }
}

json to_json(const std::vector<Budget> &budgets) {
    json list;
    for (const Budget &budget : budgets) {
        list.push_back({{"target", budget.target},
                        {"kernels", budget.n_kernels},
                        {"stage_kernels", budget.n_stage_kernels},
                        {"bytes", budget.n_bytes},
                        {"emit_seconds", budget.seconds}});
    }
    return list;
}

void print_peers(const Peers &peers) {
    std::printf("\nPeers");
    const char *separator = ": ";
    for (const json &peer : peers.list()["peers"]) {
        std::printf("%s%s %s", separator, peer["name"].get<std::string>().c_str(),
                    peer["version"].get<std::string>().c_str());
        separator = ", ";
    }
    std::printf("\n");
    for (const auto &[key, words] : {std::pair("absent", "Not there"), std::pair("refused", "Not in every row")}) {
        for (const json &peer : peers.list()[key]) {
            std::printf("%s: %s: %s\n", words, peer["name"].get<std::string>().c_str(),
                        peer["why"].get<std::string>().c_str());
        }
    }
}

int run_table(const Options &options) {
    std::ifstream shapes(options.shapes);
    if (!shapes) {
        throw std::runtime_error("can't read " + options.shapes);
    }
    const std::vector<Work> works = list_works(read_models(shapes), options.selection);
    if (works.empty()) {
        throw std::runtime_error("no row matches \"" + options.selection.filter + "\"");
    }
    if (!options.json.empty()) {
        tool::OutputFile probe(options.json);  // fails at once rather than after minutes
    }
    std::size_t n_bytes = 0;
    for (const Work &work : works) {
        n_bytes = std::max(n_bytes, PlacedWork::bytes_needed(work));
    }
    for (const Work &work : accuracy_works()) {
        n_bytes = std::max(n_bytes, PlacedWork::bytes_needed(work));
    }
    const Arena arena(n_bytes);
    Setting setting;
    setting.effort = options.selection.quick ? quick : thorough;
    setting.target = options.target;
    for (const int n_threads : options.selection.n_threads) {
        if (n_threads > 1) {
            setting.pools.emplace(n_threads, std::make_unique<pool>(n_threads));
        }
    }
    pin_to_one_cpu(works.front().n_threads == 1);
    std::unique_ptr<Peers> peers;
    if (!options.peers.empty()) {
        peers = std::make_unique<Peers>(split_words(options.peers), arena, options.peer_seconds);
        setting.peers = peers.get();
    }

    const double start = now();
    const std::vector<Row> rows = measure_rows(works, arena, setting);
    const Machine machine = describe_machine();
    json record = make_record(options, machine, rows);
    std::printf("%s\n", machine.text().c_str());
    const std::vector<Budget> budgets = find_budget(HALYARD_BUILD_DIR);
    print_budget(budgets);
    std::printf(
        "One thread: pinned to a CPU, and the peers to the same one. Ceiling: the part of the speed of the\n"
        "fastest copy (in place: multiply) of the same bytes in the same rounds, or (c) of the fastest loop that\n"
        "only converts them to f32 and back, where that is slower. x: how many times our time.\n"
        "%zu rows in %.0f s.\n\n%s",
        rows.size(), now() - start, format_rows(rows).c_str());
    if (peers != nullptr) {
        const auto accuracy = measure_accuracy(arena, setting);
        std::printf("\nLargest error at positions 131,008 to 131,071 (f32, base 10000, head_dim 128), in lengths of a "
                    "pair\n\n%s",
                    format_accuracy(accuracy).c_str());
        for (const Accuracy &one : accuracy) {
            record["accuracy"].push_back(to_json(one));
        }
        print_peers(*peers);
        record["peers"] = peers->list();
    }
    record["budget"] = to_json(budgets);
    if (!options.json.empty()) {
        save_json(options.json, record);
    }
    if (options.write_floors) {
        std::vector<json> runs = {record};
        while (runs.size() < 5) {
            runs.push_back(make_record(options, machine, measure_rows(works, arena, setting)));
        }
        save_json(options.floors,
                  record_floors(std::ifstream(options.floors) ? load_json(options.floors) : json::object(), runs));
    }
    int status = std::any_of(rows.begin(), rows.end(), [](const Row &row) { return row.wrong; }) ? 1 : 0;
    if (options.check_floors) {
        const FloorCheck check = check_floors_again(options, works, arena, setting, record);
        for (const auto &[name, why] : check.below) {
            std::printf("below its floor: %s\n", why.c_str());
        }
        std::printf("%d of %zu ratios have a floor on %s, and %zu are below it.\n", check.n_checked, rows.size(),
                    machine.family.c_str(), check.below.size());
        status = check.below.empty() ? status : 1;
    }
    return status;
}

int run_roads(const Options &options) {
    if (!options.json.empty()) {
        tool::OutputFile probe(options.json);
    }
    Setting setting;
    setting.effort = options.selection.quick ? quick : thorough;
    setting.target = options.target;
    const double start = now();
    const auto rows = measure_roads(options.selection, split_words(options.peers), options.peer_seconds, setting);
    const auto shifts = measure_shifts(options.selection, setting);
    if (rows.empty() && shifts.empty()) {
        throw std::runtime_error("no row matches \"" + options.selection.filter + "\"");
    }
    const Machine machine = describe_machine();
    const std::vector<Budget> budgets = find_budget(HALYARD_BUILD_DIR);
    std::printf("%s\n", machine.text().c_str());
    print_budget(budgets);
    std::printf("Bound runs, one thread; others: how many times as long. %zu rows in %.0f s.\n\n%s%s",
                rows.size() + shifts.size(), now() - start, rows.empty() ? "" : format_roads(rows).c_str(),
                format_shifts(shifts).c_str());
    if (!options.json.empty()) {
        json record = {{"machine", machine.json()}, {"budget", to_json(budgets)}, {"roads", json::array()}};
        for (const RoadRow &row : rows) {
            record["roads"].push_back(to_json(row));
        }
        for (const ShiftRow &row : shifts) {
            record["shifts"].push_back(to_json(row));
        }
        save_json(options.json, record);
    }
    return std::any_of(rows.begin(), rows.end(), [](const RoadRow &row) { return row.is_wrong(); }) ||
                   std::any_of(shifts.begin(), shifts.end(),
                               [](const ShiftRow &row) { return row.ways.front().n_wrong != 0; })
               ? 1
               : 0;
}

int run_bench(int argc, char **argv) {
    Options options;
    CLI::App app("Times kernels on the shapes of real models, against what the memory allows and against rivals.",
                 "halyard_bench");
    app.add_flag("--quick", options.selection.quick, "a short list, fewer and shorter rounds");
    app.add_option("--filter", options.selection.filter, "only rows whose name matches this glob, as in 'half_f32*'");
    app.add_option("--json", options.json, "also write the rows to this file");
    app.add_option("--target", options.target, "force a target (halyard list names them)");
    app.add_option("--threads", options.selection.n_threads, "numbers of threads, as in 1,2 [1]")
        ->delimiter(',')
        ->check(CLI::Range(1, 1024));
    app.add_option("--shapes", options.shapes, "the models [bench/shapes.txt]");
    app.add_option("--peers", options.peers, "also time these: the command of bench/rivals/peers.py");
    app.add_option("--peer-seconds", options.peer_seconds, "the longest that a peer may take to answer [60]")
        ->check(CLI::PositiveNumber);
    app.add_option("--floors", options.floors, "the recorded ratios [bench/floors.json]");
    auto *const check = app.add_flag("--check-floors", options.check_floors,
                                     "fail where a ratio is under 0.6 of the one that is recorded for this CPU");
    app.add_flag("--write-floors", options.write_floors, "record the least ratios of five runs for this CPU")
        ->excludes(check);

    std::string before, after;
    auto *const compared = app.add_subcommand("compare", "what got slower from one run to another, beyond noise");
    compared->add_option("before", before, "what --json wrote")->required();
    compared->add_option("after", after, "what --json wrote later")->required();
    auto *const growth =
        app.add_subcommand("growth", "time for a token as tokens, heads and head_dim grow, and memory");
    int growth_threads = 1;
    growth->add_option("--threads", growth_threads, "also the speed-up of so many threads")->check(CLI::Range(1, 1024));
    auto *const road = app.add_subcommand("road", "the way from a projection to q and a cache, with norms");
    road->fallthrough();
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError &error) {
        return app.exit(error) == 0 ? 0 : 2;
    }

    if (*compared) {
        const Comparison result = compare(load_json(before), load_json(after));
        std::printf("%s", result.text().c_str());
        return result.slower.empty() ? 0 : 1;
    }
    if (*growth) {
        std::printf("%s\n", describe_machine().text().c_str());
        print_growth(thorough, growth_threads);
        return 0;
    }
    return *road ? run_roads(options) : run_table(options);
}

}  // namespace

int main(int argc, char **argv) {
    try {
        return run_bench(argc, argv);
    } catch (const std::exception &error) {
        std::fprintf(stderr, "halyard_bench: %s\n", error.what());
        return 1;
    }
}

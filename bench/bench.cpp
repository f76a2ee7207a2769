// halyard_bench: the kernels of a target over a few shapes, against what the memory allows, in one interleaved run.
#include "machine.h"
#include "report.h"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <cstdio>
#include <fnmatch.h>
#include <fstream>
#include <memory>

namespace {

using namespace halyard;
using namespace halyard::bench;

struct Options {
    bool quick = false;
    bool angles = false;
    std::string filter = "*";
    std::string json;
    std::string target;
    int threads = 1;
};

/// What the sources of angles cost: the same kernels, at one token and at 64 and 512 scattered ones.
std::vector<std::unique_ptr<Workload>> make_angle_workloads(const Options &options) {
    const char *target = options.target.empty() ? nullptr : options.target.c_str();
    std::vector<std::unique_ptr<Workload>> workloads;
    for (const std::int64_t tokens : {1, 64, 512}) {
        for (const dtype type : {dtype::f32, dtype::bf16}) {
            for (const std::int32_t angles : {HALYARD_ANGLES_TABLE, HALYARD_ANGLES_FACTORED, HALYARD_ANGLES_PHASE}) {
                auto work = std::make_unique<Workload>(type, pairing::half, pairing::half, true, Shape{tokens, 40, 128},
                                                       target, angles);
                if (fnmatch(options.filter.c_str(), work->name().c_str(), 0) == 0) {
                    workloads.push_back(std::move(work));
                }
            }
        }
    }
    return workloads;
}

std::vector<std::unique_ptr<Workload>> make_workloads(const Options &options) {
    // One head shows the cost of a call; then a token, a small batch and two prompts of a model with 32 q and 8 k
    // heads.
    std::vector<Shape> shapes = {{1, 1, 128}, {1, 32, 128}, {64, 40, 128}};
    if (!options.quick) {
        shapes.insert(shapes.end(), {{512, 40, 128}, {4096, 40, 128}});
    }
    const char *target = options.target.empty() ? nullptr : options.target.c_str();
    std::vector<std::unique_ptr<Workload>> workloads;
    for (const Shape &shape : shapes) {
        for (const dtype type : {dtype::f32, dtype::f16, dtype::bf16}) {
            for (const pairing in : {pairing::half, pairing::interleaved}) {
                for (const pairing out : {pairing::half, pairing::interleaved}) {
                    for (const bool in_place : {true, false}) {
                        if (in_place && in != out) {
                            continue;
                        }
                        auto work = std::make_unique<Workload>(type, in, out, in_place, shape, target);
                        if (fnmatch(options.filter.c_str(), work->name().c_str(), 0) == 0) {
                            workloads.push_back(std::move(work));
                        }
                    }
                }
            }
        }
    }
    return workloads;
}

int run(const Options &options) {
    const auto workloads = options.angles ? make_angle_workloads(options) : make_workloads(options);
    if (workloads.empty()) {
        std::fprintf(stderr, "halyard_bench: no kernel matches \"%s\"\n", options.filter.c_str());
        return 1;
    }
    std::unique_ptr<pool> threads;
    if (options.threads > 1) {
        threads = std::make_unique<pool>(options.threads);
    }
    const auto rows =
        time_workloads(workloads, options.quick ? quick : thorough, threads ? threads->executor() : nullptr);
    const Machine machine = describe_machine();
    std::printf("%s\n%d thread%s; tokens x heads x head_dim; ceiling: the time of the fastest copy (in place: or\n"
                "multiply) of the same bytes in this run, divided by ours\n\n",
                machine.text().c_str(), options.threads, options.threads == 1 ? "" : "s");
    print_rows(rows);
    if (!options.json.empty()) {
        std::ofstream file(options.json);
        file << nlohmann::json{{"machine", machine.json()}, {"threads", options.threads}, {"rows", to_json(rows)}}.dump(
                    1)
             << "\n";
        if (!file.flush()) {
            std::fprintf(stderr, "halyard_bench: %s could not be written\n", options.json.c_str());
            return 1;
        }
    }
    return 0;
}

}  // namespace

int main(int argc, char **argv) {
    Options options;
    CLI::App app("Times every kernel against a copy of the same bytes, in one interleaved run.", "halyard_bench");
    app.add_flag("--quick", options.quick, "three shapes, fewer and shorter rounds (a few seconds)");
    app.add_flag("--angles", options.angles, "compare table, factored and phase angles instead of kernels");
    app.add_option("--filter", options.filter, "only kernels that match this glob, as in half_f32*");
    app.add_option("--json", options.json, "also write the rows to this file");
    app.add_option("--target", options.target, "force a target (halyard list names them)");
    app.add_option("--threads", options.threads, "threads of a pool (default 1)")->check(CLI::Range(1, 1024));
    CLI11_PARSE(app, argc, argv);
    try {
        return run(options);
    } catch (const std::exception &error) {
        std::fprintf(stderr, "halyard_bench: %s\n", error.what());
        return 1;
    }
}

// halyard_autotune: tries other numbers in the kernels' schedules on this machine, and writes those that are better
// than the default into generators/schedules. Exit status: 0 done; 1 something failed; 2 wrong usage; 130 interrupted.
#include "measure/machine.h"
#include "report/table.h"
#include "walk/dispatch.h"
#include "tool/files/output_file.h"
#include "tune/gpu_variants.h"
#include "tune/variants.h"

#include <CLI/CLI.hpp>

#include <fcntl.h>
#include <fnmatch.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>

namespace {

using namespace halyard;
using namespace halyard::bench;
using nlohmann::json;

struct Options {
    std::string kernels = "*", target;
    std::vector<std::string> shapes;
    double minutes = INFINITY;
    unsigned patience = 60;
    std::string recipes = HALYARD_BUILD_DIR "/generated/tuning.json";
    std::string state = HALYARD_SOURCE_DIR "/build/tune";
    std::string output = HALYARD_SOURCE_DIR "/generators/schedules";
};

std::string command_of(const Options &options) {
    std::string command = "./run tune";
    command += options.kernels == "*" ? "" : " --kernels '" + options.kernels + "'";
    command += options.target.empty() ? "" : " --target " + options.target;
    for (const std::string &shape : options.shapes) {
        command += (&shape == &options.shapes.front() ? " --shapes " : " ") + shape;
    }
    char minutes[32];
    std::snprintf(minutes, sizeof(minutes), " --minutes %g", options.minutes);
    return command + (std::isinf(options.minutes) ? "" : minutes);
}

/// The target whose kernels are tuned: the one that was asked for, or the best that this machine runs.
std::string find_target(const std::string &wanted) {
    for (const halyard_target_info &target : targets()) {
        if (wanted.empty() ? target.active != 0 : target.name == wanted) {
            if (target.supported == 0) {
                throw std::runtime_error("this machine can't run " + wanted);
            }
            return target.name;
        }
    }
    throw std::runtime_error("there is no target \"" + wanted + "\"");
}

std::vector<Model> find_models(const std::vector<std::string> &wanted) {
    std::ifstream file(HALYARD_SOURCE_DIR "/bench/shapes.txt");
    std::vector<Model> models = read_models(file);
    for (const std::string &name : wanted) {
        if (std::none_of(models.begin(), models.end(), [&](const Model &model) { return model.name == name; })) {
            throw std::runtime_error("there is no shape \"" + name + "\" in bench/shapes.txt");
        }
    }
    std::erase_if(models, [&](const Model &model) {
        return !wanted.empty() && std::find(wanted.begin(), wanted.end(), model.name) == wanted.end();
    });
    return models;
}

void need_program(const std::string &what, const std::string &path) {
    if (access(path.c_str(), X_OK) != 0) {
        throw std::runtime_error("there is no " + what + " at " + path + ": ./run build finds or makes it");
    }
}

void make_folder(const std::string &path) {
    std::error_code code;
    std::filesystem::create_directories(path, code);
    if (code) {
        throw std::runtime_error("can't make the folder " + path + ": " + code.message());
    }
}

/// Keeps a second run out of the folder until the process ends.
void lock_folder(const std::string &path) {
    const int file = open((path + "/lock").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (file < 0 || flock(file, LOCK_EX | LOCK_NB) != 0) {
        throw std::runtime_error(errno == EWOULDBLOCK ? "another run is at work in " + path
                                                      : "can't lock " + path + ": " + std::strerror(errno));
    }
}

/// Shows how far the run is, on one line of a terminal.
class Progress {
public:
    Progress(std::size_t n_kernels, double seconds) : n_kernels_(n_kernels), until_(now() + seconds) {}

    void begin(const std::string &kernel) {
        kernel_ = kernel;
        n_begun_++;
    }

    void say(const std::string &what) const {
        if (isatty(STDERR_FILENO) == 0) {
            return;
        }
        const double done = static_cast<double>(n_begun_ - 1), left = static_cast<double>(n_kernels_) - done;
        const double guess = done > 0 ? (now() - start_) / done * left : INFINITY;
        const double minutes = std::min(guess, until_ - now()) / 60.0;
        std::string time = std::isinf(minutes) ? "" : ", " + std::to_string(std::lround(minutes)) + " min left";
        std::fprintf(stderr, "\r\033[K%zu of %zu%s: %s: %s", n_begun_, n_kernels_, time.c_str(), kernel_.c_str(),
                     what.c_str());
    }

    static void clear() {
        if (isatty(STDERR_FILENO) != 0) {
            std::fprintf(stderr, "\r\033[K");
        }
    }

private:
    std::size_t n_kernels_, n_begun_ = 0;
    double start_ = now(), until_;
    std::string kernel_;
};

/// The name of this machine's CPU, as the command prints it. A log of it is left in the folder.
std::string find_cpu_name(const std::vector<std::string> &command, const std::filesystem::path &folder) {
    const std::filesystem::path log = folder / "cpu.log";
    if (const std::string why = wait_for(start(join(command), log), now() + 60.0, log); !why.empty()) {
        throw std::runtime_error("this CPU can't be named: " + why);
    }
    std::string name;
    std::ifstream said(log);
    std::getline(said, name);
    return name;
}

/// Writes the schedule that a kernel's build is to take, or removes an earlier one where nothing is better than the
/// default. `seal` is the command that adds to a draft what makes it hold.
void write_schedule(const std::string &path, const json &provenance, json result, const std::vector<std::string> &seal,
                    const std::string &draft) {
    if (!result["improved"]) {
        if (result["variants"]["complete"]) {
            std::filesystem::remove(path);
        }
        return;
    }
    result.erase("improved");
    result.update(provenance);
    result["checksum"] = "";
    result["default_sha256"] = "";
    save_json(draft, result);
    seal_schedule(seal, draft, path);
}

/// The works by which a GPU's kernel is tuned. "gpu" in its recipe holds both pairings, dtype and place.
std::vector<Work> list_gpu_works(const json &gpu, const std::vector<Model> &models) {
    const auto order = [](const json &name) { return name == "interleaved" ? pairing::interleaved : pairing::half; };
    const std::string type = gpu.at(2);
    return list_gpu_works(order(gpu.at(0)), order(gpu.at(1)),
                          type == "f32"   ? dtype::f32
                          : type == "f16" ? dtype::f16
                                          : dtype::bf16,
                          gpu.at(3) == "in_place", models);
}

/// A kernel that is to be tuned.
struct Plan {
    json recipe;
    std::vector<Work> works;
};

/// The kernels of a target that match and can be tuned, by name.
std::map<std::string, Plan> list_plans(const json &recipes, const std::string &target, const Options &options) {
    const std::vector<Model> models = find_models(options.shapes);
    std::map<std::string, Plan> plans;
    for (const json &recipe : recipes.at("kernels")) {
        const std::string name = recipe.at("name");
        if (recipe.at("isa") != target || fnmatch(options.kernels.c_str(), name.c_str(), 0) != 0) {
            continue;
        }
        std::vector<Work> works;
        if (!recipe.at("gpu").is_null()) {
            works = list_gpu_works(recipe.at("gpu"), models);
        } else if (name.starts_with("halyard_rows_")) {
            works = list_row_works(name, models);
        }
        for (const Kernel &kernel : kernels()) {
            if (kernel.name == name) {
                works = list_tuning_works(kernel, models);
            }
        }
        if (!works.empty()) {
            plans[name] = {recipe, works};
        }
    }
    if (plans.empty()) {
        throw std::runtime_error("no kernel of " + target + " matches \"" + options.kernels +
                                 "\" and has a shape to be tuned on");
    }
    return plans;
}

int run_tuning(const Options &options) {
    const json recipes = load_json(options.recipes);
    need_program("generator", recipes.at("generator"));
    need_program("compiler", recipes.at("compiler"));
    const bool on_gpu = options.target == "cuda_sm80" || options.target == "opencl";
    if (on_gpu && recipes.at("gpu_program") == "") {
        throw std::runtime_error("this build has no kernels for GPUs");
    }
    make_folder(options.state);
    lock_folder(options.state);
    const GpuDevice gpu = on_gpu ? find_gpu(recipes.at("gpu_program"), options.target, options.state) : GpuDevice();
    const std::string target = on_gpu ? options.target : find_target(options.target);
    const Machine machine = describe_machine();
    const std::string device = on_gpu ? gpu.short_name : find_cpu_name(recipes.at("cpu"), options.state);
    if (device.empty()) {
        throw std::runtime_error("this device tells no model by which its schedules could be named");
    }
    const std::map<std::string, Plan> plans = list_plans(recipes, target, options);

    TuningRun run;
    for (const auto &[kernel, plan] : plans) {
        run.kernels.emplace_back(kernel, plan.recipe.at("defaults").get<Parameters>());
    }
    for (const json &parameter : recipes.at("parameters")) {
        run.space.push_back({parameter["name"], parameter["loops"], parameter["limit"], parameter["values"]});
    }
    json provenance = {{"schema", 4},
                       {"halide", recipes.at("halide")},
                       {"device", {{"name", device}}},
                       {"command", command_of(options)}};
    if (on_gpu) {
        provenance["device"].update({{"gpu", gpu.name}, {"driver", gpu.driver}});
    } else {
        provenance["device"].update({{"cpu", machine.cpu}, {"stepping", machine.stepping}, {"caches", machine.caches}});
    }
    run.seconds = options.minutes * 60.0;
    run.key = provenance;
    // An interrupted run does not go on with another generator.
    const auto made = std::filesystem::last_write_time(recipes.at("generator").get<std::string>());
    run.key["generator"] = made.time_since_epoch().count();
    provenance["date"] = machine.date;
    make_folder(options.output);
    run.journal = options.state + "/journal.json";
    run.now = now;
    Progress progress(run.kernels.size(), run.seconds);
    run.open = [&](const std::string &kernel) -> std::unique_ptr<Workshop> {
        progress.begin(kernel);
        const auto &[recipe, works] = plans.at(kernel);
        const Recipe how = {kernel, target, recipe["emit"], recipe["check"], recipe["link"], recipe["suffix"]};
        const std::string folder = options.state + "/variants";
        const auto say = [&](const std::string &what) { progress.say(what); };
        if (on_gpu) {
            return std::make_unique<GpuVariants>(how, works, folder, options.patience, say);
        }
        return std::make_unique<Variants>(how, works, folder, options.patience, say);
    };
    run.finish = [&](const std::string &kernel, const json &result) {
        json all = provenance;
        all["kernel"] = kernel;
        all["target"] = plans.at(kernel).recipe["target"];
        write_schedule(options.output + "/" + kernel + "." + device + ".json", all, result, recipes["seal"],
                       options.state + "/schedule.json");
    };
    watch_for_interrupts();
    json results;
    try {
        results = tune_kernels(run);
    } catch (const Interrupted &) {
        Progress::clear();
        std::fprintf(stderr, "halyard_autotune: interrupted; what is finished is kept, and the same command goes on\n");
        return 130;
    }
    Progress::clear();
    const auto n_better =
        std::count_if(results.begin(), results.end(), [](const json &r) { return bool(r["improved"]); });
    const std::string machine_text = on_gpu ? gpu.name + " (" + gpu.driver + ")" : machine.text();
    std::printf(
        "%s\n\n%s\nBefore and after: medians over the rounds, half the distance of the quartiles, and how many\n"
        "times as fast. %ld of %zu kernels have a better schedule than the default%s.\n",
        machine_text.c_str(), format_results(results).c_str(), static_cast<long>(n_better), results.size(),
        n_better == 0 ? "" : (", in " + options.output).c_str());
    if (results.size() < run.kernels.size()) {
        std::printf("Time was up before the other %zu.\n", run.kernels.size() - results.size());
    }
    return 0;
}

}  // namespace

int main(int argc, char **argv) {
    Options options;
    CLI::App app("Finds better schedules for this machine, and writes them into generators/schedules.",
                 "halyard_autotune");
    app.add_option("--kernels", options.kernels, "only kernels whose name matches this glob [*]");
    app.add_option("--shapes", options.shapes, "only on these models of bench/shapes.txt");
    app.add_option("--minutes", options.minutes, "end after about so long [when all is tried]")
        ->check([](const std::string &text) {
            double minutes = 0.0;
            return CLI::detail::lexical_cast(text, minutes) && minutes > 0.0 ? "" : text + " is not more than 0";
        });
    app.add_option("--target", options.target, "the kernels of this target [the best one]");
    app.add_option("--patience", options.patience, "seconds that making a variant may take, and each check of it [60]")
        ->check(CLI::Range(1, 3600));
    app.add_option("--recipes", options.recipes, "how variants are made [what the build wrote]");
    app.add_option("--state", options.state, "where an interrupted run is kept [build/tune]");
    app.add_option("--output", options.output, "where schedules are written [generators/schedules]");
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError &error) {
        return app.exit(error) == 0 ? 0 : 2;
    }
    try {
        return run_tuning(options);
    } catch (const std::exception &error) {
        Progress::clear();
        std::fprintf(stderr, "halyard_autotune: %s\n", error.what());
        return 1;
    }
}

// Tests of the tuner: its search, on made-up costs with noise; that an interrupted run ends with the same result; and
// that variants which crash, hang or are wrong are named and never win.
#include "checks/scratch_dir.h"
#include "report/table.h"
#include "tune/tuner.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <sys/wait.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <random>
#include <set>

using namespace halyard::bench;
using Catch::Matchers::ContainsSubstring;
using nlohmann::json;

namespace {

const Space space = {{"step", "known", "none", {4, 8, 16, 32, 64, 128}},
                     {"vector", "known", "step", {4, 8, 16, 32}},
                     {"any", "any", "none", {4, 8, 16, 32}}};
const Parameters defaults = {{"step", 128}, {"vector", 8}, {"any", 16}};
const Parameters optimum = {{"step", 32}, {"vector", 16}, {"any", 8}};

/// Costs grow with the distance from the best variant. Each time is off by some percent, now and then by far more. The
/// clock goes on as if variants were really made and timed.
struct FakeWorkshop : Workshop {
    double *clock;
    Parameters best = optimum;
    double slope = 0.1, noise = 0.02;
    std::set<Parameters> bad = {};          // wrong, but faster than all others
    std::set<Parameters> treacherous = {};  // wrong too, but only prove() notices
    Parameters uneven = {};                 // half as fast on the last shape, and faster on the others
    int *n_makes_left = nullptr;            // how often make() works before the user interrupts it
    std::minstd_rand random;
    std::set<Parameters> measured = {};

    explicit FakeWorkshop(double *time, unsigned seed = 1) : clock(time), random(seed) {}

    double cost(const Parameters &variant, std::size_t shape) const {
        if (bad.contains(variant) || treacherous.contains(variant)) {
            return 0.1;
        }
        if (variant == uneven) {
            return shape == 2 ? 2.0 : 0.3;
        }
        double distance = 0.0;
        for (const auto &[name, value] : variant) {
            distance += std::fabs(std::log2(static_cast<double>(value) / best.at(name)));
        }
        return 1.0 + slope * distance;
    }

    std::vector<std::string> shapes() override { return {"a", "b", "c"}; }
    std::vector<std::string> make(const std::vector<Parameters> &variants, double until) override {
        if (n_makes_left != nullptr && (*n_makes_left)-- == 0) {
            *clock += 0.3;
            throw Interrupted();
        }
        std::vector<std::string> faults;
        for (const Parameters &variant : variants) {
            const bool has_time = *clock < until;
            *clock += has_time ? 0.5 : 0.0;
            faults.push_back(!has_time ? not_tried : bad.contains(variant) ? "is wrong" : "");
        }
        return faults;
    }
    std::string prove(const Parameters &variant) override { return treacherous.contains(variant) ? "is wrong" : ""; }
    std::vector<Samples> measure(const std::vector<Parameters> &variants, const Effort &effort) override {
        std::normal_distribution<double> normal;
        std::vector<Samples> all;
        for (const Parameters &variant : variants) {
            measured.insert(variant);
            Samples samples(3);
            for (std::size_t shape = 0; shape < samples.size(); shape++) {
                for (int round = 0; round < effort.n_rounds; round++) {
                    const double outlier = random() % 20 == 0 ? 1.5 : 1.0;
                    samples[shape].push_back(1e-6 * cost(variant, shape) * (1.0 + noise * std::fabs(normal(random))) *
                                             outlier);
                    *clock += effort.seconds_each;
                }
            }
            all.push_back(samples);
        }
        return all;
    }
    double now() override { return *clock; }
};

json tune(FakeWorkshop &workshop, double seconds = INFINITY) {
    return tune_kernel(space, defaults, workshop, *workshop.clock + seconds);
}

}  // namespace

TEST_CASE("tuner: variants keep to the limits, and the nearest come first", "[tuner]") {
    const auto known = list_variants(space, defaults, "known");
    CHECK(known.size() == 1 + 2 + 3 + 4 + 4 + 4 - 1);
    CHECK(list_variants(space, defaults, "any").size() == 3);
    std::set<Parameters> all(known.begin(), known.end());
    CHECK(all.size() == known.size());
    CHECK(!all.contains(defaults));
    for (const Parameters &variant : known) {
        CHECK(variant.at("vector") <= variant.at("step"));
        CHECK(variant.at("any") == 16);
    }
    CHECK(label(known.front()) == "16/64/8");
}

TEST_CASE("tuner: the search finds the best variant in noise", "[tuner]") {
    double clock = 0.0;
    const unsigned seed = GENERATE(range(1u, 11u));
    FakeWorkshop workshop(&clock, seed);
    const json result = tune(workshop);
    CHECK(result["improved"] == true);
    CHECK(result["parameters"].get<Parameters>() == optimum);
    CHECK(result["gain"].get<double>() > 1.3);
    CHECK(result["variants"]["tried"] == 17 + 3);
    CHECK(result["variants"]["complete"] == true);
}

TEST_CASE("tuner: the default stays where nothing is better beyond noise", "[tuner]") {
    double clock = 0.0;
    int n_improved = 0;
    for (unsigned seed = 1; seed <= 40; seed++) {
        FakeWorkshop workshop(&clock, seed);
        workshop.slope = 0.0;
        workshop.noise = 0.05;
        n_improved += tune(workshop)["improved"] ? 1 : 0;
    }
    CHECK(n_improved <= 2);
    FakeWorkshop workshop(&clock);
    workshop.best = defaults;
    CHECK(tune(workshop)["improved"] == false);
}

TEST_CASE("tuner: a wrong variant is named, never timed where that shows at once, and never chosen", "[tuner]") {
    double clock = 0.0;
    FakeWorkshop workshop(&clock);
    Parameters bad = defaults, treacherous = defaults;
    bad["step"] = 64;
    treacherous["step"] = 16;
    workshop.bad = {bad};
    workshop.treacherous = {treacherous};
    const json result = tune(workshop);
    CHECK(result["parameters"].get<Parameters>() == optimum);
    CHECK(!workshop.measured.contains(bad));
    const json expected = {{{"variant", "step 64"}, {"why", "is wrong"}},
                           {{"variant", "step 16"}, {"why", "is wrong"}}};
    CHECK(result["variants"]["refused"] == expected);

    workshop.bad = {defaults};
    CHECK_THROWS_WITH(tune(workshop), "the default schedule can't be taken: is wrong");
}

TEST_CASE("tuner: what is much slower on one shape does not win by the others", "[tuner]") {
    double clock = 0.0;
    FakeWorkshop workshop(&clock);
    workshop.best = defaults;
    workshop.uneven = defaults;
    workshop.uneven["step"] = 64;
    const json result = tune(workshop);
    CHECK(result["parameters"].get<Parameters>() == workshop.uneven);
    CHECK(result["gain"].get<double>() > 1.2);
    CHECK(result["improved"] == false);
    CHECK_THAT(format_results({{"k", result}}), ContainsSubstring("k: 16/128/8 stays; step 64 is 1."));
}

TEST_CASE("tuner: an interrupted run goes on to the same end as another", "[tuner]") {
    const auto run_with = [](const ScratchDir &dir, int n_makes, double seconds) {
        double clock = 1000.0;
        json finished;
        TuningRun run;
        for (const char *kernel : {"a", "b", "c", "d"}) {
            run.kernels.emplace_back(kernel, defaults);
        }
        run.space = space;
        run.seconds = seconds;
        run.journal = dir / "journal.json";
        run.key = "key";
        run.open = [&](const std::string &kernel) {
            auto workshop = std::make_unique<FakeWorkshop>(&clock, static_cast<unsigned>(kernel[0]));
            workshop->n_makes_left = &n_makes;
            return workshop;
        };
        run.now = [&] { return clock; };
        run.finish = [&](const std::string &kernel, const json &result) { finished[kernel] = result; };
        for (;;) {
            try {
                const json results = tune_kernels(run);
                CHECK(results == finished);
                return results;
            } catch (const Interrupted &) {
                n_makes = 1000;
                clock += 500.0;
            }
        }
    };
    const double seconds = GENERATE(INFINITY, 30.0);
    const ScratchDir dir;
    const json whole = run_with(dir, 1000, seconds);
    CHECK(whole.size() == 4);
    CHECK((whole["a"]["variants"]["complete"] == true) == std::isinf(seconds));
    CHECK(dir.count_entries() == 0);
    for (int n_makes = 0; n_makes < 12; n_makes++) {
        CHECK(run_with(dir, n_makes, seconds) == whole);
    }
    dir.write("journal.json", R"({"key": "key", "seco)");
    CHECK(run_with(dir, 1000, seconds) == whole);
    dir.write("journal.json", R"({"key": "another", "seconds": 1, "kernels": {"a": 1}})");
    CHECK(run_with(dir, 1000, seconds) == whole);
}

#if defined(HALYARD_AUTOTUNE_PATH)

namespace {

/// What a run of the tuner came to.
struct Tuned {
    int status;
    std::string text;
};

/// Runs the tuner on one kernel with few numbers. fake_generator.py stands before the generator and breaks some
/// variants.
Tuned run_tuner(const ScratchDir &dir, const json &recipes, const std::string &output,
                const std::string &target = "x86_sse41", const std::string &patience = "6",
                const std::string &kernel = "halyard_rotate_half_f32") {
    dir.write("recipes.json", recipes.dump());
    const std::string command = std::string(HALYARD_AUTOTUNE_PATH) + " --kernels " + kernel + "_" + target +
                                " --target " + target + " --shapes llama-3-8b --patience " + patience + " --recipes " +
                                dir / "recipes.json" + " --state " + dir / "state" + " --output " + output + " > " +
                                dir / "log" + " 2>&1";
    const int status = std::system(command.c_str());
    return {WEXITSTATUS(status), dir.read("log")};
}

void use_fake_generator(json &command, const json &generator) {
    std::replace(command.begin(), command.end(), generator, json(HALYARD_FAKE_GENERATOR));
}

json few_recipes() {
    json recipes = load_json(HALYARD_TUNING_RECIPES);
    const std::map<std::string, json> values = {{"elements_per_step", {4, 8, 16, 32, 64, 128}},
                                                {"elements_per_vector", {4}},
                                                {"elements_per_step_any", {8, 32}},
                                                {"element_threads", {4, 8, 16, 32}},
                                                {"head_threads", {16}},
                                                {"heads_per_thread", {4}},
                                                {"few_tokens", {64}},
                                                {"pairs_per_step", {4, 8, 16}}};
    for (json &parameter : recipes["parameters"]) {
        const auto found = values.find(parameter["name"]);
        parameter["values"] = found != values.end() ? found->second : json{1};
    }
    for (json &kernel : recipes["kernels"]) {
        kernel["check"] = {"true"};  // the real check would refuse the broken variants first
        use_fake_generator(kernel["emit"], recipes["generator"]);
    }
    use_fake_generator(recipes["seal"], recipes["generator"]);
    setenv("HALYARD_REAL_GENERATOR", recipes["generator"].get<std::string>().c_str(), 1);
    return recipes;
}

}  // namespace

TEST_CASE("tuner: variants that crash, hang or are wrong are named, and the best right one is chosen", "[tuner]") {
    const ScratchDir dir;
    const json recipes = few_recipes();
    const Tuned tuned = run_tuner(dir, recipes, dir / "schedules");
    INFO(tuned.text);
    CHECK(tuned.status == 0);
    for (const char *said :
         {"x86_sse41: 128/8/4/1/1 -> elements_per_step 64, ",
          "refused elements_per_step 32: halyard_rotate_half_f32_x86_sse41: f32, half -> half",
          ": takes more than 6 seconds",
          "refused elements_per_step 16: halyard_rotate_half_f32_x86_sse41: f32, half -> half",
          ": crashes with signal 4",
          "refused elements_per_step 8: halyard_rotate_half_f32_x86_sse41: f32, half -> half",
          "refused elements_per_step 4: halyard_rotate_half_f32_x86_sse41: f32, half -> half", ", but should be 0x",
          "refused elements_per_step 64, elements_per_step_any 32: making it failed: "
          "halyard_rotate_half_f32_x86_sse41: this generator cannot"}) {
        CHECK_THAT(tuned.text, ContainsSubstring(said));
    }
    const json schedule = load_json(std::filesystem::directory_iterator(dir / "schedules")->path());
    CHECK(schedule["parameters"]["elements_per_step"] == 64);
    CHECK(schedule["gain"].get<double>() > 1.1);
    CHECK(schedule["variants"]["refused"].size() == 5);

    // The next build takes it.
    const std::string device = schedule["device"]["name"], halide = schedule["halide"];
    const std::string command =
        "python3 -B " HALYARD_SOURCE_DIR "/generators/emit/emit.py --generator " HALYARD_FAKE_GENERATOR " --halide " +
        halide +
        " --triple x86-64-linux --target x86_sse41 --kernels ^halyard_rotate_half_f32_x86 --schedules auto"
        " --schedule-folder " +
        dir / "schedules" + " -o " + dir / "kernels" + " > " + dir / "log" + " 2>&1";
    CHECK(std::system(command.c_str()) == 0);
    CHECK(dir.read("log").empty());
    const json kernel = load_json(dir / "kernels/kernels_x86_sse41.json")["kernels"][0];
    CHECK(kernel["schedule"] == device);
    CHECK(kernel["parameters"] == schedule["parameters"]);
}

TEST_CASE("tuner: a GPU's variants that are wrong are named, and a right one is chosen", "[tuner]") {
    const json recipes = few_recipes();
    const std::string program = recipes["gpu_program"];
    const ScratchDir dir;
    if (program.empty() || std::system((program + " device opencl > " + dir / "device 2> /dev/null").c_str()) != 0) {
        SKIP("OpenCL has no device here");
    }
    const Tuned tuned = run_tuner(dir, recipes, dir / "schedules", "opencl", "60");
    INFO(tuned.text);
    CHECK(tuned.status == 0);
    for (const char *said :
         {"halyard_rotate_half_f32_opencl: 8/64/16/4 ", "element_threads 16",
          "refused element_threads 4: checking it failed: shape ",
          "refused element_threads 32: making it failed: halyard_rotate_half_f32_opencl: this generator cannot"}) {
        CHECK_THAT(tuned.text, ContainsSubstring(said));
    }
    const std::string device = dir.read("device").substr(0, dir.read("device").find('\n'));
    const std::string path = dir / "schedules/halyard_rotate_half_f32_opencl." + device + ".json";
    if (std::filesystem::exists(path)) {  // whether it is better depends on this machine
        const json schedule = load_json(path);
        CHECK(schedule["parameters"]["element_threads"] == 16);
        CHECK(schedule["device"]["driver"].get<std::string>().starts_with("OpenCL"));
    }
}

TEST_CASE("tuner: variants for CUDA that are wrong are named, on an emulated device", "[tuner]") {
    json recipes = few_recipes();
    if (recipes["gpu_program"] == "") {
        SKIP("no kernels for GPUs");
    }
    for (json &kernel : recipes["kernels"]) {
        if (kernel["name"].get<std::string>().ends_with("_cuda_sm80")) {
            kernel["link"].insert(kernel["link"].begin(), {"python3", HALYARD_FAKE_LINKER});
        }
    }
    const ScratchDir dir;
    setenv("LD_LIBRARY_PATH", HALYARD_EMULATED_CUDA_DIR, 1);
    const Tuned tuned = run_tuner(dir, recipes, dir / "schedules", "cuda_sm80", "60");
    unsetenv("LD_LIBRARY_PATH");
    INFO(tuned.text);
    CHECK(tuned.status == 0);  // whichever is the fastest: its times mean nothing
    for (const char *said :
         {"halyard_rotate_half_f32_cuda_sm80: ", "3 variants tried, 2 refused",
          "refused element_threads 4: checking it failed: shape ",
          "refused element_threads 32: making it failed: halyard_rotate_half_f32_cuda_sm80: this generator cannot"}) {
        CHECK_THAT(tuned.text, ContainsSubstring(said));
    }
}

TEST_CASE("tuner: a driver that computes nothing is not tuned for", "[tuner]") {
    const json recipes = few_recipes();
    if (recipes["gpu_program"] == "") {
        SKIP("no kernels for GPUs");
    }
    const ScratchDir dir;
    setenv("LD_LIBRARY_PATH", HALYARD_EMULATED_CUDA_DIR, 1);
    setenv("HALYARD_EMULATED_CUDA", "records", 1);
    const Tuned tuned = run_tuner(dir, recipes, dir / "schedules", "cuda_sm80", "60");
    unsetenv("HALYARD_EMULATED_CUDA");
    unsetenv("LD_LIBRARY_PATH");
    CHECK(tuned.status == 1);
    CHECK_THAT(tuned.text,
               ContainsSubstring("halyard_autotune: the default schedule can't be taken: checking it failed"));
}

TEST_CASE("tuner: makers of rows and strided kernels are checked and timed too", "[tuner]") {
    const auto [kernel, refused, work] = GENERATE(table<std::string, std::string, std::string>(
        {{"halyard_rows_phase", "pairs_per_step 8: halyard_rows_phase_x86_sse41: ", "512/hot/phase"},
         {"halyard_rows_factored", "pairs_per_step 8: halyard_rows_factored_x86_sse41: ", "1/hot/factored"},
         {"halyard_rotate_strided_f32", "elements_per_step_any 32: making it", "512/cold/strided"}}));
    const ScratchDir dir;
    const Tuned tuned = run_tuner(dir, few_recipes(), dir / "schedules", "x86_sse41", "60", kernel);
    INFO(tuned.text);
    CHECK(tuned.status == 0);
    CHECK_THAT(tuned.text, ContainsSubstring("2 variants tried, 1 refused"));
    CHECK_THAT(tuned.text, ContainsSubstring("refused " + refused));
    CHECK_THAT(tuned.text, ContainsSubstring(work));
}

TEST_CASE("tuner: what is missing is one sentence", "[tuner]") {
    const ScratchDir dir;
    const auto fails = [&](const json &recipes, const std::string &sentence) {
        const Tuned tuned = run_tuner(dir, recipes, "/dev/null/schedules");
        CHECK(tuned.status == 1);
        CHECK_THAT(tuned.text, ContainsSubstring(sentence));
        CHECK(std::count(tuned.text.begin(), tuned.text.end(), '\n') == 1);
    };
    json recipes = few_recipes();
    fails(recipes, "halyard_autotune: can't make the folder /dev/null/schedules");
    recipes["compiler"] = "/no/compiler";
    fails(recipes, "halyard_autotune: there is no compiler at /no/compiler");
    recipes["generator"] = "/no/generator";
    fails(recipes, "halyard_autotune: there is no generator at /no/generator");

    recipes = few_recipes();
    recipes["gpu_program"] = "/no/program";
    const Tuned without = run_tuner(dir, recipes, dir / "schedules", "cuda_sm80");
    CHECK(without.status == 1);
    CHECK_THAT(without.text, ContainsSubstring("halyard_autotune: no device for cuda_sm80: failed: "));
    recipes["gpu_program"] = "";
    CHECK(run_tuner(dir, recipes, dir / "schedules", "opencl").text ==
          "halyard_autotune: this build has no kernels for GPUs\n");
}

#endif

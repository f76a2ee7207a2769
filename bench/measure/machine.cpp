#include "measure/machine.h"

#include "halyard/halyard.hpp"
#include "rivals/loops.h"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <thread>

namespace halyard::bench {

namespace {

/// The first line of a file; empty when there is none.
std::string read_line(const std::filesystem::path &path) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    return line;
}

/// A field of the first CPU in /proc/cpuinfo, or "unknown".
std::string find_in_cpuinfo(const std::string &key) {
    std::ifstream file("/proc/cpuinfo");
    std::string line;
    while (std::getline(file, line) && !line.empty()) {
        const auto colon = line.find(": ");
        if (colon != line.npos && line.substr(0, line.find_first_of("\t:")) == key) {
            return line.substr(colon + 2);
        }
    }
    return "unknown";
}

/// The commit of the sources, followed by "-dirty" where files differ from it; "unknown" outside a repository.
std::string find_commit() {
    std::string command = "git -C '" HALYARD_SOURCE_DIR "' describe --always --dirty 2>/dev/null";
    std::string commit;
    if (std::FILE *const output = popen(command.c_str(), "r")) {
        char text[256];
        while (std::fgets(text, sizeof(text), output) != nullptr) {
            commit += text;
        }
        pclose(output);
    }
    commit.erase(commit.find_last_not_of("\n") + 1);
    return commit.empty() ? "unknown" : commit;
}

std::string find_loops() {
    std::string text;
#if defined(HALYARD_LOOPS_GCC)
    text += halyard_loops_gcc.compiler;
#else
    text += "no gcc";
#endif
#if defined(HALYARD_LOOPS_CLANG)
    text += std::string(", ") + halyard_loops_clang.compiler;
#else
    text += ", no clang";
#endif
    return text;
}

std::string find_caches() {
    std::string text;
    for (int i = 0; i < 8; i++) {
        const std::filesystem::path cache = "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(i);
        const std::string level = read_line(cache / "level"), size = read_line(cache / "size");
        if (!level.empty() && read_line(cache / "type") != "Instruction") {
            text += (text.empty() ? "L" : ", L") + level + " " + size;
        }
    }
    return text.empty() ? "unknown caches" : text;
}

std::string find_date() {
    const std::time_t now = std::time(nullptr);
    char text[16];
    std::tm date = {};
    std::strftime(text, sizeof(text), "%Y-%m-%d", gmtime_r(&now, &date));
    return text;
}

/// Seconds of each output in Ninja's log: lines of start and end in milliseconds, a time stamp, the output, a hash.
std::map<std::string, double> read_ninja_log(const std::filesystem::path &path) {
    std::map<std::string, double> seconds;
    std::ifstream file(path);
    std::string line, stamp, output;
    while (std::getline(file, line)) {
        std::istringstream words(line);
        double start = 0.0, end = 0.0;
        if (words >> start >> end >> stamp >> output) {
            seconds[std::filesystem::path(output).filename().string()] = (end - start) * 1e-3;
        }
    }
    return seconds;
}

}  // namespace

Machine describe_machine() {
    const std::string governor = read_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
    Machine machine;
    machine.family = find_in_cpuinfo("vendor_id") + " family " + find_in_cpuinfo("cpu family") + " model " +
                     find_in_cpuinfo("model");
    machine.cpu = find_in_cpuinfo("model name") + " (" + machine.family + "), " +
                  std::to_string(std::thread::hardware_concurrency()) + " CPUs";
    machine.stepping = find_in_cpuinfo("stepping");
    machine.caches = find_caches();
    machine.governor = governor.empty() ? "no governor shown" : "governor " + governor;
    machine.compiler = HALYARD_COMPILER;
    machine.loops = find_loops();
    machine.halide = HALYARD_HALIDE;
    machine.commit = find_commit();
    machine.date = find_date();
    return machine;
}

std::string Machine::text() const {
    return cpu + ", " + caches + ", " + governor + "\n" + compiler + ", Halide " + halide + ", Halyard " + commit +
           ", " + date + "; C loops: " + loops;
}

nlohmann::json Machine::json() const {
    return {{"cpu", cpu},     {"family", family}, {"caches", caches}, {"governor", governor}, {"compiler", compiler},
            {"loops", loops}, {"halide", halide}, {"commit", commit}, {"date", date}};
}

std::vector<Budget> find_budget(const std::filesystem::path &build_dir) {
    const auto seconds = read_ninja_log(build_dir / ".ninja_log");
    constexpr const char *stages[] = {"halyard_widen_", "halyard_norm_", "halyard_largest_", "halyard_narrow_"};
    std::vector<Budget> budgets;
    std::error_code ignored;
    for (const halyard_target_info &target : targets()) {
        Budget budget;
        budget.target = target.name;
        for (const auto &file : std::filesystem::directory_iterator(build_dir / "kernels", ignored)) {
            if (file.path().extension() == ".o" && file.path().stem().string().ends_with("_" + budget.target)) {
                const auto logged = seconds.find(file.path().filename().string());
                const std::string name = file.path().stem().string();
                budget.n_kernels++;
                budget.n_stage_kernels += std::any_of(std::begin(stages), std::end(stages),
                                                      [&](const char *stage) { return name.starts_with(stage); });
                budget.n_bytes += file.file_size();
                budget.seconds += logged == seconds.end() ? 0.0 : logged->second;
            }
        }
        if (budget.n_kernels > 0) {
            budgets.push_back(budget);
        }
    }
    return budgets;
}

}  // namespace halyard::bench

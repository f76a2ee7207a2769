#include "machine.h"

#include <ctime>
#include <filesystem>
#include <fstream>
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

std::string find_cpu() {
    std::ifstream file("/proc/cpuinfo");
    std::string name = "unknown CPU", family, model, line;
    while (std::getline(file, line) && !line.empty()) {
        const auto value = [&](const char *key) {
            return line.rfind(key, 0) == 0 && line.find(": ") != std::string::npos ? line.substr(line.find(": ") + 2)
                                                                                   : std::string();
        };
        name = value("model name").empty() ? name : value("model name");
        family = value("cpu family").empty() ? family : value("cpu family");
        model = value("model\t").empty() ? model : value("model\t");
    }
    return name + (family.empty() ? "" : " (family " + family + ", model " + model + ")") + ", " +
           std::to_string(std::thread::hardware_concurrency()) + " CPUs";
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

}  // namespace

Machine describe_machine() {
    const std::string governor = read_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
    return {find_cpu(),       find_caches(),  governor.empty() ? "no governor shown" : "governor " + governor,
            HALYARD_COMPILER, HALYARD_HALIDE, HALYARD_COMMIT,
            find_date()};
}

std::string Machine::text() const {
    return cpu + ", " + caches + ", " + governor + "\n" + compiler + ", Halide " + halide + ", Halyard " + commit +
           ", " + date;
}

nlohmann::json Machine::json() const {
    return {{"cpu", cpu},       {"caches", caches}, {"governor", governor}, {"compiler", compiler},
            {"halide", halide}, {"commit", commit}, {"date", date}};
}

}  // namespace halyard::bench

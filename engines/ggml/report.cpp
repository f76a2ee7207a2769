// The report, in JSON.
#include "report.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

namespace halyard_ggml {

namespace {

void write_counts(std::FILE *file, const char *name, const std::map<std::string, long long> &counts) {
    long long sum = 0;
    for (const auto &[what, n] : counts) {
        sum += n;
    }
    std::fprintf(file, "    \"%s\": {\n        \"nodes\": %lld", name, sum);
    for (const auto &[what, n] : counts) {
        std::string text;
        for (const char c : what) {
            text += c == '"' || c == '\\' ? std::string{'\\', c} : std::string{c};
        }
        std::fprintf(file, ",\n        \"%s\": %lld", text.c_str(), n);
    }
    std::fprintf(file, "\n    }");
}

/// It is written when the process ends.
struct Report {
    std::string path;
    std::mutex mutex;
    Counts sums;

    Report() {
        const char *asked = std::getenv("HALYARD_GGML_REPORT");
        path = asked == nullptr ? "" : asked;
    }
    ~Report() {
        std::FILE *file = path.empty() ? nullptr : std::fopen(path.c_str(), "w");
        if (file == nullptr) {
            return;
        }
        std::fprintf(file, "{\n");
        write_counts(file, "replaced", sums.replaced);
        std::fprintf(file, ",\n");
        write_counts(file, "left", sums.left);
        std::fprintf(file, "\n}\n");
        std::fclose(file);
    }
};

Report the_report;

}  // namespace

bool is_reporting() { return !the_report.path.empty(); }

std::string why_no_report() {
    std::FILE *file = is_reporting() ? std::fopen(the_report.path.c_str(), "a") : nullptr;
    if (file != nullptr) {
        std::fclose(file);
    }
    return !is_reporting() || file != nullptr
               ? ""
               : "HALYARD_GGML_REPORT is \"" + the_report.path + "\", which cannot be written: " + std::strerror(errno);
}

void report(const Counts &counts) {
    if (!is_reporting()) {
        return;
    }
    const std::lock_guard lock(the_report.mutex);
    for (const auto &[what, n] : counts.replaced) {
        the_report.sums.replaced[what] += n;
    }
    for (const auto &[why, n] : counts.left) {
        the_report.sums.left[why] += n;
    }
}

}  // namespace halyard_ggml

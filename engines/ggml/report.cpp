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

class Report {
public:
    Report() {
        const char *path = std::getenv("HALYARD_GGML_REPORT");
        path_ = path == nullptr ? "" : path;
    }
    Report(const Report &) = delete;
    Report &operator=(const Report &) = delete;
    ~Report() {
        std::FILE *file = path_.empty() ? nullptr : std::fopen(path_.c_str(), "w");
        if (file == nullptr) {
            return;
        }
        std::fprintf(file, "{\n");
        write_counts(file, "replaced", sums_.replaced);
        std::fprintf(file, ",\n");
        write_counts(file, "left", sums_.left);
        std::fprintf(file, "\n}\n");
        std::fclose(file);
    }

    bool is_wanted() const { return !path_.empty(); }

    /// Why it cannot be written, or nothing. The file is there then.
    std::string obstacle() const {
        std::FILE *file = path_.empty() ? nullptr : std::fopen(path_.c_str(), "a");
        if (file != nullptr) {
            std::fclose(file);
        }
        return path_.empty() || file != nullptr
                   ? ""
                   : "HALYARD_GGML_REPORT is \"" + path_ + "\", which cannot be written: " + std::strerror(errno);
    }

    void add(const Counts &counts) {
        const std::lock_guard lock(mutex_);
        for (const auto &[what, n] : counts.replaced) {
            sums_.replaced[what] += n;
        }
        for (const auto &[why, n] : counts.left) {
            sums_.left[why] += n;
        }
    }

private:
    std::string path_;
    std::mutex mutex_;
    Counts sums_;
};

Report the_report;

}  // namespace

bool is_reporting() { return the_report.is_wanted(); }

std::string report_obstacle() { return the_report.obstacle(); }

void report(const Counts &counts) {
    if (is_reporting()) {
        the_report.add(counts);
    }
}

}  // namespace halyard_ggml

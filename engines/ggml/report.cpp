// The report, in JSON.
#include "report.h"

#include <cstdio>
#include <cstdlib>
#include <map>
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
        write_counts(file, "replaced", replaced_);
        std::fprintf(file, ",\n");
        write_counts(file, "left", left_);
        std::fprintf(file, "\n}\n");
        std::fclose(file);
    }

    bool is_wanted() const { return !path_.empty(); }

    void replaced(const std::string &what, int n_nodes) {
        const std::lock_guard lock(mutex_);
        replaced_[what] += n_nodes;
    }
    void left(const std::string &why) {
        const std::lock_guard lock(mutex_);
        ++left_[why];
    }

private:
    std::string path_;
    std::mutex mutex_;
    std::map<std::string, long long> replaced_, left_;
};

Report report;

}  // namespace

bool is_reporting() { return report.is_wanted(); }

void report_replaced(const std::string &what, int n_nodes) { report.replaced(what, n_nodes); }

void report_left(const std::string &why) { report.left(why); }

}  // namespace halyard_ggml

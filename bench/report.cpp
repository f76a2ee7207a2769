#include "report.h"

#include "ceiling.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>

namespace halyard::bench {

namespace {

/// The ceilings of tensors of one size, shared by all rows of that size.
struct Ceiling {
    Buffer from, to;
    Subject copy, copy_past_caches, multiply;

    explicit Ceiling(std::size_t n_bytes) : from(n_bytes), to(n_bytes) {
        copy.call = [this] { std::memcpy(to.data(), from.data(), from.n_bytes()); };
        copy_past_caches.call = [this] {
            bench::copy_past_caches(static_cast<float *>(to.data()), static_cast<const float *>(from.data()),
                                    from.n_bytes());
        };
        multiply.call = [this] { multiply_in_place(static_cast<float *>(from.data()), from.n_bytes()); };
    }
    Ceiling(const Ceiling &) = delete;
    Ceiling &operator=(const Ceiling &) = delete;

    double seconds(bool in_place) const {
        const double copied = std::min(summarise(copy.seconds).median, summarise(copy_past_caches.seconds).median);
        return in_place ? std::min(copied, summarise(multiply.seconds).median) : copied;
    }
};

std::string text_of(const Shape &shape) {
    return std::to_string(shape.tokens) + " x " + std::to_string(shape.heads) + " x " + std::to_string(shape.head_dim);
}

}  // namespace

std::vector<Row> time_workloads(const std::vector<std::unique_ptr<Workload>> &workloads, Effort effort,
                                const halyard_executor *executor) {
    std::map<std::size_t, Ceiling> ceilings;
    std::vector<Subject> runs(workloads.size());
    std::vector<Subject *> subjects;
    for (std::size_t i = 0; i < workloads.size(); i++) {
        runs[i].call = [&work = *workloads[i], executor] { work.run(executor); };
        subjects.push_back(&runs[i]);
        const std::size_t n_bytes = workloads[i]->tensor_bytes();
        const auto [at, is_new] = ceilings.try_emplace(n_bytes, n_bytes);
        if (is_new) {
            Ceiling &ceiling = at->second;
            subjects.insert(subjects.end(), {&ceiling.copy, &ceiling.copy_past_caches, &ceiling.multiply});
        }
    }
    measure(subjects, effort.n_rounds, effort.seconds_each);

    std::vector<Row> rows;
    for (std::size_t i = 0; i < workloads.size(); i++) {
        const Workload &work = *workloads[i];
        rows.push_back({"halyard_rotate_" + work.name() + "_" + work.target(), work.angles(), work.shape(),
                        work.n_bytes(), summarise(runs[i].seconds),
                        ceilings.at(work.tensor_bytes()).seconds(work.in_place())});
    }
    return rows;
}

void print_rows(const std::vector<Row> &rows) {
    std::printf("%-56s %-8s %15s %21s %8s %8s\n", "kernel", "angles", "shape", "time, us", "GB/s", "ceiling");
    double noise = 0.0;
    for (const Row &row : rows) {
        noise = std::max(noise, row.timing.spread / row.timing.median);
        std::printf("%-56s %-8s %15s %12.3f +- %5.3f %8.1f %8.2f\n", row.kernel.c_str(), row.angles.c_str(),
                    text_of(row.shape).c_str(), row.timing.median * 1e6, row.timing.spread * 1e6,
                    static_cast<double>(row.n_bytes) / row.timing.median * 1e-9, row.ratio());
    }
    if (noise > 0.1) {
        std::printf("This machine is noisy: the spread reaches %.0f %% of a median.\n", noise * 100.0);
    }
}

nlohmann::json to_json(const std::vector<Row> &rows) {
    nlohmann::json array = nlohmann::json::array();
    for (const Row &row : rows) {
        array.push_back({{"kernel", row.kernel},
                         {"angles", row.angles},
                         {"shape", {row.shape.tokens, row.shape.heads, row.shape.head_dim}},
                         {"bytes", row.n_bytes},
                         {"median_seconds", row.timing.median},
                         {"spread_seconds", row.timing.spread},
                         {"ceiling_seconds", row.ceiling_seconds},
                         {"ratio", row.ratio()}});
    }
    return array;
}

}  // namespace halyard::bench

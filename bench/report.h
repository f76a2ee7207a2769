// Times workloads in one interleaved run, with what the memory allows beside them, and prints the table.
#pragma once

#include "measure.h"
#include "workload.h"

#include <nlohmann/json.hpp>

#include <memory>
#include <string>
#include <vector>

namespace halyard::bench {

/// One line of the table.
struct Row {
    std::string kernel, angles;
    Shape shape;
    std::size_t n_bytes;
    Timing timing;
    double ceiling_seconds;  // the fastest of memcpy, a non-temporal copy and (in place) a multiply of the same bytes

    double ratio() const { return ceiling_seconds / timing.median; }
};

struct Effort {
    int n_rounds;
    double seconds_each;
};
inline constexpr Effort quick = {7, 1e-3};
inline constexpr Effort thorough = {15, 4e-3};

std::vector<Row> time_workloads(const std::vector<std::unique_ptr<Workload>> &workloads, Effort effort,
                                const halyard_executor *executor);

/// Prints rows to standard output, and a warning when the machine was noisy.
void print_rows(const std::vector<Row> &rows);

nlohmann::json to_json(const std::vector<Row> &rows);

}  // namespace halyard::bench

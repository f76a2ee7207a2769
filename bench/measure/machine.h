// The head of every table: what was measured and where, and what the kernels cost.
#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace halyard::bench {

struct Machine {
    std::string cpu;     // with its family and model, and how many there are
    std::string family;  // "AuthenticAMD family 25 model 17": CPUs of which ratios are alike
    std::string stepping, caches, governor, compiler, loops, halide, commit, date;
    std::string text() const;
    nlohmann::json json() const;
};

Machine describe_machine();

/// What the kernels for a target cost.
struct Budget {
    std::string target;
    int n_kernels = 0;
    std::uintmax_t n_bytes = 0;  // of object files
    double seconds = 0.0;        // of one core, as Ninja logged it; 0 where it did not
};

/// Of a build's kernels; empty where there are none.
std::vector<Budget> find_budget(const std::filesystem::path &build_dir);

}  // namespace halyard::bench

// Describes the machine and the build: the head of every table, and what the kernels cost in bytes and seconds.
#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace halyard::bench {

struct Machine {
    std::string cpu;     // with its family and model, and how many there are
    std::string family;  // "AuthenticAMD family 25 model 17": CPUs of one family have similar ratios
    std::string stepping, caches, governor, compiler, loops, halide, commit, date;
    std::string text() const;
    nlohmann::json json() const;
};

Machine describe_machine();

/// What a target's kernels cost to build.
struct Budget {
    std::string target;
    int n_kernels = 0;
    int n_stage_kernels = 0;     // those of them for a road's stages beside the rotation
    std::uintmax_t n_bytes = 0;  // of object files
    double seconds = 0.0;        // of one core, from Ninja's log; 0 where the log has none
};

/// What the kernels of a build cost, by target; empty where there are none.
std::vector<Budget> find_budget(const std::filesystem::path &build_dir);

}  // namespace halyard::bench

// The head of every table: what was measured, and where.
#pragma once

#include <nlohmann/json.hpp>

#include <string>

namespace halyard::bench {

struct Machine {
    std::string cpu, caches, governor, compiler, halide, commit, date;
    std::string text() const;
    nlohmann::json json() const;
};

Machine describe_machine();

}  // namespace halyard::bench

// What the server has made ready: things that are compared with each other, on memory that they share.
#pragma once

#include "halyard/halyard.hpp"
#include "measure/placed_work.h"
#include "measure/subject.h"

#include <nlohmann/json.hpp>

#include <map>
#include <vector>

namespace halyard::bench {

/// What a rival in this process or another may be off by, in lengths of a pair, until its result is wrong. What rounds
/// angles to f32 or results to bf16 stays below it.
inline constexpr double wrong_error = 0.05;

/// Where works are placed and on what threads they run.
struct Site {
    const Arena &arena;
    std::map<int, pool> &pools;

    /// NULL for one thread.
    const halyard_executor *executor(int n_threads) const {
        return n_threads > 1 ? pools.try_emplace(n_threads, n_threads).first->second.executor() : nullptr;
    }
};

class Prepared {
public:
    virtual ~Prepared() = default;

    std::vector<Subject> subjects;  // the first is Halyard
    nlohmann::json about;           // what else the driver has to know: the target, and what peers are told

    /// Brings the inputs back and poisons the outputs.
    virtual void reset() = 0;
    /// Compares what a peer has left, at a place of the arena, with the formula: {"max_error", "wrong"}.
    virtual nlohmann::json check(std::size_t at) const = 0;
};

}  // namespace halyard::bench

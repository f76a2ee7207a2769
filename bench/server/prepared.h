// A work made ready: Halyard in several ways, C loops, and the loops that set ceilings, on memory that they share.
#pragma once

#include "server/placed.h"
#include "server/serve.h"

#include <map>
#include <string>
#include <vector>

namespace halyard::bench {

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
    /// "rivals" of the request names the kinds that are wanted of a rotation; without it there are all. Each result is
    /// checked.
    Prepared(const nlohmann::json &request, const Site &site);

    std::vector<Subject> subjects;  // the first is Halyard
    nlohmann::json about;           // what else the driver has to know: the target, and where peers find what they need

    /// Brings the inputs back and poisons the outputs.
    void reset() const { placed_.reset(); }
    /// Compares what a peer has left, where Halyard leaves it, with the formula: {"max_error", "wrong"}.
    nlohmann::json check();

private:
    Placed placed_;
    const halyard_executor *executor_;
    std::string target_;
    std::vector<std::string> wanted_ = {"reference", "one_thread", "bound", "kernels", "angles", "loop", "ceiling"};

    void prepare_rotation();
    void prepare_road();
    void add_own_rivals(const std::string &target);
    void add_ceilings(const halyard_executor *executor);
    bool is_wanted(const char *kind) const;
    nlohmann::json find_places() const;
    template <typename Run>
    void add(const std::string &name, const char *kind, double slack, Run run, bool with_norm = true);
};

}  // namespace halyard::bench

// A row of the bench's table: one work, timed in the same rounds as its rivals and as the loops that set its ceilings.
#pragma once

#include "measure/ceilings.h"
#include "measure/timing.h"
#include "measure/work.h"
#include "rivals/peers.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace halyard::bench {

/// Something else that does the same work.
struct Rival {
    enum class Kind { reference, one_thread, bound, kernels, angles, loop, peer };
    Kind kind;
    std::string name, form;
    Timing timing;                  // all zero when it failed
    double overhead_seconds = 0.0;  // for a peer: what a call takes that has next to nothing to do
    double max_error = 0.0;
    bool wrong = false;  // its result is not the rotation
};

struct Row {
    Work work;
    std::string target;
    Timing timing;
    double max_error;
    bool wrong;  // not within what Halyard promises
    Ceilings ceilings;
    std::vector<Rival> rivals;

    std::string kernel() const { return "halyard_rotate_" + work.kernel() + "_" + target; }
    /// The part of the lower ceiling that is reached.
    double ratio() const { return ceilings.lower().median / timing.median; }
    /// The fastest rival of a kind whose result is right; NULL where there is none.
    const Rival *best(Rival::Kind kind) const;
    /// Whether a loop or a peer is faster by more than both spreads.
    bool loses() const;
};

/// How works are timed.
struct Setting {
    Effort effort = thorough;
    std::string target;  // empty: the best one
    std::map<int, std::unique_ptr<pool>> pools;
    Peers *peers = nullptr;
};

Row measure_row(const Work &work, const Arena &arena, const Setting &setting);

/// The errors of Halyard, the loops and the peers at the last of 131,072 positions, in f32.
struct Accuracy {
    std::string name;
    std::map<std::string, double> max_error;  // by pairing
};
std::vector<Work> accuracy_works();
std::vector<Accuracy> measure_accuracy(const Arena &arena, const Setting &setting);

}  // namespace halyard::bench

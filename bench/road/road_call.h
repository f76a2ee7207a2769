// Halyard on a placed road: in one call, or a stage at a time.
#pragma once

#include "road/placed_road.h"

#include <memory>
#include <vector>

namespace halyard::bench {

enum class RoadForm {
    fused,         // one run
    without_norm,  // the same of a plan that has no norm
    separate,      // each stage a run over whole tensors: norm, rotation, conversion and store, with bf16 between them
};

class RoadCall {
public:
    /// The placed road must outlive this.
    RoadCall(const PlacedRoad &placed, RoadForm form, const char *target);

    void run() const;
    void run_bound() const;
    std::size_t n_runs() const { return steps_.size(); }
    const char *target() const;

private:
    struct Step;
    struct Stages {
        bool norm, rotation, store;
    };
    /// What a step does to a tensor, and where it reads and writes.
    struct PartOfStep {
        bool norms, rotates, stores;
        halyard_tensor x, y;
    };
    static PartOfStep take_part(const PlacedRoad &placed, std::size_t i, const Stages &stages, const Stages &done);
    void bind(const PlacedRoad &placed, Step &step, bool rotates, bool has_cache) const;
    void add_step(const PlacedRoad &placed, const Stages &stages, const Stages &done, const char *target);

    std::shared_ptr<const angle_source> angles_;
    std::vector<std::shared_ptr<Step>> steps_;
};

}  // namespace halyard::bench

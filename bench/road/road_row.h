// A row of the road's table: one call, timed in the same rounds as other ways to the same result.
#pragma once

#include "measure/row.h"
#include "road/placed_road.h"

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace halyard::bench {

/// One way to take a road.
struct RoadWay {
    enum class Kind { fused, unbound, without_norm, separate, loop, peer };
    Kind kind;
    std::string name, form;  // a compiler's or a peer's, and what the peer does in its own words
    PlacedRoad::Check check;
    Timing timing;  // all zero when it failed

    bool is_wrong() const { return check.n_wrong > 0; }
};

struct RoadRow {
    RoadWork work;
    std::string target;
    std::vector<RoadWay> ways;  // the first is the fused one

    const RoadWay *find(RoadWay::Kind kind, const std::string &name = "") const;
    /// Whether anything of Halyard's own is wrong.
    bool is_wrong() const;
    /// Whether a loop or a peer is faster by more than both spreads.
    bool loses() const;
};

/// Only works whose names match the selection's filter; a quick run leaves out those of 512 tokens.
std::vector<RoadRow> measure_roads(const Selection &selection, const std::vector<std::string> &peers,
                                   double peer_seconds, const Setting &setting);
RoadRow measure_road(const RoadWork &work, const Arena &arena, const Setting &setting);

std::string format_roads(const std::vector<RoadRow> &rows);
nlohmann::json to_json(const RoadRow &row);

}  // namespace halyard::bench

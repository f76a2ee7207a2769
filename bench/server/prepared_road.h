// A layer's road from projection to cache, ready to be timed: by Halyard in several ways and by C loops.
#pragma once

#include "road/placed_road.h"
#include "server/prepared.h"

#include <memory>

namespace halyard::bench {

/// "model" is one of road_models(), "cache" bf16 or e4m3.
RoadWork read_road(const nlohmann::json &described);

std::unique_ptr<Prepared> prepare_road(const nlohmann::json &request, const Site &site);

}  // namespace halyard::bench

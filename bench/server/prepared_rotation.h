// A rotation, ready to be timed: by Halyard in several ways, by C loops, and the loops that set its ceilings.
#pragma once

#include "server/prepared.h"

#include <memory>

namespace halyard::bench {

/// "rivals" of the request names the kinds that are wanted; without it there are all. Each result is checked.
std::unique_ptr<Prepared> prepare_rotation(const nlohmann::json &request, const Site &site);

}  // namespace halyard::bench

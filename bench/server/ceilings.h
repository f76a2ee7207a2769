// The ceilings of a rotation: what memory allows, and for 16-bit elements what converting them allows.
#pragma once

#include "server/placed.h"
#include "server/serve.h"

#include <vector>

namespace halyard::bench {

/// Adds all loops that set a ceiling of a work to what is timed, on all threads of an executor if there is one.
void add_ceilings(std::vector<Subject> &subjects, Placed &placed, const halyard_executor *executor);

}  // namespace halyard::bench

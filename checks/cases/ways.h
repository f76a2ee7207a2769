// The ways in which a case's run can be made, on every target, which all give the same bits.
#pragma once

#include "checks/cases/bound_pointers.h"
#include "checks/cases/case.h"
#include "checks/require.h"

namespace cases {

enum class Way { whole, parts, pool, bound, bound_parts };
inline constexpr Way all_ways[] = {Way::whole, Way::parts, Way::pool, Way::bound, Way::bound_parts};

/// Makes a run, in so many parts or by so many threads where that is its way. All parts must return the same status.
halyard_status run(const halyard_plan *plan, const Call &call, Way way, std::int32_t n_parts, WatchedError &error);

/// What a case's run leaves in memory. Throws where it is refused.
Images run(Case &drawn, const char *target, Way way, std::int32_t n_parts = 3);

/// The same by the model, whose bits all targets have.
Images run_model(Case &drawn);

/// The targets of this machine that can make a run: the reference has no stages beside the rotation.
std::vector<const char *> targets_of(const Call &call);

/// What is wrong with what any way leaves on any target that this machine can run, or its tokens one by one, in words,
/// or nothing. The model is judged by the oracle; all targets have its bits.
std::string fault_of_ways(Case &drawn);

}  // namespace cases

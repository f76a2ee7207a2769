// Runs a case in every run mode (whole, in parts, on a pool, bound) and on every target. All must give the same bits.
#pragma once

#include "checks/cases/bound_pointers.h"
#include "checks/cases/case.h"
#include "checks/require.h"

namespace cases {

enum class RunMode { whole, parts, pool, bound, bound_parts };
inline constexpr RunMode all_run_modes[] = {RunMode::whole, RunMode::parts, RunMode::pool, RunMode::bound,
                                            RunMode::bound_parts};

/// Makes a run, in n_parts parts or on a pool of n_parts threads. Returns the status, which all parts must share.
halyard_status run(const halyard_plan *plan, const Call &call, RunMode mode, std::int32_t n_parts, WatchedError &error);

/// Runs a case and returns the contents of memory after it. Throws if the run is refused.
Images run(Case &drawn, const char *target, RunMode mode, std::int32_t n_parts = 3);

/// The same by the model of the kernels, whose bits all targets must match.
Images run_kernel_model(Case &drawn);

/// The targets of this machine that can make a run. If the call has KV stages, the reference is not one of them.
std::vector<const char *> targets_of(const Call &call);

/// Checks the model's run against the oracle, then compares its bits with runs on all targets of this machine, in all
/// run modes, and token by token. Returns a message, or an empty string.
std::string fault_in_run_modes(Case &drawn);

}  // namespace cases

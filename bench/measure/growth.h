// How cost grows with tokens, heads and head_dim: time, memory, and what more threads change.
#pragma once

#include "measure/measure.h"

namespace halyard::bench {

/// Prints a table for each, a line as soon as it is measured. With n_threads above 1 also their speed-up.
void print_growth(const Effort &effort, int n_threads);

}  // namespace halyard::bench

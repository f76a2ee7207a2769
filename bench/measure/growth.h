// Measures how time and memory grow with tokens, heads and head_dim, and what more threads change.
#pragma once

#include "measure/timing.h"

namespace halyard::bench {

/// Prints a table for each, line by line as they are measured. With n_threads above 1 it shows their speed-up too.
void print_growth(const Effort &effort, int n_threads);

}  // namespace halyard::bench

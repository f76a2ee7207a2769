// Tests a kernel that rotates, between guard pages and against the oracle.
#pragma once

#include "core/kernels.h"

#include <cstdint>
#include <functional>
#include <string>

struct KernelReport {
    std::string fault;  // the first fault, in words; empty when there is none
    std::int64_t n_runs = 0;
    std::int64_t n_outputs = 0;  // elements of rotated pairs that were compared
};

/// Runs a kernel through halyard_run on random bits in random layouts. Compares the outputs, and all memory around and
/// between them, with what they ought to hold, bit for bit but for the payload of a NaN. A kernel that serves the same
/// as one in the runtime's list is tested where a plan would choose that one, any other kernel everywhere. `effort` is
/// how often each count of pairs comes up. The kernel runs in a process of its own, so that a crash is a fault like
/// others and names what was tried. Taking longer than the limit is a fault too.
KernelReport check_kernel(const halyard::Kernel &kernel, std::uint64_t seed, int effort = 30,
                          unsigned limit_seconds = 0);

/// What a check is about to try, in words.
using TrialText = char[1000];

/// Runs a check in a process of its own, in which it says what it is about to try; `name` is what is checked.
KernelReport check_apart(const std::string &name, unsigned limit_seconds,
                         const std::function<KernelReport(TrialText &)> &check);

// Tests a kernel that makes rows of cos and sin, between guard pages and against exact values.
#pragma once

#include "checks/kernel_checker.h"
#include "checks/make_sources.h"
#include "checks/oracle.h"

#include <cstdint>
#include <string>

inline constexpr double phase_bound = 1.2e-7;  // how far off cos and sin may be, times attention_factor

/// A buffer as a kernel reads it.
struct RowBuffer {
    halyard_buffer header = {};
    halyard_dimension dims[3] = {};

    RowBuffer(const void *data, std::int64_t n, std::int64_t stride_member = 0, std::int64_t n_rows = 0,
              std::int64_t stride_row = 0);
    RowBuffer(const RowBuffer &) = delete;
    RowBuffer &operator=(const RowBuffer &) = delete;
};

std::int32_t random_position(oracle::Random &random);

/// Exact cos and sin of position * turns, in units of 2^-64 turns; the product wraps in 64 bits.
ExactCosSin exact_of_turns(std::uint64_t turns, std::int32_t position);

/// Makes rows in random layouts between guard pages, in a process of its own like check_kernel. Compares them with
/// exact arithmetic, and bit for bit with the reference. A NULL kernel means the reference.
KernelReport check_phase_rows(const std::string &name, halyard_rows_phase_kernel *kernel, std::uint64_t seed,
                              int n_trials, unsigned limit_seconds = 0);

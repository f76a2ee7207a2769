// Finds what is wrong with a maker of rows.
#pragma once

#include "checks/kernel_checker.h"
#include "checks/oracle.h"
#include "checks/sources.h"

#include <cstdint>
#include <string>

inline constexpr double phase_bound = 1.2e-7, factored_bound = 2.4e-7;  // of cos and sin, times attention_factor

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

/// What a kernel has to work out, with the angle exact: position * turns wraps in 64 bits.
ExactCosSin exact_of_turns(std::uint64_t turns, std::int32_t position);

/// Makes rows in random layouts between pages that nothing may touch, and compares them with the reference, bit for bit
/// where the target has FMA (`fused`), and with exact arithmetic; NULL is the reference itself. In a process of its
/// own, like check_kernel.
KernelReport check_phase_rows(const std::string &name, halyard_rows_phase_kernel *kernel, bool fused,
                              std::uint64_t seed, int n_trials, unsigned limit_seconds = 0);
KernelReport check_factored_rows(const std::string &name, halyard_rows_factored_kernel *kernel, bool fused,
                                 std::uint64_t seed, int n_trials, unsigned limit_seconds = 0);

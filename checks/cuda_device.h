// The real CUDA device that tests run on.
#pragma once

#include "checks/cuda_memory.h"
#include "halyard/halyard_cuda.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cstdlib>

namespace cuda_test {

/// The only queue of this process, because contexts are expensive. Skips the test if no device can be used.
inline const halyard_cuda_queue &device_queue() {
    if (const auto target = halyard::cuda_target(HALYARD_CUDA); target.supported == 0) {
        SKIP(target.reason);
    }
    static const Queue queue;
    // Destroying a context's last plan unloads the compiled kernels, so one plan is kept.
    static const halyard::cuda_angles angles(
        queue.get(), halyard::angle_source::table(halyard::frequencies::from_base(10000, 16), 0, 1));
    static const halyard::cuda_plan plan(
        queue.get(),
        halyard::plan_desc(16, {halyard::describe_tensor(halyard::dtype::f32, 16, halyard::pairing::half)}), angles);
    return queue.get();
}

/// How many random calls a test makes: `n_calls`, times HALYARD_CUDA_ROUNDS if that environment variable is set.
inline int n_calls_times_rounds(int n_calls) {
    const char *const rounds = std::getenv("HALYARD_CUDA_ROUNDS");
    return n_calls * (rounds != nullptr ? std::max(std::atoi(rounds), 1) : 1);
}

}  // namespace cuda_test

// The CUDA device that tests run on.
#pragma once

#include "checks/cuda_memory.h"
#include "halyard/halyard_cuda.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cstdlib>

namespace cuda_test {

/// The one queue of this process, because contexts cost much. Skips the test where the device cannot be used.
inline const halyard_cuda_queue &device_queue() {
    if (const auto target = halyard::cuda_target(HALYARD_CUDA); target.supported == 0) {
        SKIP(target.reason);
    }
    static const Queue queue;
    // The last plan of a context takes the compiled kernels with it, so one plan is kept.
    static const halyard::cuda_angles angles(
        queue.get(), halyard::angle_source::table(halyard::frequencies::from_base(10000, 16), 0, 1));
    static const halyard::cuda_plan plan(
        queue.get(),
        halyard::plan_desc(16, {halyard::describe_tensor(halyard::dtype::f32, 16, halyard::pairing::half)}), angles);
    return queue.get();
}

/// How many random calls a test makes: usually so many, and HALYARD_CUDA_ROUNDS times as many where that is set.
inline int n_calls(int usual) {
    const char *const rounds = std::getenv("HALYARD_CUDA_ROUNDS");
    return usual * (rounds != nullptr ? std::max(std::atoi(rounds), 1) : 1);
}

}  // namespace cuda_test

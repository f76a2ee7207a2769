// Shares a run out as tasks to the threads of an executor.
#pragma once

#include "rotate/read_run.h"

#include <algorithm>

namespace halyard {

/// Which part of a run a task does.
struct Share {
    std::int64_t index, count;
};

/// How many threads have enough to do.
std::int64_t count_worthwhile_threads(const Run &run) noexcept;

/// How many tasks a run's executor is given; 1: it is not called. (Inline for the cost of a run.)
inline std::int64_t count_tasks(const Run &run) noexcept {
    return run.executor.n_threads <= 1
               ? 1
               : std::clamp<std::int64_t>(count_worthwhile_threads(run), 1, run.executor.n_threads);
}

/// Has the executor do all shares, and sees that each was done once.
halyard_status run_on_executor(const Run &run, std::int64_t n_tasks, void (*do_share)(const Run &, const Share &),
                               halyard_error *error) noexcept;

}  // namespace halyard

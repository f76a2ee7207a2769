// Divides a call between the tasks of an executor.
#pragma once

#include "base/error.h"
#include "base/work_share.h"
#include "core/check_and_bind.h"

#include <atomic>

namespace halyard {

/// A call that an executor runs: each task is a share of it.
struct SharedCall {
    void (*function)(const void *context, const Share &share);
    const void *context;
    std::int64_t n_tasks;
    std::atomic<std::int64_t> n_done{0};
    std::atomic<std::int64_t> n_refused{0};
    std::atomic<std::uint64_t> started[1024 / 64] = {};  // a bit for each task; an executor has at most 1024 threads

    /// Runs all tasks on the executor. Fails if the executor fails, or does not run each task exactly once.
    halyard_status run(const halyard_executor &executor, halyard_error *error) noexcept;
};

/// Calls function(share) for all shares of a call, on the program's executor; or, if the call is one task, once.
template <typename Function>
halyard_status run_shares(const Program &program, const Share &whole, const Function &function,
                          halyard_error *error) noexcept {
    if (program.n_tasks == 1) {
        function(whole);
        return HALYARD_OK;
    }
    SharedCall shared;
    shared.function = [](const void *context, const Share &share) { (*static_cast<const Function *>(context))(share); };
    shared.context = &function;
    shared.n_tasks = program.n_tasks;
    return shared.run(program.executor, error);
}

}  // namespace halyard

// Shares a call out to an executor.
#pragma once

#include "base/error.h"
#include "base/share.h"
#include "core/program.h"

#include <atomic>

namespace halyard {

/// The shares of a call, as tasks of an executor.
struct SharedCall {
    void (*function)(const void *context, const Share &share);
    const void *context;
    std::int64_t n_tasks;
    std::atomic<std::int64_t> n_done{0};
    std::atomic<std::int64_t> n_refused{0};
    std::atomic<std::uint64_t> started[1024 / 64] = {};  // a bit for each task; an executor has at most 1024 threads

    /// Has the executor do all of them.
    halyard_status run(const halyard_executor &executor, halyard_error *error) noexcept;
};

/// Calls function(share) for all shares of a call, on the program's executor.
template <typename Function>
halyard_status on_executor(const Program &program, const Function &function, halyard_error *error) noexcept {
    SharedCall shared;
    shared.function = [](const void *context, const Share &share) { (*static_cast<const Function *>(context))(share); };
    shared.context = &function;
    shared.n_tasks = program.n_tasks;
    return shared.run(program.executor, error);
}

}  // namespace halyard

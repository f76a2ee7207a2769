#include "core/threads.h"

namespace halyard {

namespace {

/// Marks a task as started. Returns false if it does not exist or was started before: in place, a task that runs twice
/// would rotate twice.
bool try_start(SharedCall &shared, std::int64_t index) {
    const std::uint64_t bit = std::uint64_t(1) << (index & 63);
    return index >= 0 && index < shared.n_tasks && (shared.started[index / 64].fetch_or(bit) & bit) == 0;
}

void do_task(void *data, std::int64_t index) {
    auto &shared = *static_cast<SharedCall *>(data);
    if (!try_start(shared, index)) {
        shared.n_refused.fetch_add(1);
        return;
    }
    shared.function(shared.context, {index, shared.n_tasks});
    shared.n_done.fetch_add(1, std::memory_order_acq_rel);
}

}  // namespace

halyard_status SharedCall::run(const halyard_executor &executor, halyard_error *error) noexcept {
    std::int32_t result = -1;
    try {
        result = executor.parallel_for(executor.context, n_tasks, &do_task, this);
    } catch (...) {
        return fail(error, HALYARD_ERROR_EXECUTOR, "executor.parallel_for threw an exception");
    }
    if (result != 0) {
        return fail(error, HALYARD_ERROR_EXECUTOR, "executor.parallel_for returned ", result);
    }
    const std::int64_t done = n_done.load(std::memory_order_acquire);
    if (done != n_tasks) {
        return fail(error, HALYARD_ERROR_EXECUTOR, "executor.parallel_for ran ", done, " of ", n_tasks, " tasks");
    }
    if (n_refused.load() != 0) {
        return fail(error, HALYARD_ERROR_EXECUTOR,
                    "executor.parallel_for ran a task twice, or one that does not exist");
    }
    return HALYARD_OK;
}

}  // namespace halyard

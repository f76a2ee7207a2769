// Shares work between the threads of an executor.
#pragma once

#include "halyard/halyard.h"

#include <cstdint>

namespace halyard::bench {

/// Calls part(first, last) for shares of n things, on all threads of an executor; with none on this thread.
template <typename Part>
void share(const halyard_executor *executor, std::int64_t n, const Part &part) {
    if (executor == nullptr) {
        return part(0, n);
    }
    struct Shared {
        std::int64_t n, n_tasks;
        const Part &part;
    } shared = {n, executor->n_threads, part};
    executor->parallel_for(
        executor->context, shared.n_tasks,
        [](void *data, std::int64_t i) {
            const auto &all = *static_cast<const Shared *>(data);
            all.part(all.n * i / all.n_tasks, all.n * (i + 1) / all.n_tasks);
        },
        &shared);
}

}  // namespace halyard::bench

#include "tokens.h"

#include <dlfcn.h>

#include <atomic>
#include <map>

namespace halyard::python {
namespace {

using Task = void (*)(void *data, std::int64_t index);
using Parallel = void (*)(void (*each)(void *), void *data, unsigned n_threads, unsigned flags);

/// Tasks that the threads of a team take one by one.
struct Team {
    Task task;
    void *data;
    std::int64_t n_tasks;
    std::atomic<std::int64_t> next{0};

    static void work(void *self) {
        auto &team = *static_cast<Team *>(self);
        for (auto i = team.next++; i < team.n_tasks; i = team.next++) {
            team.task(team.data, i);
        }
    }
};

template <typename Function>
Function find(const char *name) {
    return reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
}

std::int32_t parallel_for(void *, std::int64_t n_tasks, Task task, void *data) {
    static const auto parallel = find<Parallel>("GOMP_parallel");
    Team team{task, data, n_tasks};
    // 0: the whole team, whatever there is to do. A smaller one would end threads, and their bindings to cores with
    // them.
    parallel(Team::work, &team, 0, 0);
    return 0;
}

}  // namespace

std::int32_t count_openmp_threads() {
    static const auto most = find<int (*)()>("omp_get_max_threads");
    static const bool works = most != nullptr && find<Parallel>("GOMP_parallel") != nullptr;
    return works ? most() : 1;
}

const halyard_executor *find_openmp_executor() {
    const auto n_threads = count_openmp_threads();
    if (n_threads < 2) {
        return nullptr;
    }
    static auto *const executors = new std::map<std::int32_t, halyard_executor>;
    auto &executor = (*executors)[n_threads];
    executor.size = sizeof executor;
    executor.n_threads = n_threads < 1024 ? n_threads : 1024;
    executor.parallel_for = parallel_for;
    return &executor;
}

}  // namespace halyard::python

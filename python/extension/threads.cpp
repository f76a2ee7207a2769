#include "positions.h"

#include <dlfcn.h>
#include <link.h>

#include <atomic>
#include <map>

namespace halyard::python {
namespace {

using Task = void (*)(void *data, std::int64_t index);
using Parallel = void (*)(void (*each)(void *), void *data, unsigned n_threads, unsigned flags);

/// The tasks of a call. The threads of an OpenMP team take them one by one.
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
    // 0: all threads of OpenMP, however few tasks there are. With a smaller number OpenMP would end the other threads,
    // which the engine has bound to cores.
    parallel(Team::work, &team, 0, 0);
    return 0;
}

/// The number of libraries that the process has loaded so far. Reading it is faster than a failing search for a symbol.
std::uint64_t count_loaded_libraries() {
    std::uint64_t n = 0;
    const auto read_first = [](dl_phdr_info *info, std::size_t, void *out) {
        *static_cast<std::uint64_t *>(out) = info->dlpi_adds;
        return 1;
    };
    dl_iterate_phdr(read_first, &n);
    return n;
}

}  // namespace

std::int32_t count_openmp_threads() {
    static std::atomic<int (*)()> most{nullptr};
    static std::atomic<std::uint64_t> n_loaded{0};  // libraries at the last search; a later one may bring OpenMP
    if (const auto n = most == nullptr ? count_loaded_libraries() : n_loaded.load(); n_loaded.exchange(n) != n) {
        most = find<Parallel>("GOMP_parallel") != nullptr ? find<int (*)()>("omp_get_max_threads") : nullptr;
    }
    return most != nullptr ? most.load()() : 1;
}

const halyard_executor *find_executor(std::int32_t n_threads) {
    if (n_threads != 0 && n_threads != 1) {
        static auto &pools = *new std::map<std::int32_t, pool>;  // never destroyed: no thread is joined at exit
        return pools.try_emplace(n_threads, n_threads).first->second.executor();
    }
    const auto n_openmp = n_threads == 0 ? count_openmp_threads() : 1;
    if (n_openmp < 2) {
        return nullptr;
    }
    static auto &executors = *new std::map<std::int32_t, halyard_executor>;
    auto &executor = executors[n_openmp];
    executor.size = sizeof executor;
    executor.n_threads = n_openmp < 1024 ? n_openmp : 1024;
    executor.parallel_for = parallel_for;
    return &executor;
}

}  // namespace halyard::python

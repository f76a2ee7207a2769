#include "base/error.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#include <unistd.h>
#endif

namespace halyard {

namespace {

/// How long an idle thread spins before it sleeps. Waking a thread costs 40 us on a virtual machine, and handing work
/// to a spinning one 0.3 us. The layers of a decoder follow each other within this time.
constexpr std::chrono::microseconds patience{200};

void relax() noexcept {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/// One parallel_for: threads draw task numbers from it until none is left.
struct Job {
    void (*task)(void *, std::int64_t);
    void *data;
    std::int64_t n_tasks;
    std::atomic<std::int64_t> next{0};

    void work() {
        for (std::int64_t i = next.fetch_add(1); i < n_tasks; i = next.fetch_add(1)) {
            task(data, i);
        }
    }
};

}  // namespace

}  // namespace halyard

struct halyard_pool {
    explicit halyard_pool(std::int32_t n_threads) {
        executor = {sizeof(halyard_executor), n_threads, this, &halyard_pool::parallel_for};
#if defined(__unix__) || defined(__APPLE__)
        owner = getpid();
#endif
    }

    /// Starts the threads; false when the system refuses one.
    bool start() {
        try {
            threads.reserve(static_cast<std::size_t>(executor.n_threads - 1));
            for (std::int32_t i = 1; i < executor.n_threads; i++) {
                threads.emplace_back([this] { serve(); });
            }
            return true;
        } catch (...) {
            return false;
        }
    }

    ~halyard_pool() {
        {
            const std::lock_guard lock(mutex);
            stopping.store(true);
        }
        wake.notify_all();
        for (std::thread &thread : threads) {
            thread.join();
        }
    }

    halyard_pool(const halyard_pool &) = delete;
    halyard_pool &operator=(const halyard_pool &) = delete;

    /// Whether this process is a fork of the one that has the threads.
    bool in_child() const noexcept {
#if defined(__unix__) || defined(__APPLE__)
        return getpid() != owner;
#else
        return false;
#endif
    }

    halyard_executor executor;

private:
    using Job = halyard::Job;

    static std::int32_t parallel_for(void *context, std::int64_t n_tasks, void (*task)(void *, std::int64_t),
                                     void *data) {
        static_cast<halyard_pool *>(context)->run(n_tasks, task, data);
        return 0;
    }

    void run(std::int64_t n_tasks, void (*task)(void *, std::int64_t), void *data) {
        Job job = {task, data, n_tasks};
        const std::unique_lock owner_lock(busy, std::try_to_lock);
        if (!owner_lock.owns_lock() || threads.empty() || in_child()) {
            job.work();
            return;
        }
        current.store(&job);
        generation.fetch_add(1);
        if (sleepers.load() > 0) {
            // Taking the mutex makes sure that a thread about to sleep has looked at the generation or is asleep.
            { const std::lock_guard lock(mutex); }
            wake.notify_all();
        }
        job.work();
        // No new thread may enter the job; those inside hold it alive until they leave.
        current.store(nullptr);
        while (inside.load() != 0) {
            halyard::relax();
        }
    }

    void serve() {
        std::uint64_t seen = 0;
        while (!stopping.load()) {
            seen = wait_for_work(seen);
            inside.fetch_add(1);
            if (Job *job = current.load(); job != nullptr) {
                job->work();
            }
            inside.fetch_sub(1);
        }
    }

    /// Returns the new generation once there is one, or when stopping.
    std::uint64_t wait_for_work(std::uint64_t seen) {
        const auto changed = [&] { return generation.load() != seen || stopping.load(); };
        const auto give_up = std::chrono::steady_clock::now() + halyard::patience;
        for (int spins = 0; !changed(); spins++) {
            halyard::relax();
            if (spins % 64 == 63 && std::chrono::steady_clock::now() > give_up) {
                std::unique_lock lock(mutex);
                sleepers.fetch_add(1);
                wake.wait(lock, changed);
                sleepers.fetch_sub(1);
            }
        }
        return generation.load();
    }

#if defined(__unix__) || defined(__APPLE__)
    pid_t owner = 0;
#endif
    std::vector<std::thread> threads;
    std::mutex busy;  // held by the caller whose job is current
    std::atomic<Job *> current{nullptr};
    std::atomic<std::uint64_t> generation{0};
    std::atomic<std::int32_t> inside{0};  // threads that may be looking at the current job
    std::atomic<std::int32_t> sleepers{0};
    std::atomic<bool> stopping{false};
    std::mutex mutex;  // for sleeping only
    std::condition_variable wake;
};

using namespace halyard;

extern "C" {

halyard_status halyard_create_pool(int32_t n_threads, halyard_pool **out, halyard_error *error) {
    if (const halyard_status status = check_error(error)) {
        return status;
    }
    if (out == nullptr) {
        return fail_null(error, "out");
    }
    if (n_threads < 1 || n_threads > 1024) {
        return fail(error, HALYARD_ERROR_THREADS, "n_threads is ", n_threads, ", but must be 1 to 1024");
    }
    auto *pool = new (std::nothrow) halyard_pool(n_threads);
    if (pool == nullptr) {
        return fail(error, HALYARD_ERROR_OUT_OF_MEMORY, "no memory for a pool of ", sizeof(halyard_pool), " bytes");
    }
    if (!pool->start()) {
        delete pool;
        return fail(error, HALYARD_ERROR_THREADS, "the system did not start ", n_threads - 1, " threads");
    }
    *out = pool;
    return HALYARD_OK;
}

const halyard_executor *halyard_get_pool_executor(const halyard_pool *pool) {
    return pool == nullptr ? nullptr : &pool->executor;
}

void halyard_destroy_pool(halyard_pool *pool) {
    if (pool != nullptr && pool->in_child()) {
        // The threads exist in the parent only, so none can be joined, and the condition variable still counts them as
        // asleep: its destructor would wait for them forever. The little memory is left behind.
        return;
    }
    delete pool;
}

}  // extern "C"

#include "rotate/tasks.h"

#include "base/error.h"

#include <atomic>

namespace halyard {

namespace {

/// Below this much data for each thread, handing work over (2.5 us) costs more than it saves. Two threads of a spinning
/// pool against one, in place, heads of 128 in the L2 cache: f32 0.78 times as fast with 128 KiB each and 1.12 times
/// with 256 KiB, bf16 and f16 0.9 and 0.8 times with 16 KiB and 1.5 and 1.3 times with 64 KiB (Zen 4, x86_avx2,
/// 2026-11).
constexpr std::int64_t bytes_worth_a_thread(Dtype dtype) {
    constexpr std::int64_t kib = 1024;
    switch (dtype) {
    case Dtype::f32: return 256 * kib;
    case Dtype::f16:
    case Dtype::bf16:
    case Dtype::e4m3:
    case Dtype::e5m2:
    case Dtype::int8: return 48 * kib;
    }
    return 0;
}

struct SharedRun {
    const Run *run;
    void (*do_share)(const Run &, const Share &);
    std::int64_t n_tasks;
    std::atomic<std::int64_t> n_done{0};
    std::atomic<std::int64_t> n_refused{0};
    std::atomic<std::uint64_t> started[1024 / 64] = {};  // a bit for each task; an executor has at most 1024 threads

    /// Whether a task is ours to do, and nobody has begun it: in place, doing it twice would turn twice.
    bool may_start(std::int64_t index) {
        const std::uint64_t bit = std::uint64_t(1) << (index & 63);
        return index >= 0 && index < n_tasks && (started[index / 64].fetch_or(bit) & bit) == 0;
    }

    static void task(void *data, std::int64_t index) {
        auto &shared = *static_cast<SharedRun *>(data);
        if (!shared.may_start(index)) {
            shared.n_refused.fetch_add(1);
            return;
        }
        shared.do_share(*shared.run, {index, shared.n_tasks});
        shared.n_done.fetch_add(1, std::memory_order_acq_rel);
    }
};

}  // namespace

std::int64_t count_worthwhile_threads(const Run &run) noexcept {
    double threads = 0.0;
    for (int i = 0; i < run.plan->n_tensors; i++) {
        const TensorDesc &desc = run.plan->tensors[i].desc;
        const std::int64_t width = desc.rotates && !desc.is_staged ? run.plan->rotary_dim : desc.head_dim;
        const std::int64_t tokens = run.n_batch * run.n_tokens;
        // Inputs of stride 0 on their way to a cache may have more elements than int64 can count.
        threads += static_cast<double>(tokens) * static_cast<double>(run.tensors[i].n_heads * width) *
                   static_cast<double>(element_bytes(desc.dtype)) /
                   static_cast<double>(bytes_worth_a_thread(desc.dtype));
    }
    return static_cast<std::int64_t>(std::min(threads, 1024.0));  // an executor has no more
}

halyard_status run_on_executor(const Run &run, std::int64_t n_tasks, void (*do_share)(const Run &, const Share &),
                               halyard_error *error) noexcept {
    const halyard_executor &executor = run.executor;
    SharedRun shared;
    shared.run = &run;
    shared.do_share = do_share;
    shared.n_tasks = n_tasks;
    std::int32_t result = -1;
    try {
        result = executor.parallel_for(executor.context, n_tasks, &SharedRun::task, &shared);
    } catch (...) {
        return fail(error, HALYARD_ERROR_EXECUTOR, "executor.parallel_for threw an exception");
    }
    if (result != 0) {
        return fail(error, HALYARD_ERROR_EXECUTOR, "executor.parallel_for returned ", result);
    }
    const std::int64_t done = shared.n_done.load(std::memory_order_acquire);
    if (done != n_tasks) {
        return fail(error, HALYARD_ERROR_EXECUTOR, "executor.parallel_for ran ", done, " of ", n_tasks, " tasks");
    }
    if (shared.n_refused.load() != 0) {
        return fail(error, HALYARD_ERROR_EXECUTOR,
                    "executor.parallel_for ran a task twice, or one that does not exist");
    }
    return HALYARD_OK;
}

}  // namespace halyard

// A soak test: for a given time, many threads make random sources, plans, pools and runs, and compare each result with
// the kernel model's. Between rounds all objects are destroyed; memory, open files and threads must not have grown.
#include "checks/cases/run_modes.h"

#include <malloc.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace cases;
using Clock = std::chrono::steady_clock;

std::atomic<long> n_runs{0}, n_refused{0}, n_wrong{0};

/// Compares a random case's results on the best target with those of the kernel model. Some cases have bad positions
/// or slots.
void run_something(oracle::Random &random, const halyard_executor *executor) {
    static const std::string config = R"({"model_type": "llama", "head_dim": 64, "max_position_embeddings": 8192,
        "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048}})";
    halyard::frequencies::from_config(config.data(), std::ssize(config));
    Choice choice = random.one_in(2) ? Choice::of_rotations() : Choice();
    choice.rerotates = random.one_in(4);
    choice.has_bad = random.one_in(4);
    Draw draw(random);
    Case drawn(draw, choice);
    try {
        drawn.call.args.executor = executor;
        const Images result = run(drawn, nullptr, RunMode::whole);
        const Images expected = run_kernel_model(drawn);
        n_wrong += drawn.difference(expected, result).empty() ? 0 : 1;
        n_runs += 2;
    } catch (const std::runtime_error &) {
        n_wrong += drawn.is_refused() ? 0 : 1;
        n_refused++;
    }
}

/// The resources of this process between rounds.
struct Resources {
    std::size_t heap, resident;  // in bytes
    std::ptrdiff_t files = count("/proc/self/fd"), threads = count("/proc/self/task");

    Resources() {
        malloc_trim(0);
        const struct mallinfo2 info = mallinfo2();
        heap = info.uordblks + info.hblkhd;
        std::ifstream("/proc/self/statm") >> resident >> resident;  // the second number counts resident pages
        resident *= 4096;
    }
    static std::ptrdiff_t count(const char *folder) {
        return std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator());
    }
};

void run_round(std::uint64_t seed, double seconds) {
    const int n_threads = 8;
    const auto end = Clock::now() + std::chrono::duration<double>(seconds);
    const halyard::pool shared(3);
    std::vector<std::jthread> threads;
    for (int i = 0; i < n_threads; i++) {
        threads.emplace_back([&, random = oracle::Random(seed * n_threads + static_cast<std::uint64_t>(i))]() mutable {
            while (Clock::now() < end) {
                if (random.one_in(10)) {
                    const halyard::pool own(static_cast<std::int32_t>(random.in(1, 4)));
                    run_something(random, own.executor());
                } else {
                    run_something(random, random.one_in(2) ? shared.executor() : nullptr);
                }
            }
        });
    }
}

}  // namespace

/// soak SECONDS [SEED]
int main(int argc, char **argv) {
    const double seconds = argc > 1 ? std::atof(argv[1]) : 0.0;
    const std::uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
    if (!(seconds > 0.0)) {
        std::fprintf(stderr, "soak: for how many seconds?\n");
        return 2;
    }
    mallopt(M_ARENA_MAX, 1);  // mallinfo2 sees only one arena
    const int n_rounds = 12;
    std::vector<Resources> held;
    std::printf("seed %llu\n%8s %12s %9s %9s %9s %6s %8s\n", static_cast<unsigned long long>(seed), "seconds", "runs",
                "refused", "heap", "resident", "files", "threads");
    for (int round = 0; round < n_rounds; round++) {
        run_round(seed + static_cast<std::uint64_t>(round), seconds / n_rounds);
        const Resources &last = held.emplace_back();
        std::printf("%8.0f %12ld %9ld %7zu K %7zu K %6td %8td\n", seconds / n_rounds * (round + 1), n_runs.load(),
                    n_refused.load(), last.heap >> 10, last.resident >> 10, last.files, last.threads);
        std::fflush(stdout);
    }
    const Resources &first = held[2], &last = held.back();  // all one-time allocations are made by the third round
    // The heap is measured exactly, so a leak per run shows. Resident memory fluctuates by 7 MiB, because stacks of
    // ended threads are reused.
    const bool is_flat = last.heap <= first.heap + (32 << 10) && last.resident <= first.resident + (16 << 20) &&
                         last.files == first.files && last.threads == first.threads;
    std::printf("%s; %ld results differ from the model's or were refused for no reason\n",
                is_flat ? "memory, files and threads are flat" : "NOT FLAT", n_wrong.load());
    return is_flat && n_wrong == 0 && n_runs > 0 ? 0 : 1;
}

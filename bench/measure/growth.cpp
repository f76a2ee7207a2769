#include "measure/growth.h"

#include "measure/ceilings.h"
#include "measure/rotation.h"

#include <cstdio>
#include <memory>
#include <numeric>
#include <vector>

namespace halyard::bench {

namespace {

void print_line(std::int64_t n, const Work &work, const Effort &effort, const halyard_executor *executor) {
    const Arena arena(PlacedWork::bytes_needed(work));
    std::vector<std::int64_t> positions(static_cast<std::size_t>(work.n_tokens));
    std::iota(positions.begin(), positions.end(), 0);
    PlacedWork placed(work, arena, positions);
    const Rotation alone(placed, nullptr, nullptr), together(placed, nullptr, executor);
    std::vector<Subject> subjects = {make_subject("halyard", [&] { alone.run(0); })};
    if (executor != nullptr) {
        subjects.push_back(make_subject("threads", [&] { together.run(0); }));
    }
    add_ceilings(subjects, placed, nullptr);
    measure(subjects, effort);
    const Timing time = summarise(subjects[0].seconds), ceiling = find_ceilings(subjects).lower();
    std::printf("%9ld %14.2f +- %5.2f %8.1f %8.2f %9.1f %12.1f", static_cast<long>(n),
                time.median / static_cast<double>(work.n_tokens) * 1e9,
                time.spread / static_cast<double>(work.n_tokens) * 1e9,
                static_cast<double>(work.n_bytes()) / time.median * 1e-9, ceiling.median / time.median,
                static_cast<double>(alone.plan_bytes()) / 1024, static_cast<double>(alone.angle_bytes()) / 1024);
    if (executor != nullptr) {
        std::printf(" %9.2f", time.median / summarise(subjects[1].seconds).median);
    }
    std::printf("\n");
    std::fflush(stdout);
}

void print_head(const char *what, const char *fixed, const halyard_executor *executor) {
    std::printf("\n%s\n%9s %23s %8s %8s %9s %12s", fixed, what, "ns for a token", "GB/s", "ceiling", "plan, KiB",
                "table, KiB");
    if (executor != nullptr) {
        std::printf(" %9s", (std::to_string(executor->n_threads) + " threads").c_str());
    }
    std::printf("\n");
}

Work describe(std::int64_t n_tokens, std::int64_t n_heads, std::int64_t head_dim, dtype type) {
    return {{"growth", n_heads, 0, head_dim, head_dim, pairing::half, pairing::half},
            n_tokens,
            type,
            true,
            false,
            HALYARD_ANGLES_TABLE,
            1};
}

}  // namespace

void print_growth(const Effort &effort, int n_threads) {
    const std::unique_ptr<pool> threads = n_threads > 1 ? std::make_unique<pool>(n_threads) : nullptr;
    const halyard_executor *executor = threads ? threads->executor() : nullptr;
    print_head("tokens", "8 heads of 128, bf16, half, in place, positions from 0", executor);
    for (const std::int64_t n : {1, 4, 16, 64, 256, 1000, 4000, 16000, 64000, 250000, 1000000}) {
        print_line(n, describe(n, 8, 128, dtype::bf16), effort, executor);
    }
    print_head("heads", "64 tokens, heads of 128, f32, half, in place", executor);
    for (const std::int64_t n : {1, 2, 4, 8, 16, 32, 64, 128, 256}) {
        print_line(n, describe(64, n, 128, dtype::f32), effort, executor);
    }
    print_head("head_dim", "64 tokens, 8 heads, f32, half, in place", executor);
    for (const std::int64_t n : {32, 48, 64, 80, 96, 128, 160, 192, 256, 512, 576}) {
        print_line(n, describe(64, 8, n, dtype::f32), effort, executor);
    }
}

}  // namespace halyard::bench

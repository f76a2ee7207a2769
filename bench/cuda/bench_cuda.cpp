// halyard_bench_cuda: how many bytes CUDA kernels move in a second, beside a copy of the same bytes on the same device.
// The device's events time both. Exit status: 0 done, 1 there is no device or it failed, 2 wrong usage.
#include "cuda/cuda_timing.h"
#include "halyard/halyard_gpu.hpp"
#include "measure/machine.h"
#include "measure/timing.h"
#include "tool/device_memory.h"

#include <CLI/CLI.hpp>

#include <cstdio>
#include <random>

namespace {

using namespace halyard;
using namespace halyard::bench;

constexpr std::int64_t n_heads = 32 + 8, head_dim = 128, n_positions = 131072;  // Llama 3 8B: q and k in one buffer

struct Case {
    dtype type;
    pairing order;
    bool in_place, by_phase;
    std::int64_t n_tokens;
};

class Bench {
public:
    Bench() {
        call_cuda("cuCtxPushCurrent_v2", queue().context);
        const auto base = frequencies::from_base(500000, head_dim);
        auto desc = make_struct<halyard_angle_source_desc>();
        desc.last = n_positions - 1;
        desc.kind = HALYARD_ANGLES_TABLE;
        table_ = gpu_angles(queue(), angle_source(base, desc));
        desc.kind = HALYARD_ANGLES_PHASE;
        phase_ = gpu_angles(queue(), angle_source(base, desc));
    }

    const halyard_gpu_queue &queue() const { return own_.get(); }

    /// Measures a case and prints its row.
    void measure_case(const Case &test, const Effort &effort) {
        const auto type = static_cast<std::int32_t>(test.type);
        const std::int64_t bytes_each = type == HALYARD_F32 ? 4 : 2;
        const auto n_bytes = static_cast<std::size_t>(test.n_tokens * n_heads * head_dim * bytes_each);
        std::vector<std::int32_t> scattered(static_cast<std::size_t>(test.n_tokens));
        std::mt19937 random(20261121);
        for (auto &position : scattered) {
            position = static_cast<std::int32_t>(random() % n_positions);
        }
        const tool::DeviceMemory from(queue(), nullptr, n_bytes), to(queue(), nullptr, n_bytes),
            places(queue(), scattered.data(), scattered.size() * 4);
        const gpu_plan plan(queue(), plan_desc(head_dim, {describe_tensor(test.type, head_dim, test.order)}),
                            test.by_phase ? phase_ : table_);
        const auto view = [&](const tool::DeviceMemory &memory) {
            auto tensor = halyard::tensor(memory.data(), test.type, {1, test.n_tokens, n_heads, head_dim});
            tensor.device = HALYARD_CUDA;
            return tensor;
        };
        const auto x = view(from), y = view(test.in_place ? from : to);
        const auto positions = halyard::positions(static_cast<const std::int32_t *>(places.data()), {1, test.n_tokens});
        gpu_run_options how;
        how.stream = queue().stream;
        how.positions = &positions;
        how.policy = bad_position::identity;
        const auto rotate = [&] { run(plan, x, y, how); };
        const auto copy = [&] {
            call_cuda("cuMemcpyDtoDAsync_v2", reinterpret_cast<unsigned long long>(to.data()),
                      reinterpret_cast<unsigned long long>(from.data()), n_bytes, queue().stream);
        };
        Stopwatch watch(queue().stream);
        const Graph rotations(queue().stream, rotate), copies(queue().stream, copy);
        std::vector<Subject> subjects;
        for (const auto &[name, graph] : {std::pair{"rotate", &rotations}, {"copy", &copies}}) {
            subjects.push_back({name, [&watch, graph = graph](long n) {
                                    return watch.time([&] {
                                        for (long i = 0; i < n; i++) {
                                            graph->launch();
                                        }
                                    });
                                }});
        }
        measure(subjects, effort);
        const Timing ours = summarise(subjects[0].seconds), copied = summarise(subjects[1].seconds);
        const double moved = 2e-9 * static_cast<double>(n_bytes) * Graph::n_calls;
        std::printf("%-5s %-12s %-13s %-6s %7lld %10.2f %9.0f %9.0f %6.2f %6.0f %%\n",
                    type == HALYARD_F32   ? "f32"
                    : type == HALYARD_F16 ? "f16"
                                          : "bf16",
                    test.order == pairing::half ? "half" : "interleaved", test.in_place ? "in place" : "out of place",
                    test.by_phase ? "phase" : "table", static_cast<long long>(test.n_tokens),
                    ours.median * 1e6 / Graph::n_calls, moved / ours.median, moved / copied.median,
                    copied.median / ours.median, 100 * (ours.relative_spread() + copied.relative_spread()));
        std::fflush(stdout);
    }

private:
    tool::DeviceQueue own_{HALYARD_CUDA};
    gpu_angles table_, phase_;
};

}  // namespace

int main(int argc, char **argv) {
    CLI::App app("The CUDA kernels beside a copy of the same bytes, by the device's events", "bench cuda");
    bool is_quick = false;
    app.add_flag("--quick", is_quick, "fewer rows and shorter rounds");
    CLI11_PARSE(app, argc, argv);
    try {
        Bench bench;
        char name[256] = "";
        call_cuda("cuDeviceGetName", name, 256, 0);
        int version = 0;
        call_cuda("cuDriverGetVersion", &version);
        std::printf(
            "%s, CUDA driver %d.%d\n%s\n32 + 8 heads of 128 in one buffer, positions scattered below 131,072; GB/s "
            "of x and y; medians of interleaved rounds\n\n",
            name, version / 1000, version % 1000 / 10, describe_machine().text().c_str());
        std::printf("%-5s %-12s %-13s %-6s %7s %10s %9s %9s %6s %8s\n", "dtype", "pairing", "place", "angles", "tokens",
                    "us", "GB/s", "copy GB/s", "ratio", "spread");
        for (const std::int64_t n_tokens : {1, 16, 256, 4096, 32768, 131072}) {
            for (const dtype type : {dtype::bf16, dtype::f16, dtype::f32}) {
                for (const pairing order : {pairing::half, pairing::interleaved}) {
                    for (const bool in_place : {true, false}) {
                        for (const bool by_phase : {false, true}) {
                            const bool is_main = type != dtype::f16 && order == pairing::half && !by_phase;
                            if (is_main || (!is_quick && n_tokens % 4096 == 0 && n_tokens < 131072)) {
                                bench.measure_case({type, order, in_place, by_phase, n_tokens},
                                                   is_quick ? quick : thorough);
                            }
                        }
                    }
                }
            }
        }
        return 0;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "bench cuda: %s\n", error.what());
        return 1;
    }
}

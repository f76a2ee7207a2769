// halyard_bench_cuda: how long CUDA kernels take on the device, beside a copy of the same bytes and a kernel that does
// nothing. All take turns in the same rounds. The device's events time
//   warm   replays of a graph of a hundred calls on the same memory
//   cold   single launches, each after 256 MiB were written, so that the L2 holds nothing of theirs
// and the clock what a launch takes the host. Exit status: 0 done, 1 there is no device or it failed, 2 wrong usage.
#include "cuda/cuda_timing.h"
#include "cuda/cuda_works.h"
#include "measure/machine.h"
#include "measure/timing.h"

#include <CLI/CLI.hpp>

#include <cstdio>
#include <string>

namespace {

using namespace halyard;
using namespace halyard::bench;

class Bench {
public:
    Bench() {
        call_cuda("cuCtxPushCurrent_v2", queue().context);
        const auto base = frequencies::from_base(500000, head_dim);
        table_ = gpu_angles(queue(), angle_source::table(base, 0, n_positions - 1));
        phase_ = gpu_angles(queue(), angle_source::phase(base));
    }

    const gpu_angles *table() const { return &table_; }
    const gpu_angles *phase() const { return &phase_; }

    /// Measures a case and prints its row.
    void measure_case(const Case &test, const Effort &effort) {
        void *const stream = queue().stream;
        const Work work(queue(), test);
        const auto half = static_cast<std::size_t>(work.n_bytes() / 2);
        const tool::DeviceMemory from(queue(), nullptr, half), to(queue(), nullptr, half);
        const EmptyKernel empty(stream);
        const auto call = [&] { work.enqueue(); };
        const auto copy = [&] {
            call_cuda("cuMemcpyDtoDAsync_v2", reinterpret_cast<unsigned long long>(to.data()),
                      reinterpret_cast<unsigned long long>(from.data()), half, stream);
        };
        const auto nothing = [&] { empty.enqueue(); };
        call();  // compiles the kernels
        nothing();
        const Graph calls(stream, call), copies(stream, copy), nothings(stream, nothing);
        std::vector<Subject> subjects = {warm(calls), warm(copies),  warm(nothings), cold(call),
                                         cold(copy),  cold(nothing), on_host(call),  on_host(nothing)};
        measure(subjects, effort);
        std::vector<Timing> all;
        for (const Subject &subject : subjects) {
            all.push_back(summarise(subject.seconds));
        }
        const auto us = [&](std::size_t i) { return all[i].median * 1e6; };
        std::printf(
            "%-13s %-5s %-12s %-6s %6lld %9.2f %9.2f %9.2f %6.2f %9.2f %9.2f %9.2f %6.2f %7.0f %7.2f %7.2f %5.0f %%\n",
            name_of(test.job, test.in_place),
            test.type == dtype::f32   ? "f32"
            : test.type == dtype::f16 ? "f16"
                                      : "bf16",
            test.order == pairing::half ? "half" : "interleaved", test.angles == &phase_ ? "phase" : "table",
            static_cast<long long>(test.n_tokens), us(0), us(1), us(2), us(1) / us(0), us(3), us(4), us(5),
            us(4) / us(3), 1e-3 * static_cast<double>(work.n_bytes()) / us(0), us(6), us(7),
            100 * (all[0].relative_spread() + all[1].relative_spread()));
        std::fflush(stdout);
    }

    static void print_heading() {
        std::printf("%-13s %-5s %-12s %-6s %6s %9s %9s %9s %6s %9s %9s %9s %6s %7s %7s %7s %7s\n", "", "", "", "", "",
                    "warm us", "copy", "empty", "ratio", "cold us", "copy", "empty", "ratio", "GB/s", "host us",
                    "empty", "spread");
    }

private:
    tool::DeviceQueue own_{HALYARD_CUDA};
    gpu_angles table_, phase_;
    static constexpr std::size_t flushed_bytes = std::size_t{256} << 20;
    tool::DeviceMemory flushed_{own_.get(), nullptr, flushed_bytes};
    Stopwatch watch_{own_.get().stream};

    const halyard_gpu_queue &queue() const { return own_.get(); }

    static const char *name_of(Job job, bool in_place) {
        switch (job) {
        case Job::road: return "road";
        case Job::road_to_e4m3: return "road to e4m3";
        case Job::rotate: break;
        }
        return in_place ? "in place" : "out of place";
    }

    Subject warm(const Graph &graph) {
        return {"warm", [this, &graph](long n) {
                    const long n_launches = (n + Graph::n_calls - 1) / Graph::n_calls;
                    const double seconds = watch_.time([&] {
                        for (long i = 0; i < n_launches; i++) {
                            graph.launch();
                        }
                    });
                    return seconds * static_cast<double>(n) / static_cast<double>(n_launches * Graph::n_calls);
                }};
    }

    template <typename Action>
    Subject cold(const Action &action) {
        return {"cold", [this, &action](long n) {
                    double seconds = 0;
                    for (long i = 0; i < n; i++) {
                        const auto at = reinterpret_cast<unsigned long long>(flushed_.data());
                        call_cuda("cuMemsetD8Async", at, static_cast<unsigned char>(i), flushed_bytes, queue().stream);
                        seconds += watch_.time(action);
                    }
                    return seconds;
                }};
    }

    /// What enqueueing takes. The device is waited for before its queue is full, outside the time.
    template <typename Action>
    Subject on_host(const Action &action) {
        return {"host", [this, &action](long n) {
                    constexpr long fitting = 200;
                    double seconds = 0;
                    for (long i = 0; i < n; i++) {
                        if (i % fitting == 0) {
                            call_cuda("cuStreamSynchronize", queue().stream);
                        }
                        const double start = now();
                        action();
                        seconds += now() - start;
                    }
                    return seconds;
                }};
    }
};

void print_device() {
    char name[256] = "";
    int version = 0, clock_khz = 0, memory_khz = 0, l2_bytes = 0, n_processors = 0;
    call_cuda("cuDeviceGetName", name, 256, 0);
    call_cuda("cuDriverGetVersion", &version);
    // CU_DEVICE_ATTRIBUTE_…: CLOCK_RATE, MEMORY_CLOCK_RATE, L2_CACHE_SIZE, MULTIPROCESSOR_COUNT
    for (const auto &[value, attribute] :
         {std::pair{&clock_khz, 13}, {&memory_khz, 36}, {&l2_bytes, 38}, {&n_processors, 16}}) {
        call_cuda("cuDeviceGetAttribute", value, attribute, 0);
    }
    std::printf(
        "%s, CUDA driver %d.%d; %d multiprocessors of at most %d MHz, memory of at most %d MHz, L2 of %d MiB\n%s\n",
        name, version / 1000, version % 1000 / 10, n_processors, clock_khz / 1000, memory_khz / 1000, l2_bytes >> 20,
        describe_machine().text().c_str());
    std::printf(
        "32 + 8 + 8 heads of 128 in one packed buffer, positions scattered below 131,072; medians of interleaved "
        "rounds; ratio: copy / ours; GB/s of what is read and written, warm; roads norm q and k, rotate them, "
        "and store k and v in pages of 16 tokens\n\n");
}

}  // namespace

int main(int argc, char **argv) {
    CLI::App app("The CUDA kernels beside a copy of the same bytes, by the device's events", "bench cuda");
    bool is_quick = false;
    app.add_flag("--quick", is_quick, "fewer rows and shorter rounds");
    CLI11_PARSE(app, argc, argv);
    try {
        Bench bench;
        print_device();
        Bench::print_heading();
        const Effort effort = is_quick ? quick : thorough;
        for (const std::int64_t n_tokens : {1, 16, 256, 4096, 32768}) {
            for (const Job job : {Job::rotate, Job::road, Job::road_to_e4m3}) {
                bench.measure_case({job, dtype::bf16, pairing::half, true, bench.table(), n_tokens}, effort);
            }
            bench.measure_case({Job::rotate, dtype::bf16, pairing::half, false, bench.table(), n_tokens}, effort);
        }
        for (const std::int64_t n_tokens :
             is_quick ? std::vector<std::int64_t>{} : std::vector<std::int64_t>{1, 4096}) {
            for (const dtype type : {dtype::bf16, dtype::f16, dtype::f32}) {
                for (const pairing order : {pairing::half, pairing::interleaved}) {
                    for (const gpu_angles *angles : {bench.table(), bench.phase()}) {
                        bench.measure_case({Job::rotate, type, order, true, angles, n_tokens}, effort);
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

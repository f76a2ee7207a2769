// halyard_bench_cuda: makes works of the CUDA kernels ready, beside a copy of the same bytes and a kernel that does
// nothing, and times calls of them. It is asked as server/server.cpp is, by cuda_rounds.py or by lines that this has
// written before:
//   {"do":"describe"}  -> {"device","compiler","halide"}
//   {"do":"prepare","job":"rotate|road|road to e4m3","dtype","pairing","in_place","angles":"table|phase","tokens"}
//                      -> {"subjects","bytes"}
//   {"do":"round","calls":[[SUBJECT,n]...]} -> {"seconds":[...]}
// The kind of a subject says by what its calls are timed. By the device's events:
//   warm   replays of a graph of a hundred calls on the same memory
//   cold   single launches, each after 256 MiB were written, so that the L2 holds nothing of theirs
// and "host" by the clock: what a launch takes the host.
#include "cuda/cuda_timing.h"
#include "cuda/cuda_works.h"
#include "server/serve.h"

#include <memory>
#include <string>

namespace {

using namespace halyard;
using namespace halyard::bench;
using nlohmann::json;

class Bench {
public:
    Bench() {
        call_cuda("cuCtxPushCurrent_v2", queue().context);
        const auto base = frequencies::from_base(500000, head_dim);
        table_ = gpu_angles(queue(), angle_source::table(base, 0, n_positions - 1));
        phase_ = gpu_angles(queue(), angle_source::phase(base));
    }

    json answer(const json &request) {
        const std::string what = request.at("do");
        if (what == "describe") {
            return {{"device", describe_device()}, {"compiler", HALYARD_COMPILER}, {"halide", HALYARD_HALIDE}};
        }
        if (what == "prepare") {
            prepare(read_case(request));
            return {{"subjects", list_subjects(subjects_)}, {"bytes", work_->n_bytes()}};
        }
        if (what == "round") {
            return time_round(subjects_, request);
        }
        throw std::runtime_error("can't " + what);
    }

private:
    device::DeviceQueue own_{HALYARD_CUDA};
    gpu_angles table_, phase_;
    static constexpr std::size_t flushed_bytes = std::size_t{256} << 20;
    device::DeviceMemory flushed_{own_.get(), nullptr, flushed_bytes};
    Stopwatch watch_{own_.get().stream};
    EmptyKernel empty_{own_.get().stream};
    std::unique_ptr<Work> work_;
    std::unique_ptr<device::DeviceMemory> from_, to_;
    std::unique_ptr<Graph> calls_, copies_, nothings_;
    std::vector<Subject> subjects_;

    const halyard_gpu_queue &queue() const { return own_.get(); }

    Case read_case(const json &request) const {
        const std::string job = request.at("job"), type = request.at("dtype");
        return {job == "road"           ? Job::road
                : job == "road to e4m3" ? Job::road_to_e4m3
                                        : Job::rotate,
                type == "f32"   ? dtype::f32
                : type == "f16" ? dtype::f16
                                : dtype::bf16,
                request.at("pairing") == "half" ? pairing::half : pairing::interleaved,
                request.at("in_place"),
                request.at("angles") == "phase" ? &phase_ : &table_,
                request.at("tokens")};
    }

    void prepare(const Case &test) {
        void *const stream = queue().stream;
        subjects_.clear();
        for (std::unique_ptr<Graph> *graph : {&calls_, &copies_, &nothings_}) {
            graph->reset();
        }
        from_.reset();  // the device may not have room for both works
        to_.reset();
        work_.reset();
        work_ = std::make_unique<Work>(queue(), test);
        const auto half = static_cast<std::size_t>(work_->n_bytes() / 2);
        from_ = std::make_unique<device::DeviceMemory>(queue(), nullptr, half);
        to_ = std::make_unique<device::DeviceMemory>(queue(), nullptr, half);
        const auto call = [this] { work_->enqueue(); };
        const auto copy = [this, half, stream] {
            call_cuda("cuMemcpyDtoDAsync_v2", reinterpret_cast<unsigned long long>(to_->data()),
                      reinterpret_cast<unsigned long long>(from_->data()), half, stream);
        };
        const auto nothing = [this] { empty_.enqueue(); };
        call();  // compiles the kernels
        nothing();
        calls_ = std::make_unique<Graph>(stream, call);
        copies_ = std::make_unique<Graph>(stream, copy);
        nothings_ = std::make_unique<Graph>(stream, nothing);
        subjects_ = {warm("halyard", *calls_), warm("copy", *copies_),   warm("empty", *nothings_),
                     cold("halyard", call),    cold("copy", copy),       cold("empty", nothing),
                     on_host("halyard", call), on_host("empty", nothing)};
    }

    Subject warm(const char *name, const Graph &graph) {
        return {name, "warm", [this, &graph](long n) {
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
    Subject cold(const char *name, const Action &action) {
        return {name, "cold", [this, action](long n) {
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
    Subject on_host(const char *name, const Action &action) {
        return {name, "host", [this, action](long n) {
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

    static std::string describe_device() {
        char name[256] = "";
        int version = 0, clock_khz = 0, memory_khz = 0, l2_bytes = 0, n_processors = 0;
        call_cuda("cuDeviceGetName", name, 256, 0);
        call_cuda("cuDriverGetVersion", &version);
        // CU_DEVICE_ATTRIBUTE_…: CLOCK_RATE, MEMORY_CLOCK_RATE, L2_CACHE_SIZE, MULTIPROCESSOR_COUNT
        for (const auto &[value, attribute] :
             {std::pair{&clock_khz, 13}, {&memory_khz, 36}, {&l2_bytes, 38}, {&n_processors, 16}}) {
            call_cuda("cuDeviceGetAttribute", value, attribute, 0);
        }
        char text[400];
        std::snprintf(
            text, sizeof(text),
            "%s, CUDA driver %d.%d; %d multiprocessors of at most %d MHz, memory of at most %d MHz, L2 of %d MiB", name,
            version / 1000, version % 1000 / 10, n_processors, clock_khz / 1000, memory_khz / 1000, l2_bytes >> 20);
        return text;
    }
};

}  // namespace

int main() {
    try {
        Bench bench;
        serve([&](const json &request) { return bench.answer(request); });
        return 0;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}

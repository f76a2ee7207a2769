// halyard_bench_gpu: makes works of a GPU's kernels ready and times calls of them, for ./run bench cuda and ./run tune.
// The tuner links it with a variant of one kernel instead of the library's. It is asked as server/server.cpp is, or by
// lines that were written before:
//   {"do":"describe"}  -> {"device","compiler","halide"} of the CUDA device
//   {"do":"prepare","job":"rotate|norm|road|road to e4m3","dtype","pairing","in_place","angles":"table|phase","tokens"}
//                      -> {"subjects","bytes"}: the subjects are CUDA kernels, a copy of the same bytes and a kernel
//                         that does nothing. Their kind says by what calls are timed. By the device's events:
//                           warm   replays of a graph of a hundred calls on the same memory
//                           cold   single launches, each after 256 MiB were written, so that the L2 holds nothing of
//                                  theirs
//                         and "host" by the clock: what a launch takes the host.
//   {"do":"prepare","kernel":NAME,"tokens","heads","head_dim","rotary_dim"} -> the same of one subject, calls of a
//   kernel
//   {"do":"round","calls":[[SUBJECT,n]...]} -> {"seconds":[...]}
// With arguments it is not asked:
//   device                   prints the tuner's name for the device, its own name and its driver's version, a line each
//   check KERNEL SEED TIMES  compares random runs with the portable reference; says on standard error what is wrong
// Exit status: 0 done; 1 it failed, or is wrong; 2 wrong usage.
#include "checks/scene/on_device.h"
#include "cuda/gpu_timing.h"
#include "cuda/gpu_works.h"
#include "server/serve.h"

#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <string>

namespace {

using namespace halyard;
using namespace halyard::bench;
using nlohmann::json;

const gpu::GpuKernel &find_kernel(const std::string &name) {
    for (const gpu::GpuKernel &kernel : gpu::gpu_kernels()) {
        if (kernel.name == name) {
            return kernel;
        }
    }
    throw std::runtime_error("there is no GPU kernel \"" + name + "\"");
}

// ---- Devices -------------------------------------------------------------------------------------------------------

struct Device {
    std::string name, driver;
};

Device describe_cuda() {
    char name[256] = "";
    int version = 0;
    call_cuda("cuDeviceGetName", name, 256, 0);
    call_cuda("cuDriverGetVersion", &version);
    return {name, "CUDA " + std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10)};
}

/// "NVIDIA H100 80GB" as nvidia_h100_80gb.
std::string short_name(const std::string &name) {
    std::string result;
    for (const char c : name) {
        if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
            result += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
        } else if (!result.empty() && result.back() != '_') {
            result += '_';
        }
    }
    result.erase(result.find_last_not_of('_') + 1);
    return result;
}

void print_device() {
    const device::DeviceQueue queue;
    const Device device = describe_cuda();
    std::printf("%s\n%s\n%s\n", short_name(device.name).c_str(), device.name.c_str(), device.driver.c_str());
}

/// "NVIDIA H100 80GB, CUDA driver 13.1; ..."
std::string describe_for_table() {
    const Device device = describe_cuda();
    std::string text = device.name + ", CUDA driver " + device.driver.substr(5);
    // CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, _CLOCK_RATE, _MEMORY_CLOCK_RATE, _L2_CACHE_SIZE
    for (const auto &[before, attribute, unit, after] : {std::tuple{"; ", 16, 1, " multiprocessors"},
                                                         {" of at most ", 13, 1000, " MHz"},
                                                         {", memory of at most ", 36, 1000, " MHz"},
                                                         {", L2 of ", 38, 1 << 20, " MiB"}}) {
        int value = 0;
        call_cuda("cuDeviceGetAttribute", &value, attribute, 0);
        text += before + std::to_string(value / unit) + after;
    }
    return text;
}

void check(const gpu::GpuKernel &kernel, std::uint64_t seed, int times) {
    const device::DeviceQueue queue;
    oracle::Random random(seed);
    constexpr std::int64_t many_tokens = 1100;  // more than any schedule counts as few
    for (int i = 0; i <= times; i++) {
        const std::string fault = scenes::fault_of_kernel(kernel, queue.get(), random, i < times ? 0 : many_tokens);
        if (!fault.empty()) {
            throw std::runtime_error(fault);
        }
    }
}

// ---- Cases ---------------------------------------------------------------------------------------------------------

/// 32 + 8 + 8 heads of 128 in one packed buffer.
Case read_case(const json &request) {
    const std::string job = request.at("job"), type = request.at("dtype");
    const pairing how = request.at("pairing") == "half" ? pairing::half : pairing::interleaved;
    return {job == "norm"           ? Job::norm
            : job == "road"         ? Job::road
            : job == "road to e4m3" ? Job::road_to_e4m3
                                    : Job::rotate,
            type == "f32"   ? dtype::f32
            : type == "f16" ? dtype::f16
                            : dtype::bf16,
            how,
            how,
            request.at("in_place"),
            request.at("tokens"),
            32,
            8,
            128,
            128};
}

/// What a kernel serves, on memory that no kernel of wider accesses can serve.
Case case_of(const gpu::GpuKernel &kernel, const json &request) {
    const auto as = [](std::optional<Pairing> of) {
        return of == Pairing::interleaved ? pairing::interleaved : pairing::half;
    };
    const bool is_widest = kernel.layout.bytes == 16;
    return {Job::rotate,
            static_cast<dtype>(kernel.dtype),
            as(kernel.layout.pairing),
            as(kernel.layout.out_pairing),
            kernel.in_place,
            request.at("tokens"),
            request.at("heads"),
            0,
            request.at("head_dim"),
            request.at("rotary_dim"),
            is_widest                          ? 0
            : kernel.layout == gpu::any_layout ? 1
                                               : 2};
}

// ---- What is timed -------------------------------------------------------------------------------------------------

class Server {
public:
    json answer(const json &request) {
        const std::string what = request.at("do");
        if (what == "describe") {
            open();
            return {{"device", describe_for_table()}, {"compiler", HALYARD_COMPILER}, {"halide", HALYARD_HALIDE}};
        }
        if (what == "prepare") {
            request.contains("kernel") ? prepare_kernel(find_kernel(request["kernel"]), request) : prepare(request);
            return {{"subjects", list_subjects(subjects_)}, {"bytes", work_->n_bytes()}};
        }
        if (what == "round") {
            return time_round(subjects_, request);
        }
        throw std::runtime_error("can't " + what);
    }

private:
    std::optional<device::DeviceQueue> own_;
    std::map<std::pair<std::int64_t, bool>, gpu_angles> angles_;
    static constexpr std::size_t flushed_bytes = std::size_t{256} << 20;
    std::optional<device::DeviceMemory> flushed_, from_, to_;
    std::optional<Stopwatch> watch_;
    std::optional<EmptyKernel> empty_;
    std::optional<Work> work_;
    std::optional<Graph> calls_, copies_, nothings_;
    std::vector<Subject> subjects_;

    const halyard_gpu_queue &queue() const { return own_->get(); }

    void open() {
        if (!own_) {
            own_.emplace();
            call_cuda("cuCtxPushCurrent_v2", queue().context);
            watch_.emplace(queue().stream);
            empty_.emplace(queue().stream);
        }
    }

    const gpu_angles &angles(std::int64_t rotary_dim, bool by_phase) {
        gpu_angles &made = angles_[{rotary_dim, by_phase}];
        if (made.get() == nullptr) {
            const auto base = frequencies::from_base(500000, rotary_dim);
            made = gpu_angles(queue(),
                              by_phase ? angle_source::phase(base) : angle_source::table(base, 0, n_positions - 1));
        }
        return made;
    }

    void make_work(const Case &test, bool by_phase) {
        subjects_.clear();
        for (std::optional<Graph> *graph : {&calls_, &copies_, &nothings_}) {
            graph->reset();
        }
        from_.reset();  // the device may not have room for both works
        to_.reset();
        work_.reset();
        work_.emplace(queue(), test, angles(test.rotary_dim, by_phase));
        work_->enqueue();  // compiles the kernels
    }

    void prepare_kernel(const gpu::GpuKernel &kernel, const json &request) {
        open();
        make_work(case_of(kernel, request), false);
        work_->finish();
        calls_.emplace(queue().stream, [this] { work_->enqueue(); });
        subjects_ = {warm("halyard", *calls_)};
    }

    void prepare(const json &request) {
        open();
        if (!flushed_) {
            flushed_.emplace(queue(), nullptr, flushed_bytes);
        }
        void *const stream = queue().stream;
        make_work(read_case(request), request.at("angles") == "phase");
        const auto half = static_cast<std::size_t>(work_->n_bytes() / 2);
        from_.emplace(queue(), nullptr, half);
        to_.emplace(queue(), nullptr, half);
        const auto call = [this] { work_->enqueue(); };
        const auto copy = [this, half, stream] {
            call_cuda("cuMemcpyDtoDAsync_v2", reinterpret_cast<unsigned long long>(to_->data()),
                      reinterpret_cast<unsigned long long>(from_->data()), half, stream);
        };
        const auto nothing = [this] { empty_->enqueue(); };
        nothing();
        calls_.emplace(stream, call);
        copies_.emplace(stream, copy);
        nothings_.emplace(stream, nothing);
        subjects_ = {warm("halyard", *calls_), warm("copy", *copies_),   warm("empty", *nothings_),
                     cold("halyard", call),    cold("copy", copy),       cold("empty", nothing),
                     on_host("halyard", call), on_host("empty", nothing)};
    }

    Subject warm(const char *name, const Graph &graph) {
        return {name, "warm", [this, &graph](long n) { return graph.time(*watch_, n); }};
    }

    template <typename Action>
    Subject cold(const char *name, const Action &action) {
        return {name, "cold", [this, action](long n) {
                    double seconds = 0;
                    for (long i = 0; i < n; i++) {
                        const auto at = reinterpret_cast<unsigned long long>(flushed_->data());
                        call_cuda("cuMemsetD8Async", at, static_cast<unsigned char>(i), flushed_bytes, queue().stream);
                        seconds += watch_->time(action);
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
};

}  // namespace

int main(int argc, char **argv) {
    const std::string what = argc > 1 ? argv[1] : "";
    try {
        if (argc == 1) {
            Server server;
            serve([&](const json &request) { return server.answer(request); });
        } else if (what == "device" && argc == 2) {
            print_device();
        } else if (what == "check" && argc == 5) {
            check(find_kernel(argv[2]), std::strtoull(argv[3], nullptr, 10), std::atoi(argv[4]));
        } else {
            std::fprintf(stderr, "usage: halyard_bench_gpu [device | check KERNEL SEED TIMES]\n");
            return 2;
        }
        return 0;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}

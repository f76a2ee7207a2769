// halyard_gpu_variant: checks and times GPU kernels for ./run tune. The tuner links it with a variant of one kernel
// instead of the library's, and runs it in a process of its own.
//   device TARGET            prints the tuner's name for the device, its own name and its driver's version, a line each
//   check KERNEL SEED TIMES  compares random runs with the portable reference; says on standard error what is wrong
//   time KERNEL              reads lines "TOKENS HEADS HEAD_DIM ROTARY_DIM CALLS", and prints for each how many seconds
//                            these calls take on the device
// Exit status: 0 done; 1 it failed, or is wrong; 2 wrong usage.
#include "checks/scene/on_device.h"
#include "cuda/cuda_timing.h"
#include "halyard/halyard_gpu.hpp"
#include "measure/subject.h"
#include "tool/device_memory.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <sstream>

namespace {

using namespace halyard;
using namespace halyard::bench;

std::int32_t device_of(Target target) { return target == Target::cuda_sm80 ? HALYARD_CUDA : HALYARD_OPENCL; }

const gpu::GpuKernel &find_kernel(const std::string &name) {
    for (const gpu::GpuKernel &kernel : gpu::gpu_kernels()) {
        if (kernel.name == name) {
            return kernel;
        }
    }
    throw std::runtime_error("there is no GPU kernel \"" + name + "\"");
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

/// What OpenCL says of a command queue's device. Signatures and numbers: OpenCL 3.0 specification.
std::string ask_opencl(void *queue, unsigned what) {
    constexpr unsigned queue_device = 0x1091;
    std::size_t *const no_size = nullptr;
    void *device = nullptr;
    char text[256] = "";
    tool::require_call(HALYARD_OPENCL, "clGetCommandQueueInfo", queue, queue_device, sizeof(device),
                       static_cast<void *>(&device), no_size);
    tool::require_call(HALYARD_OPENCL, "clGetDeviceInfo", device, what, sizeof(text), static_cast<void *>(text),
                       no_size);
    return text;
}

void print_device(const std::string &target) {
    const std::int32_t device = device_of(target == "cuda_sm80" ? Target::cuda_sm80 : Target::opencl);
    const tool::DeviceQueue queue(device);
    std::string name, driver;
    if (device == HALYARD_CUDA) {
        char text[256] = "";
        int version = 0;
        call_cuda("cuDeviceGetName", text, 256, 0);
        call_cuda("cuDriverGetVersion", &version);
        name = text;
        driver = "CUDA " + std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
    } else {
        constexpr unsigned device_name = 0x102b, driver_version = 0x102d;
        name = ask_opencl(queue.get().stream, device_name);
        driver = "OpenCL, " + ask_opencl(queue.get().stream, driver_version);
    }
    std::printf("%s\n%s\n%s\n", short_name(name).c_str(), name.c_str(), driver.c_str());
}

void check(const gpu::GpuKernel &kernel, std::uint64_t seed, int times) {
    const tool::DeviceQueue queue(device_of(kernel.target));
    oracle::Random random(seed);
    constexpr std::int64_t many_tokens = 1100;  // more than any schedule counts as few
    for (int i = 0; i <= times; i++) {
        const std::string fault = scenes::fault_of_kernel(kernel, queue.get(), random, i < times ? 0 : many_tokens);
        if (!fault.empty()) {
            throw std::runtime_error(fault);
        }
    }
}

/// A work on the device, on which the kernel is called.
class Site {
public:
    /// [tokens, heads, head_dim, rotary_dim]
    using Shape = std::array<std::int64_t, 4>;

    Site(const gpu::GpuKernel &kernel, const halyard_gpu_queue &queue, const Shape &shape)
        : queue_(queue), shape_(shape), bytes_(kernel.dtype == Dtype::f32 ? 4 : 2),
          // Each kernel is timed on memory that no kernel of wider accesses can serve.
          offset_(offset_of(kernel)), x_(queue, std::vector<char>(n_bytes(), ordinary_byte).data(), n_bytes()),
          y_(queue, nullptr, kernel.in_place ? 1 : n_bytes()), places_(queue, list_positions().data(), n_tokens() * 4) {
        const auto base = frequencies::from_base(10000, shape[3]);
        angles_ = std::make_unique<gpu_angles>(queue, angle_source::table(base, 0, n_positions - 1));
        const auto type = static_cast<dtype>(kernel.dtype);
        const auto as = [](std::optional<Pairing> of) {
            return of == Pairing::interleaved ? pairing::interleaved : pairing::half;
        };
        halyard_tensor_desc desc = describe_tensor(type, shape[2], as(kernel.layout.pairing));
        desc.out_pairing = static_cast<std::int32_t>(as(kernel.layout.out_pairing));
        plan_ = std::make_unique<gpu_plan>(queue, plan_desc(shape[3], {desc}), *angles_);
        const auto view = [&](const tool::DeviceMemory &memory) {
            halyard_tensor tensor =
                halyard::tensor(memory.data(offset_ * bytes_), type, {1, shape[0], shape[1], shape[2]});
            tensor.device = queue.device;
            return tensor;
        };
        x_view_ = view(x_);
        y_view_ = kernel.in_place ? x_view_ : view(y_);
        positions_ = halyard::positions(static_cast<const std::int32_t *>(places_.data()), {1, shape[0]});
        x_offset_ = x_.offset(offset_);
        y_offset_ = y_.offset(offset_);
        run();  // compiles the kernel
        finish();
        if (queue.device == HALYARD_CUDA) {
            call_cuda("cuCtxPushCurrent_v2", queue.context);
            watch_.emplace(queue.stream);
            graph_.emplace(queue.stream, [this] { run(); });
        }
    }

    double time(long n_calls) {
        if (graph_) {
            const long n_launches = (n_calls + Graph::n_calls - 1) / Graph::n_calls;
            const double seconds = watch_->time([&] {
                for (long i = 0; i < n_launches; i++) {
                    graph_->launch();
                }
            });
            return seconds / static_cast<double>(n_launches * Graph::n_calls) * static_cast<double>(n_calls);
        }
        const double start = now();
        for (long i = 0; i < n_calls; i++) {
            run();
        }
        finish();
        return now() - start;
    }

private:
    static constexpr std::int32_t n_positions = 131072;
    static constexpr char ordinary_byte = 0x3f;  // of numbers near 1, whatever their dtype

    halyard_gpu_queue queue_;
    Shape shape_;
    std::int64_t bytes_, offset_;
    tool::DeviceMemory x_, y_, places_;
    std::unique_ptr<gpu_angles> angles_;
    std::unique_ptr<gpu_plan> plan_;
    halyard_tensor x_view_ = {}, y_view_ = {};
    halyard_positions positions_ = {};
    std::int64_t x_offset_ = 0, y_offset_ = 0;
    std::optional<Stopwatch> watch_;
    std::optional<Graph> graph_;

    /// In elements.
    static std::int64_t offset_of(const gpu::GpuKernel &kernel) {
        const bool is_widest = kernel.layout.bytes == 16;
        return is_widest ? 0 : kernel.layout == gpu::any_layout ? 1 : 2;
    }

    std::size_t n_tokens() const { return static_cast<std::size_t>(shape_[0]); }
    std::size_t n_bytes() const {
        return static_cast<std::size_t>((shape_[0] * shape_[1] * shape_[2] + offset_) * bytes_);
    }

    /// Scattered positions, as a batch of requests has them.
    std::vector<std::int32_t> list_positions() const {
        std::vector<std::int32_t> positions(n_tokens());
        oracle::Random random(1);
        std::generate(positions.begin(), positions.end(),
                      [&] { return static_cast<std::int32_t>(random.in(0, n_positions - 1)); });
        return positions;
    }

    void run() {
        auto args = make_struct<halyard_gpu_run_args>();
        args.bad_position = HALYARD_BAD_POSITION_IDENTITY;
        args.stream = queue_.stream;
        args.positions = &positions_;
        args.x = &x_view_;
        args.y = &y_view_;
        args.x_offsets = &x_offset_;
        args.y_offsets = &y_offset_;
        auto error = make_struct<halyard_error>();
        if (halyard_run_gpu(plan_->get(), &args, &error) != HALYARD_OK) {
            throw std::runtime_error(error.message);
        }
    }

    /// Waits until all that was enqueued is done.
    void finish() const {
        char byte = 0;
        places_.read(&byte, 1);
    }
};

void time_calls(const gpu::GpuKernel &kernel) {
    const tool::DeviceQueue queue(device_of(kernel.target));
    std::map<Site::Shape, std::unique_ptr<Site>> sites;
    for (std::string line; std::getline(std::cin, line);) {
        std::istringstream words(line);
        Site::Shape shape;
        long n_calls = 0;
        for (std::int64_t &extent : shape) {
            words >> extent;
        }
        if (!(words >> n_calls) || n_calls < 1) {
            throw std::runtime_error("this is no work: " + line);
        }
        std::unique_ptr<Site> &site = sites[shape];
        if (site == nullptr) {
            site = std::make_unique<Site>(kernel, queue.get(), shape);
        }
        std::printf("%.9g\n", site->time(n_calls));
        std::fflush(stdout);
    }
}

}  // namespace

int main(int argc, char **argv) {
    const std::string what = argc > 2 ? argv[1] : "";
    try {
        if (what == "device" && argc == 3) {
            print_device(argv[2]);
        } else if (what == "check" && argc == 5) {
            check(find_kernel(argv[2]), std::strtoull(argv[3], nullptr, 10), std::atoi(argv[4]));
        } else if (what == "time" && argc == 3) {
            time_calls(find_kernel(argv[2]));
        } else {
            std::fprintf(stderr, "usage: halyard_gpu_variant device TARGET | check KERNEL SEED TIMES | time KERNEL\n");
            return 2;
        }
        return 0;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}

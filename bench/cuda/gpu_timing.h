// Times work on CUDA devices by their own events. Signatures: CUDA driver API reference manual.
#pragma once

#include "device/device_memory.h"

namespace halyard::bench {

/// Calls a function of the driver, and throws where it fails.
template <typename... Arguments>
void call_cuda(const char *name, Arguments... arguments) {
    device::require_call(name, arguments...);
}

/// Measures the seconds on the device between two events around an action.
class Stopwatch {
public:
    explicit Stopwatch(void *stream) : stream_(stream) {
        call_cuda("cuEventCreate", &start_, 0u);
        call_cuda("cuEventCreate", &end_, 0u);
    }
    Stopwatch(const Stopwatch &) = delete;
    Stopwatch &operator=(const Stopwatch &) = delete;
    ~Stopwatch() {
        device::call_driver("cuEventDestroy_v2", start_);
        device::call_driver("cuEventDestroy_v2", end_);
    }
    template <typename Action>
    double time(Action action) const {
        call_cuda("cuEventRecord", start_, stream_);
        action();
        call_cuda("cuEventRecord", end_, stream_);
        call_cuda("cuEventSynchronize", end_);
        float milliseconds = 0;
        call_cuda("cuEventElapsedTime_v2", &milliseconds, start_, end_);
        return milliseconds * 1e-3;
    }

private:
    void *stream_, *start_ = nullptr, *end_ = nullptr;
};

/// A graph of many calls of an action. Launching it leaves out what the host does for each launch.
class Graph {
public:
    template <typename Action>
    Graph(void *stream, Action action) : stream_(stream) {
        call_cuda("cuStreamBeginCapture_v2", stream, 0);
        for (long i = 0; i < n_calls; i++) {
            action();
        }
        call_cuda("cuStreamEndCapture", stream, &graph_);
        call_cuda("cuGraphInstantiateWithFlags", &executable_, graph_, 0ull);
    }
    Graph(const Graph &) = delete;
    Graph &operator=(const Graph &) = delete;
    ~Graph() {
        device::call_driver("cuGraphExecDestroy", executable_);
        device::call_driver("cuGraphDestroy", graph_);
    }
    /// Seconds of n_calls calls, by as many launches as hold them.
    double time(const Stopwatch &watch, long n) const {
        const long n_launches = (n + n_calls - 1) / n_calls;
        const double seconds = watch.time([&] {
            for (long i = 0; i < n_launches; i++) {
                call_cuda("cuGraphLaunch", executable_, stream_);
            }
        });
        return seconds * static_cast<double>(n) / static_cast<double>(n_launches * n_calls);
    }

    static constexpr long n_calls = 100;

private:
    void *stream_, *graph_ = nullptr, *executable_ = nullptr;
};

/// A kernel that does nothing.
class EmptyKernel {
public:
    explicit EmptyKernel(void *stream) : stream_(stream) {
        static const char code[] =
            ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry empty()\n{\n    ret;\n}\n";
        call_cuda("cuModuleLoadData", &module_, static_cast<const void *>(code));
        call_cuda("cuModuleGetFunction", &function_, module_, "empty");
    }
    EmptyKernel(const EmptyKernel &) = delete;
    EmptyKernel &operator=(const EmptyKernel &) = delete;
    ~EmptyKernel() { device::call_driver("cuModuleUnload", module_); }

    void enqueue() const {
        void **const none = nullptr;
        call_cuda("cuLaunchKernel", function_, 1u, 1u, 1u, 32u, 1u, 1u, 0u, stream_, none, none);
    }

private:
    void *stream_, *module_ = nullptr, *function_ = nullptr;
};

}  // namespace halyard::bench

// See driver.h. Signatures, error codes and synchronisation follow the reference manual of the CUDA driver API.
#include "checks/cuda/driver.h"

#include "checks/cuda/machine.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <utility>

namespace {

using emulated_cuda::Address;
using emulated_cuda::Driver;
using emulated_cuda::Fault;
using emulated_cuda::Module;
using emulated_cuda::Region;
using Result = int;

constexpr Result success = 0, invalid_value = 1, out_of_memory = 2, invalid_context = 201, invalid_ptx = 218,
                 not_found = 500, launch_failed = 719, not_supported = 801, capture_unsupported = 900;
constexpr unsigned non_blocking = 1;               // CU_STREAM_NON_BLOCKING
constexpr int memory_type = 2;                     // CU_POINTER_ATTRIBUTE_MEMORY_TYPE
constexpr int device_ordinal = 9;                  // CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
constexpr unsigned most_shared_bytes = 48 * 1024;  // more needs cuFuncSetAttribute
constexpr std::uint64_t seed = 20261123 * 0x9e3779b97f4a7c15;

using Work = std::function<void()>;
using Graph = std::vector<Work>;

struct DriverState {
    std::mutex mutex;
    Driver driver;
    emulated_cuda::Memory memory;
    std::uint64_t n_streams = 0;
    std::map<void *, Graph> queues, captured;  // pending work of each stream; captured work of each capturing stream
};

DriverState &state() {
    static DriverState &only = *new DriverState;  // never destroyed: Halide calls the driver from destructors
    return only;
}

/// A thread's stack of contexts. It has no destructor, because Halide calls the driver even after threads' objects die.
struct Contexts {
    void *each[64];
    int n;
};
thread_local Contexts contexts;

void *current() { return contexts.n == 0 ? nullptr : contexts.each[contexts.n - 1]; }

// ---- Calls ---------------------------------------------------------------------------------------------------------

struct Refusal {
    Result result;
};

void need(bool is_so, Result result) {
    if (!is_so) {
        throw Refusal{result};
    }
}

/// Refuses calls that wait, allocate, free, copy or load while a stream captures.
void need_no_capture() { need(state().captured.empty(), capture_unsupported); }

/// Records a call and executes it, unless the test wants it to fail. After a kernel's illegal access all calls fail, as
/// on a device.
template <typename Act>
Result call(const char *name, Act act) {
    const std::lock_guard lock(state().mutex);
    Driver &driver = state().driver;
    driver.calls.push_back({name, success, current(), nullptr});
    Result &result = driver.calls.back().result;
    try {
        need(driver.failing.function != name || driver.failing.calls_until-- != 0, driver.failing.error);
        need(driver.fault.empty(), launch_failed);
        act();
        need(driver.fault.empty(), launch_failed);
    } catch (const Refusal &refusal) {
        result = refusal.result;
    } catch (const Fault &fault) {  // decode() refused a module
        std::fprintf(stderr, "emulated CUDA: %s\n", fault.what());
        result = invalid_ptx;
    } catch (const std::exception &) {
        result = out_of_memory;
    }
    return result;
}

// ---- Streams -------------------------------------------------------------------------------------------------------

/// Executes the pending work of a stream.
void finish(void *stream) {
    for (const Work &work : std::exchange(state().queues[stream], {})) {
        if (state().driver.fault.empty()) {
            work();
        }
    }
}

void finish_all_streams() {
    for (const auto &[stream, queue] : state().queues) {
        finish(stream);
    }
}

/// Enqueues work on a stream, or adds it to the graph that the stream captures.
void enqueue(void *stream, const Work &work) {
    const auto captured = state().captured.find(stream);
    (captured == state().captured.end() ? state().queues[stream] : captured->second).push_back(work);
}

void execute(const emulated_cuda::Launch &launch) {
    Driver &driver = state().driver;
    if (!driver.executes) {
        return;
    }
    try {
        const auto number = static_cast<std::uint32_t>(++driver.n_executed);
        emulated_cuda::execute(launch, state().memory, number, seed + number);
    } catch (const Fault &fault) {
        driver.fault = fault.what();
        std::fprintf(stderr, "emulated CUDA: %s\n", fault.what());
    }
}

std::string read_file(const std::string &path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
}

/// A module's PTX, or its replacement by HALYARD_EMULATED_CUDA_REPLACE=this.ptx:by_that.ptx. this.ptx need only start
/// with the module's PTX, because files may end in more newlines.
std::string ptx_of(const void *image) {
    const std::string ptx = static_cast<const char *>(image);
    const char *const replaced = std::getenv("HALYARD_EMULATED_CUDA_REPLACE");
    const std::string paths = replaced == nullptr ? ":" : replaced;
    const std::size_t colon = paths.find(':');
    return read_file(paths.substr(0, colon)).starts_with(ptx) ? read_file(paths.substr(colon + 1)) : ptx;
}

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))
/// Defines an exported driver function from its name, its parameters and the parameters' names. The body follows.
#define DRIVER(name, parameters, ...)                                                                                  \
    static void do_##name parameters;                                                                                  \
    EXPORTED Result name parameters {                                                                                  \
        return call(#name, [=] { do_##name(__VA_ARGS__); });                                                           \
    }                                                                                                                  \
    static void do_##name parameters

Driver &emulated_cuda::the_driver() { return state().driver; }

// Halide's runtime looks these up, but Halyard never makes it call them.
#define UNUSED(name) EXPORTED Result name() { return not_supported; }
UNUSED(cuDeviceGetName) UNUSED(cuDeviceTotalMem_v2) UNUSED(cuCtxCreate_v2) UNUSED(cuCtxDestroy_v2)
UNUSED(cuCtxGetApiVersion) UNUSED(cuProfilerStop) UNUSED(cuMemcpyHtoDAsync_v2) UNUSED(cuMemcpyDtoDAsync_v2)
UNUSED(cuMemcpyDtoHAsync_v2) UNUSED(cuMemcpyDtoD_v2) UNUSED(cuMemcpy3D_v2)

// ---- Devices and contexts ------------------------------------------------------------------------------------------

DRIVER(cuInit, (unsigned flags), flags) { need(flags == 0, invalid_value); }
DRIVER(cuDeviceGetCount, (int *count), count) { *count = 2; }
DRIVER(cuDeviceGet, (int *device, int ordinal), device, ordinal) { *device = ordinal; }
DRIVER(cuDeviceGetAttribute, (int *value, int attribute, int device), value, attribute, device) {
    const char *const given = std::getenv("EMULATED_CUDA_CAPABILITY");
    const int capability = given == nullptr ? 80 : std::atoi(given);
    *value = attribute == 75 ? capability / 10 : attribute == 76 ? capability % 10 : 0;
    need(device < 2, invalid_value);
}
DRIVER(cuDevicePrimaryCtxRetain, (void **context, int device), context, device) {
    static char primary;
    need(device == 0, invalid_value);
    *context = &primary;
}
DRIVER(cuDevicePrimaryCtxRelease_v2, (int device), device) { need(device == 0, invalid_value); }
DRIVER(cuCtxGetCurrent, (void **context), context) { *context = current(); }
DRIVER(cuCtxPushCurrent_v2, (void *context), context) {
    need(context != nullptr && contexts.n < static_cast<int>(std::size(contexts.each)), invalid_value);
    contexts.each[contexts.n++] = context;
}
DRIVER(cuCtxPopCurrent_v2, (void **context), context) {
    need(contexts.n > 0, invalid_context);
    *context = contexts.each[--contexts.n];
}
DRIVER(cuCtxGetDevice, (int *device), device) {
    need(current() != nullptr, invalid_context);
    *device = current() == state().driver.context_of_device_1 ? 1 : 0;
}
DRIVER(cuCtxSynchronize, ()) {
    need_no_capture();
    finish_all_streams();
}

// ---- Streams and graphs --------------------------------------------------------------------------------------------

DRIVER(cuStreamCreate, (void **stream, unsigned flags), stream, flags) {
    // A blocking stream is in order with the default stream, so it is modelled as the default stream itself.
    *stream = flags == non_blocking ? reinterpret_cast<void *>(8 * ++state().n_streams) : nullptr;
}
DRIVER(cuStreamDestroy_v2, (void *stream), stream) { finish(stream); }
DRIVER(cuStreamSynchronize, (void *stream), stream) {
    state().driver.calls.back().stream = stream;
    need_no_capture();
    finish(stream);
}
DRIVER(cuStreamBeginCapture_v2, (void *stream, int mode), stream, mode) {
    need(mode >= 0 && mode <= 2, invalid_value);
    state().captured[stream];
}
DRIVER(cuStreamEndCapture, (void *stream, void **graph), stream, graph) {
    *graph = new Graph(state().captured[stream]);
    state().captured.erase(stream);
}
DRIVER(cuGraphInstantiateWithFlags, (void **executable, void *graph, unsigned long long flags), executable, graph,
       flags) {
    need(flags == 0, invalid_value);
    *executable = new Graph(*static_cast<Graph *>(graph));
}
DRIVER(cuGraphLaunch, (void *executable, void *stream), executable, stream) {
    for (const Work &work : *static_cast<Graph *>(executable)) {
        enqueue(stream, work);
    }
}
DRIVER(cuGraphExecDestroy, (void *executable), executable) { delete static_cast<Graph *>(executable); }
DRIVER(cuGraphDestroy, (void *graph), graph) { delete static_cast<Graph *>(graph); }

// ---- Memory --------------------------------------------------------------------------------------------------------

DRIVER(cuPointerGetAttribute, (void *data, int attribute, Address address), data, attribute, address) {
    const bool is_of_device = state().memory.find(address, 1) != nullptr;
    const bool is_pinned = address != 0 && address == reinterpret_cast<Address>(state().driver.pinned);
    need((is_of_device || is_pinned) && (attribute == device_ordinal || attribute == memory_type), invalid_value);
    *static_cast<int *>(data) = attribute == device_ordinal ? 0 : is_of_device ? 2 : 1;  // CU_MEMORYTYPE_DEVICE, _HOST
}
DRIVER(cuMemAlloc_v2, (Address * address, std::size_t n_bytes), address, n_bytes) {
    need_no_capture();
    need(current() != nullptr, invalid_context);
    need(n_bytes != 0, invalid_value);
    *address = state().memory.allocate(n_bytes);
    state().driver.n_regions++;
}
DRIVER(cuMemFree_v2, (Address address), address) {
    need_no_capture();
    finish_all_streams();
    need(state().memory.release(address), invalid_value);
    state().driver.n_regions--;
}
/// Reads the source at once, but writes device memory only when the default stream's work runs.
DRIVER(cuMemcpyHtoD_v2, (Address to, const void *from, std::size_t n_bytes), to, from, n_bytes) {
    need_no_capture();
    Region *const region = state().memory.find(to, n_bytes);  // cuMemFree finishes this work before it frees
    need(region != nullptr, invalid_value);
    const auto *const bytes = static_cast<const std::uint8_t *>(from);
    enqueue(nullptr, [=, staged = std::vector<std::uint8_t>(bytes, bytes + n_bytes)] {
        std::ranges::copy(staged, region->bytes(to));
    });
}
DRIVER(cuMemcpyDtoH_v2, (void *to, Address from, std::size_t n_bytes), to, from, n_bytes) {
    need_no_capture();
    finish(nullptr);
    Region *const region = state().memory.find(from, n_bytes);
    need(region != nullptr, invalid_value);
    std::memcpy(to, region->bytes(from), n_bytes);
}

// ---- Modules and launches ------------------------------------------------------------------------------------------

DRIVER(cuModuleLoadData, (void **module, const void *image), module, image) {
    need_no_capture();
    *module = new Module(emulated_cuda::decode(ptx_of(image)));
    state().driver.n_modules++;
}
EXPORTED Result cuModuleLoadDataEx(void **module, const void *image, unsigned, int *, void **) {
    return cuModuleLoadData(module, image);
}
DRIVER(cuModuleUnload, (void *module), module) {
    delete static_cast<Module *>(module);
    state().driver.n_modules--;
}
DRIVER(cuModuleGetFunction, (void **function, void *module, const char *name), function, module, name) {
    const auto found = static_cast<Module *>(module)->find(name);
    need(found != static_cast<Module *>(module)->end(), not_found);
    *function = &found->second;
}

#define SIZE(name) unsigned name##_x, unsigned name##_y, unsigned name##_z

EXPORTED Result cuLaunchKernel(void *handle, SIZE(grid), SIZE(block), unsigned shared_bytes, void *stream,
                               void **parameters, void **extra) {
    return call("cuLaunchKernel", [=] {
        const auto function = *static_cast<Module::mapped_type *>(handle);  // a pending launch keeps the function alive
        emulated_cuda::Call &made = state().driver.calls.back();
        made.stream = stream;
        made.store_bits = static_cast<int>(function->store_bits);
        made.grid = {grid_x, grid_y, grid_z};
        made.block = {block_x, block_y, block_z};
        need(grid_x > 0 && grid_x <= INT32_MAX && grid_y > 0 && grid_y <= 65535 && grid_z > 0 && grid_z <= 65535 &&
                 block_x > 0 && block_y > 0 && block_z > 0 && block_z <= 64 &&
                 std::uint64_t{block_x} * block_y * block_z <= 1024 && shared_bytes <= most_shared_bytes &&
                 extra == nullptr,
             invalid_value);
        std::vector<std::uint8_t> bytes(function->parameter_bytes + 16);
        for (std::size_t i = 0; i < function->parameters.size(); i++) {
            std::memcpy(&bytes[function->parameters[i].offset], parameters[i], function->parameters[i].n_bytes);
        }
        const emulated_cuda::Launch asked = {function, made.grid, made.block, shared_bytes, bytes};
        enqueue(stream, [=] { execute(asked); });
    });
}

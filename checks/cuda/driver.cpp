// See driver.h. Signatures, error codes and what waits for what are those of the CUDA driver API's reference manual.
#include "checks/cuda/driver.h"

#include "checks/cuda/machine.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <utility>

namespace {

using emulated_cuda::Address;
using emulated_cuda::Driver;
using emulated_cuda::Fault;
using emulated_cuda::Region;
using Result = int;

constexpr Result success = 0, invalid_value = 1, out_of_memory = 2, invalid_context = 201, invalid_ptx = 218,
                 not_found = 500, launch_failed = 719, not_supported = 801, capture_unsupported = 900;
constexpr unsigned non_blocking = 1;                  // CU_STREAM_NON_BLOCKING
constexpr std::size_t most_shared_bytes = 48 * 1024;  // that a launch may have unasked
constexpr std::uint64_t seed = 20261123 * 0x9e3779b97f4a7c15;

using Work = std::function<void()>;
using Graph = std::vector<Work>;

/// A function of a module, whose code lives as long as one of its launches waits.
struct Function {
    std::shared_ptr<const emulated_cuda::Module> module;
    const emulated_cuda::Function *code;
    int store_bits;
};

using Module = std::map<std::string, Function>;

struct State {
    std::recursive_mutex mutex;
    Driver driver;
    emulated_cuda::Memory memory;
    std::uint64_t n_streams = 0;
    std::set<void *> blocking;  // streams whose work is in order with that of the default stream
    std::map<void *, std::vector<Work>> queues;
    std::map<void *, Graph> captured;  // by streams that capture now
    State() {
        const char *const how = std::getenv("HALYARD_EMULATED_CUDA");
        driver.executes = how == nullptr || std::strcmp(how, "records") != 0;
    }
};

State &state() {
    static State &only = *new State;  // Halide calls from its destructors
    return only;
}

using Lock = std::lock_guard<std::recursive_mutex>;

/// The contexts of a thread, the current one last. It has no destructor, because Halide calls after those of threads.
struct Contexts {
    void *each[64];
    int n;
};
thread_local Contexts contexts;

void *current() { return contexts.n == 0 ? nullptr : contexts.each[contexts.n - 1]; }

/// Records a call. Returns the failure that the test asks for, or what a launch before it has come to, or success.
Result record(const char *name, void *stream = nullptr) {
    const Lock lock(state().mutex);
    Driver &driver = state().driver;
    emulated_cuda::Call call = {name, driver.fault.empty() ? success : launch_failed, current(), stream};
    if (driver.failing == name && driver.calls_until-- == 0) {
        call.result = driver.failure;
    }
    driver.calls.push_back(call);
    return call.result;
}

// ---- Streams -------------------------------------------------------------------------------------------------------

std::vector<Work> &queue_of(void *stream) {
    return state().queues[state().blocking.contains(stream) ? nullptr : stream];
}

/// Does what waits.
void finish(std::vector<Work> &queue) {
    for (const Work &work : std::exchange(queue, {})) {
        if (state().driver.fault.empty()) {
            work();
        }
    }
}

void finish_all() {
    for (auto &[stream, queue] : state().queues) {
        finish(queue);
    }
}

bool is_capturing() { return !state().captured.empty(); }

/// Enqueues work on a stream, or adds it to what that captures.
void enqueue(void *stream, Work work) {
    const auto captured = state().captured.find(stream);
    (captured == state().captured.end() ? queue_of(stream) : captured->second).push_back(std::move(work));
}

/// The memory that holds so many bytes from an address.
Region *memory_at(Address at, std::size_t n_bytes) {
    Region *const region = state().memory.find(at);
    return region != nullptr && region->holds(at, n_bytes) ? region : nullptr;
}

void execute(const emulated_cuda::Launch &launch) {
    Driver &driver = state().driver;
    if (!driver.executes) {
        return;
    }
    try {
        const auto number = static_cast<std::uint32_t>(++driver.n_executed);
        emulated_cuda::allows_torn_writes = driver.allows_torn_writes;
        emulated_cuda::execute(launch, state().memory, number, seed + number);
    } catch (const Fault &fault) {
        driver.fault = fault.what();
        std::fprintf(stderr, "emulated CUDA: %s\n", fault.what());
    }
}

std::string text_of(const std::string &path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
}

/// A module's PTX, or what the environment puts in its place: HALYARD_EMULATED_CUDA_REPLACE=this.ptx:by_that.ptx. A
/// file may have more newlines at its end than what was built in.
std::string ptx_of(const void *image) {
    const std::string ptx = static_cast<const char *>(image);
    const char *const replaced = std::getenv("HALYARD_EMULATED_CUDA_REPLACE");
    const std::string paths = replaced == nullptr ? ":" : replaced;
    const std::size_t colon = paths.find(':');
    return text_of(paths.substr(0, colon)).starts_with(ptx) ? text_of(paths.substr(colon + 1)) : ptx;
}

Result load(const char *name, void **module, const void *image) {
    const Lock lock(state().mutex);
    const Result result = is_capturing() ? capture_unsupported : record(name);
    if (result != success) {
        return result;
    }
    const std::string ptx = ptx_of(image);
    const auto stores = [&](const char *what) { return ptx.find(what) != ptx.npos; };
    try {
        const auto code = std::make_shared<const emulated_cuda::Module>(emulated_cuda::decode(ptx));
        const int store_bits = stores("st.global.v4.b32") || stores("st.global.v2.b64") ? 128
                               : stores("st.global.b64")                                ? 64
                               : stores("st.global.b32")                                ? 32
                                                                                        : 16;
        auto loaded = std::make_unique<Module>();
        for (const auto &[function, its_code] : code->functions) {
            loaded->emplace(function, Function{code, &its_code, store_bits});
        }
        *module = loaded.release();
        state().driver.n_modules++;
        return success;
    } catch (const Fault &fault) {
        std::fprintf(stderr, "emulated CUDA: %s\n", fault.what());
        return invalid_ptx;
    }
}

}  // namespace

// Each function holds the lock while it reads or changes the state, be it in record().
#define DRIVER(name, ...) extern "C" __attribute__((visibility("default"))) Result name(__VA_ARGS__)

extern "C" __attribute__((visibility("default"))) void emulated_cuda_access(void (*use)(Driver &, void *),
                                                                            void *argument) {
    const Lock lock(state().mutex);
    state().driver.n_regions = state().memory.n_regions();
    use(state().driver, argument);
}

// Halide looks these up, but Halyard has it call none.
DRIVER(cuDeviceGetName) { return not_supported; }
DRIVER(cuDeviceTotalMem_v2) { return not_supported; }
DRIVER(cuCtxCreate_v2) { return not_supported; }
DRIVER(cuCtxDestroy_v2) { return not_supported; }
DRIVER(cuCtxGetApiVersion) { return not_supported; }
DRIVER(cuProfilerStop) { return not_supported; }
DRIVER(cuMemcpyHtoDAsync_v2) { return not_supported; }
DRIVER(cuMemcpyDtoDAsync_v2) { return not_supported; }
DRIVER(cuMemcpyDtoHAsync_v2) { return not_supported; }
DRIVER(cuMemcpyDtoD_v2) { return not_supported; }
DRIVER(cuMemcpy3D_v2) { return not_supported; }

// ---- Devices and contexts ------------------------------------------------------------------------------------------

DRIVER(cuInit, unsigned) { return record("cuInit"); }

DRIVER(cuDeviceGetCount, int *count) {
    *count = 2;
    return record("cuDeviceGetCount");
}

DRIVER(cuDeviceGet, int *device, int ordinal) {
    *device = ordinal;
    return record("cuDeviceGet");
}

DRIVER(cuDeviceGetAttribute, int *value, int attribute, int) {
    const char *const given = std::getenv("EMULATED_CUDA_CAPABILITY");
    const int capability = given == nullptr ? 80 : std::atoi(given);
    *value = attribute == 75 ? capability / 10 : attribute == 76 ? capability % 10 : 0;
    return record("cuDeviceGetAttribute");
}

DRIVER(cuDevicePrimaryCtxRetain, void **context, int) {
    static char primary;
    *context = &primary;
    return record("cuDevicePrimaryCtxRetain");
}

DRIVER(cuDevicePrimaryCtxRelease_v2, int) { return record("cuDevicePrimaryCtxRelease_v2"); }

DRIVER(cuCtxGetCurrent, void **context) {
    *context = current();
    return record("cuCtxGetCurrent");
}

DRIVER(cuCtxPushCurrent_v2, void *context) {
    if (context == nullptr || contexts.n == static_cast<int>(std::size(contexts.each))) {
        return invalid_value;
    }
    contexts.each[contexts.n++] = context;
    record("cuCtxPushCurrent_v2");
    return success;
}

DRIVER(cuCtxPopCurrent_v2, void **context) {
    if (contexts.n == 0) {
        return invalid_context;
    }
    *context = contexts.each[--contexts.n];
    record("cuCtxPopCurrent_v2");
    return success;
}

DRIVER(cuCtxGetDevice, int *device) {
    const Lock lock(state().mutex);
    *device = current() == state().driver.context_of_device_1 ? 1 : 0;
    return current() == nullptr ? invalid_context : record("cuCtxGetDevice");
}

DRIVER(cuCtxSynchronize) {
    const Lock lock(state().mutex);
    if (is_capturing()) {
        return capture_unsupported;
    }
    finish_all();
    return record("cuCtxSynchronize");
}

// ---- Streams and graphs --------------------------------------------------------------------------------------------

DRIVER(cuStreamCreate, void **stream, unsigned flags) {
    const Lock lock(state().mutex);
    *stream = reinterpret_cast<void *>(8 * ++state().n_streams);
    if ((flags & non_blocking) == 0) {
        state().blocking.insert(*stream);
    }
    return record("cuStreamCreate");
}

DRIVER(cuStreamDestroy_v2, void *stream) {
    const Lock lock(state().mutex);
    finish(queue_of(stream));
    return record("cuStreamDestroy_v2");
}

DRIVER(cuStreamSynchronize, void *stream) {
    const Lock lock(state().mutex);
    if (is_capturing()) {
        return capture_unsupported;
    }
    finish(queue_of(stream));
    return record("cuStreamSynchronize", stream);
}

DRIVER(cuStreamBeginCapture_v2, void *stream, int) {
    const Lock lock(state().mutex);
    state().captured[stream];
    return record("cuStreamBeginCapture_v2", stream);
}

DRIVER(cuStreamEndCapture, void *stream, void **graph) {
    const Lock lock(state().mutex);
    *graph = new Graph(std::move(state().captured.at(stream)));
    state().captured.erase(stream);
    return record("cuStreamEndCapture", stream);
}

DRIVER(cuGraphInstantiateWithFlags, void **executable, void *graph, unsigned long long) {
    *executable = new Graph(*static_cast<Graph *>(graph));
    return record("cuGraphInstantiateWithFlags");
}

DRIVER(cuGraphLaunch, void *executable, void *stream) {
    const Lock lock(state().mutex);
    const Result result = record("cuGraphLaunch", stream);
    for (const Work &work : *static_cast<Graph *>(executable)) {
        enqueue(stream, work);
    }
    return result;
}

DRIVER(cuGraphExecDestroy, void *executable) {
    delete static_cast<Graph *>(executable);
    return record("cuGraphExecDestroy");
}

DRIVER(cuGraphDestroy, void *graph) {
    delete static_cast<Graph *>(graph);
    return record("cuGraphDestroy");
}

// ---- Memory --------------------------------------------------------------------------------------------------------

DRIVER(cuPointerGetAttribute, void *data, int, Address address) {
    const Lock lock(state().mutex);
    *static_cast<int *>(data) = 0;  // of device 0
    return memory_at(address, 0) == nullptr ? invalid_value : record("cuPointerGetAttribute");
}

DRIVER(cuMemAlloc_v2, Address *address, std::size_t n_bytes) {
    const Lock lock(state().mutex);
    if (current() == nullptr || is_capturing()) {
        return current() == nullptr ? invalid_context : capture_unsupported;
    }
    const Result result = n_bytes == 0 ? invalid_value : record("cuMemAlloc_v2");
    if (result != success) {
        return result;
    }
    *address = state().memory.allocate(n_bytes);
    return *address == 0 ? out_of_memory : success;
}

DRIVER(cuMemFree_v2, Address address) {
    const Lock lock(state().mutex);
    if (is_capturing()) {
        return capture_unsupported;
    }
    finish_all();
    return state().memory.release(address) ? record("cuMemFree_v2") : invalid_value;
}

/// What is to be copied is read at once, and may be on its way when the call returns.
DRIVER(cuMemcpyHtoD_v2, Address to, const void *from, std::size_t n_bytes) {
    const Lock lock(state().mutex);
    if (is_capturing()) {
        return capture_unsupported;
    }
    const Result result = memory_at(to, n_bytes) == nullptr ? invalid_value : record("cuMemcpyHtoD_v2");
    if (result == success) {
        const auto *const bytes = static_cast<const std::uint8_t *>(from);
        enqueue(nullptr, [to, staged = std::vector<std::uint8_t>(bytes, bytes + n_bytes)] {
            if (Region *const region = memory_at(to, staged.size())) {
                std::memcpy(region->bytes(to), staged.data(), staged.size());
            }
        });
    }
    return result;
}

DRIVER(cuMemcpyDtoH_v2, void *to, Address from, std::size_t n_bytes) {
    const Lock lock(state().mutex);
    if (is_capturing()) {
        return capture_unsupported;
    }
    finish(queue_of(nullptr));
    const Region *const region = memory_at(from, n_bytes);
    const Result result = region == nullptr ? invalid_value : record("cuMemcpyDtoH_v2");
    if (result == success) {
        std::memcpy(to, region->bytes(from), n_bytes);
    }
    return result;
}

// ---- Modules and launches ------------------------------------------------------------------------------------------

DRIVER(cuModuleLoadData, void **module, const void *image) { return load("cuModuleLoadData", module, image); }

DRIVER(cuModuleLoadDataEx, void **module, const void *image, unsigned, int *, void **) {
    return load("cuModuleLoadDataEx", module, image);
}

DRIVER(cuModuleUnload, void *module) {
    const Lock lock(state().mutex);
    delete static_cast<Module *>(module);
    state().driver.n_modules--;
    return record("cuModuleUnload");
}

DRIVER(cuModuleGetFunction, void **function, void *module, const char *name) {
    const auto found = static_cast<Module *>(module)->find(name);
    if (found == static_cast<Module *>(module)->end()) {
        return not_found;
    }
    *function = &found->second;
    return record("cuModuleGetFunction");
}

DRIVER(cuLaunchKernel, void *handle, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
       unsigned block_y, unsigned block_z, unsigned shared_bytes, void *stream, void **parameters, void **extra) {
    const Lock lock(state().mutex);
    const std::array<unsigned, 3> grid = {grid_x, grid_y, grid_z}, block = {block_x, block_y, block_z};
    const bool is_possible = grid_x > 0 && grid_x <= INT32_MAX && grid_y > 0 && grid_y <= 65535 && grid_z > 0 &&
                             grid_z <= 65535 && block_x > 0 && block_y > 0 && block_z > 0 && block_z <= 64 &&
                             std::uint64_t{block_x} * block_y * block_z <= 1024 && shared_bytes <= most_shared_bytes &&
                             extra == nullptr;
    if (!is_possible) {
        return invalid_value;
    }
    const auto &function = *static_cast<Function *>(handle);
    const Result result = record("cuLaunchKernel", stream);
    emulated_cuda::Call &call = state().driver.calls.back();
    call.store_bits = function.store_bits;
    call.grid = grid;
    call.block = block;
    if (result == success) {
        emulated_cuda::Launch launch = {
            function.module, function.code, grid,
            block,           shared_bytes,  std::vector<std::uint8_t>(function.code->parameter_bytes)};
        for (std::size_t i = 0; i < function.code->parameters.size(); i++) {
            const auto &parameter = function.code->parameters[i];
            std::memcpy(launch.parameters.data() + parameter.offset, parameters[i], parameter.n_bytes);
        }
        enqueue(stream, [launch = std::move(launch)] { execute(launch); });
    }
    return result;
}

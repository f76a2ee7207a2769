// See driver.h. Signatures, error codes and what waits for what are those of the CUDA driver API's reference manual.
#include "checks/cuda/driver.h"

#include "checks/cuda/machine.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <set>

namespace {

using emulated_cuda::Address;
using emulated_cuda::Driver;
using emulated_cuda::Fault;
using emulated_cuda::Region;
using Result = int;

constexpr Result success = 0, invalid_value = 1, out_of_memory = 2, invalid_context = 201, invalid_ptx = 218,
                 invalid_handle = 400, not_found = 500, launch_failed = 719, not_supported = 801,
                 capture_unsupported = 900;
constexpr unsigned non_blocking = 1;                  // CU_STREAM_NON_BLOCKING
constexpr std::size_t most_shared_bytes = 48 * 1024;  // that a launch may have unasked

using Work = std::function<void()>;
using Graph = std::vector<Work>;

struct Stream {
    bool is_blocking;
    std::unique_ptr<Graph> captured = nullptr;  // while it captures
};

/// A function of a module, whose code lives as long as one of its launches waits.
struct Function {
    std::shared_ptr<const emulated_cuda::Module> module;
    const emulated_cuda::Function *code;
    int store_bits;
};

using Module = std::map<std::string, Function>;

struct Queued {
    void *stream;
    Work work;
};

struct State {
    std::recursive_mutex mutex;
    Driver driver;
    emulated_cuda::Memory memory;
    std::set<Stream *> streams;
    std::deque<Queued> queue;
    std::uint32_t n_launches = 0;
    std::uint64_t seed = 20261123;
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

Stream *stream_of(void *handle) {
    const auto found = state().streams.find(static_cast<Stream *>(handle));
    return found == state().streams.end() ? nullptr : *found;
}

bool is_known(void *handle) { return handle == nullptr || stream_of(handle) != nullptr || !state().driver.executes; }

/// Whether a stream and the default stream wait for each other.
bool is_blocking(void *handle) {
    const Stream *const stream = stream_of(handle);
    return stream != nullptr && stream->is_blocking;
}

/// Does what was enqueued on a stream, and what must come before that; or, of all streams, everything.
void finish(void *stream, bool of_all = false) {
    std::deque<Queued> &queue = state().queue;
    std::vector<char> is_wanted(queue.size());
    std::set<void *> streams = {stream};
    bool wants_default = stream == nullptr, wants_blocking = is_blocking(stream) || stream == nullptr;
    for (std::size_t i = queue.size(); i-- > 0;) {
        void *const of = queue[i].stream;
        is_wanted[i] =
            of_all || streams.contains(of) || (of == nullptr && wants_blocking) || (is_blocking(of) && wants_default);
        if (is_wanted[i] != 0) {
            streams.insert(of);
            wants_default = wants_default || of == nullptr;
            wants_blocking = wants_blocking || of == nullptr || is_blocking(of);
        }
    }
    std::deque<Queued> left;
    std::vector<Work> now;
    for (std::size_t i = 0; i < queue.size(); i++) {
        if (is_wanted[i] != 0) {
            now.push_back(std::move(queue[i].work));
        } else {
            left.push_back(std::move(queue[i]));
        }
    }
    queue = std::move(left);
    for (const Work &work : now) {
        if (state().driver.fault.empty()) {
            work();
        }
    }
}

bool is_capturing() {
    return std::ranges::any_of(state().streams, [](const Stream *stream) { return stream->captured != nullptr; });
}

/// Enqueues work on a stream, or adds it to what that captures.
void enqueue(void *stream, Work work) {
    Stream *const known = stream_of(stream);
    if (known != nullptr && known->captured != nullptr) {
        known->captured->push_back(std::move(work));
    } else {
        state().queue.push_back({stream, std::move(work)});
    }
}

/// The memory that holds so many bytes from an address.
Region *memory_at(Address at, std::size_t n_bytes) {
    Region *const region = state().memory.find(at);
    return region != nullptr && region->holds(at, n_bytes) ? region : nullptr;
}

/// Waits as a call that is synchronous does, and returns what there is to tell.
Result waited(const char *name, void *stream, bool for_all = false) {
    const Lock lock(state().mutex);
    if (is_capturing()) {
        return capture_unsupported;
    }
    finish(stream, for_all);
    return record(name, stream);
}

Result copy_out(const char *name, void *to, Address from, std::size_t n_bytes, void *stream) {
    const Lock lock(state().mutex);
    if (is_capturing()) {
        return capture_unsupported;
    }
    finish(stream);
    const Region *const region = memory_at(from, n_bytes);
    const Result result = region == nullptr ? invalid_value : record(name, stream);
    if (result == success) {
        region->read(to, from, n_bytes);
    }
    return result;
}

void execute(const emulated_cuda::Launch &launch) {
    Driver &driver = state().driver;
    if (!driver.executes) {
        return;
    }
    try {
        const auto number = static_cast<std::uint32_t>(++driver.n_executed);
        emulated_cuda::allows_torn_writes = driver.allows_torn_writes;
        emulated_cuda::execute(launch, state().memory, number, state().seed * 0x9e3779b97f4a7c15 + number);
    } catch (const Fault &fault) {
        driver.fault = fault.what();
        std::fprintf(stderr, "emulated CUDA: %s\n", fault.what());
    }
}

/// Without newlines at the end, of which a file may have more than what was built in.
std::string without_end(std::string text) {
    text.erase(text.find_last_not_of('\n') + 1);
    return text;
}

std::string text_of(const std::string &path) {
    std::ifstream file(path);
    return without_end({std::istreambuf_iterator<char>(file), {}});
}

/// A module's PTX, or what the environment puts in its place: HALYARD_EMULATED_CUDA_REPLACE=this.ptx:by_that.ptx
std::string ptx_of(const void *image) {
    const std::string ptx = static_cast<const char *>(image);
    const char *const replaced = std::getenv("HALYARD_EMULATED_CUDA_REPLACE");
    const std::string paths = replaced == nullptr ? "" : replaced;
    const std::size_t colon = std::min(paths.find(':'), paths.size());
    return !paths.empty() && text_of(paths.substr(0, colon)) == without_end(ptx) ? text_of(paths.substr(colon + 1))
                                                                                 : ptx;
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

// Each function holds the lock while it reads or changes the state, be it in record(), waited() and the like.
#define DRIVER(name, ...) extern "C" __attribute__((visibility("default"))) Result name(__VA_ARGS__)

extern "C" __attribute__((visibility("default"))) void emulated_cuda_access(void (*use)(Driver &, void *),
                                                                            void *argument) {
    const Lock lock(state().mutex);
    state().driver.n_regions = state().memory.n_regions();
    use(state().driver, argument);
}

// Halide looks these up, but Halyard has it call none.
DRIVER(cuDeviceTotalMem_v2) { return not_supported; }
DRIVER(cuCtxCreate_v2) { return not_supported; }
DRIVER(cuCtxDestroy_v2) { return not_supported; }
DRIVER(cuCtxGetApiVersion) { return not_supported; }
DRIVER(cuProfilerStop) { return not_supported; }
DRIVER(cuMemcpyHtoDAsync_v2) { return not_supported; }
DRIVER(cuMemcpyDtoD_v2) { return not_supported; }
DRIVER(cuMemcpy3D_v2) { return not_supported; }

// ---- Devices and contexts ------------------------------------------------------------------------------------------

DRIVER(cuInit, unsigned) { return record("cuInit"); }

DRIVER(cuDriverGetVersion, int *version) {
    *version = 12000;
    return success;
}

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

DRIVER(cuDeviceGetName, char *name, int length, int) {
    std::snprintf(name, static_cast<std::size_t>(length), "emulated");
    return record("cuDeviceGetName");
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
    const bool is_possible = context != nullptr && contexts.n < static_cast<int>(std::size(contexts.each));
    const Result result = is_possible ? record("cuCtxPushCurrent_v2") : invalid_value;
    if (is_possible && (result == success || result == launch_failed)) {
        contexts.each[contexts.n++] = context;
        return success;
    }
    return result;
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

DRIVER(cuCtxSynchronize) { return waited("cuCtxSynchronize", nullptr, true); }

// ---- Streams, events and graphs ------------------------------------------------------------------------------------

DRIVER(cuStreamCreate, void **stream, unsigned flags) {
    const Lock lock(state().mutex);
    auto *const made = new Stream{(flags & non_blocking) == 0};
    state().streams.insert(made);
    *stream = made;
    return record("cuStreamCreate");
}

DRIVER(cuStreamDestroy_v2, void *stream) {
    const Lock lock(state().mutex);
    if (stream_of(stream) == nullptr) {
        return invalid_handle;
    }
    finish(stream);
    state().streams.erase(static_cast<Stream *>(stream));
    delete static_cast<Stream *>(stream);
    return record("cuStreamDestroy_v2");
}

DRIVER(cuStreamSynchronize, void *stream) {
    const Lock lock(state().mutex);
    return is_known(stream) ? waited("cuStreamSynchronize", stream) : invalid_handle;
}

DRIVER(cuEventCreate, long **event, unsigned) {
    *event = new long(0);
    return record("cuEventCreate");
}

DRIVER(cuEventDestroy_v2, long *event) {
    delete event;
    return record("cuEventDestroy_v2");
}

/// An event tells how many launches came before it: each takes a millisecond.
DRIVER(cuEventRecord, long *event, void *stream) {
    const Lock lock(state().mutex);
    *event = state().n_launches;
    return record("cuEventRecord", stream);
}

DRIVER(cuEventSynchronize, long *) { return waited("cuEventSynchronize", nullptr, true); }

DRIVER(cuEventElapsedTime_v2, float *milliseconds, long *start, long *end) {
    *milliseconds = static_cast<float>(*end - *start);
    return record("cuEventElapsedTime_v2");
}

DRIVER(cuStreamBeginCapture_v2, void *stream, int) {
    const Lock lock(state().mutex);
    Stream *const known = stream_of(stream);
    if (known == nullptr || known->captured != nullptr) {
        return invalid_value;
    }
    known->captured = std::make_unique<Graph>();
    return record("cuStreamBeginCapture_v2", stream);
}

DRIVER(cuStreamEndCapture, void *stream, void **graph) {
    const Lock lock(state().mutex);
    Stream *const known = stream_of(stream);
    if (known == nullptr || known->captured == nullptr) {
        return invalid_value;
    }
    *graph = known->captured.release();
    return record("cuStreamEndCapture", stream);
}

DRIVER(cuGraphInstantiateWithFlags, void **executable, void *graph, unsigned long long) {
    *executable = new Graph(*static_cast<Graph *>(graph));
    return record("cuGraphInstantiateWithFlags");
}

DRIVER(cuGraphLaunch, void *executable, void *stream) {
    const Lock lock(state().mutex);
    if (!is_known(stream)) {
        return invalid_handle;
    }
    const Result result = record("cuGraphLaunch", stream);
    if (result == success) {
        state().n_launches++;
        for (const Work &work : *static_cast<Graph *>(executable)) {
            enqueue(stream, work);
        }
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

DRIVER(cuPointerGetAttribute, void *data, int attribute, Address address) {
    const Lock lock(state().mutex);
    if (memory_at(address, 0) == nullptr) {
        return invalid_value;
    }
    *static_cast<int *>(data) = attribute == 2 ? 2 : 0;  // CU_POINTER_ATTRIBUTE_MEMORY_TYPE: of the device
    return record("cuPointerGetAttribute");
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
    finish(nullptr, true);
    return state().memory.release(address) ? record("cuMemFree_v2") : invalid_value;
}

DRIVER(cuMemcpyHtoD_v2, Address to, const void *from, std::size_t n_bytes) {
    const Lock lock(state().mutex);
    if (is_capturing()) {
        return capture_unsupported;
    }
    finish(nullptr);
    const Result result = memory_at(to, n_bytes) == nullptr ? invalid_value : record("cuMemcpyHtoD_v2");
    if (result == success) {
        const auto *const bytes = static_cast<const std::uint8_t *>(from);
        enqueue(nullptr, [to, staged = std::vector<std::uint8_t>(bytes, bytes + n_bytes)] {
            if (Region *const region = memory_at(to, staged.size())) {
                region->write(to, staged.data(), staged.size());
            }
        });
    }
    return result;
}

DRIVER(cuMemcpyDtoH_v2, void *to, Address from, std::size_t n_bytes) {
    return copy_out("cuMemcpyDtoH_v2", to, from, n_bytes, nullptr);
}

DRIVER(cuMemcpyDtoHAsync_v2, void *to, Address from, std::size_t n_bytes, void *stream) {
    return copy_out("cuMemcpyDtoHAsync_v2", to, from, n_bytes, stream);
}

DRIVER(cuMemcpyDtoDAsync_v2, Address to, Address from, std::size_t n_bytes, void *stream) {
    const Lock lock(state().mutex);
    if (memory_at(to, n_bytes) == nullptr || memory_at(from, n_bytes) == nullptr) {
        return invalid_value;
    }
    const Result result = record("cuMemcpyDtoDAsync_v2", stream);
    if (result == success) {
        state().n_launches++;
        enqueue(stream, [=] {
            if (!state().driver.executes) {
                return;  // what is timed copies much
            }
            std::vector<std::uint8_t> bytes(n_bytes);
            memory_at(from, n_bytes)->read(bytes.data(), from, n_bytes);
            memory_at(to, n_bytes)->write(to, bytes.data(), n_bytes);
        });
    }
    return result;
}

DRIVER(cuMemsetD8Async, Address to, unsigned char value, std::size_t n_bytes, void *stream) {
    const Lock lock(state().mutex);
    if (memory_at(to, n_bytes) == nullptr) {
        return invalid_value;
    }
    const Result result = record("cuMemsetD8Async", stream);
    if (result == success && state().driver.executes) {  // the bench writes much before each cold call
        enqueue(stream, [=] { memory_at(to, n_bytes)->fill(to, value, n_bytes); });
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
    if (module == nullptr) {
        return invalid_handle;
    }
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
    state().n_launches++;
    if (!is_possible || !is_known(stream)) {
        return is_possible ? invalid_handle : invalid_value;
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

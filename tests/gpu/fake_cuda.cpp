// libcuda.so.1 for tests: see fake_cuda.h. Signatures and error codes are those of the CUDA driver API's reference
// manual.
#include "fake_cuda.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>

namespace {

using fake_cuda::Call;
using fake_cuda::Driver;
using Result = int;
using Address = unsigned long long;

constexpr Result invalid_value = 1, out_of_memory = 2, invalid_context = 201, invalid_handle = 400;

struct State {
    std::mutex mutex;
    Driver driver;
};

State &state() {
    static State &only = *new State;  // Halide calls from its destructors
    return only;
}

thread_local std::vector<void *> contexts;  // the current one last

void *current() { return contexts.empty() ? nullptr : contexts.back(); }

int bits_of_stores(const char *module) {
    const auto stores = [&](const char *what) { return std::strstr(module, what) != nullptr; };
    return stores("st.global.v4.b32") || stores("st.global.v2.b64") ? 128
           : stores("st.global.b64")                                ? 64
           : stores("st.global.b32")                                ? 32
                                                                    : 16;
}

/// Records a call. Returns the failure that the test asks for, or success.
Result record(const char *name, void *stream = nullptr, const char *module = nullptr, const unsigned *grid = nullptr,
              const unsigned *block = nullptr) {
    const std::lock_guard lock(state().mutex);
    Driver &driver = state().driver;
    Call call = {name, 0, current(), stream, module != nullptr ? bits_of_stores(module) : 0, {}, {}};
    if (grid != nullptr) {
        std::copy_n(grid, 3, call.grid);
        std::copy_n(block, 3, call.block);
    }
    if (driver.failing == name && driver.calls_until-- == 0) {
        call.result = driver.failure;
    }
    driver.calls.push_back(call);
    return call.result;
}

std::atomic<long> n_launches;

/// Whether an address lies in allocated memory.
bool is_known(Address address) {
    const std::lock_guard lock(state().mutex);
    const auto &memory = state().driver.memory;
    return std::any_of(memory.begin(), memory.end(), [&](const auto &block) {
        const auto begin = reinterpret_cast<std::uintptr_t>(block.first);
        return address >= begin && address < begin + block.second;
    });
}

}  // namespace

#define FAKE(name, ...) extern "C" __attribute__((visibility("default"))) Result name(__VA_ARGS__)

extern "C" __attribute__((visibility("default"))) void fake_cuda_access(void (*use)(Driver &, void *), void *argument) {
    const std::lock_guard lock(state().mutex);
    use(state().driver, argument);
}

FAKE(cuInit, unsigned) { return record("cuInit"); }

FAKE(cuDeviceGetCount, int *count) {
    *count = 2;
    return record("cuDeviceGetCount");
}

FAKE(cuDeviceGet, int *device, int ordinal) {
    *device = ordinal;
    return record("cuDeviceGet");
}

FAKE(cuDeviceGetAttribute, int *value, int attribute, int) {
    *value = attribute == 75 ? 8 : 0;  // compute capability 8.0
    return record("cuDeviceGetAttribute");
}

FAKE(cuDeviceGetName, char *name, int length, int) {
    std::strncpy(name, "fake", static_cast<std::size_t>(length));
    return record("cuDeviceGetName");
}

FAKE(cuDeviceTotalMem_v2, std::size_t *n_bytes, int) {
    *n_bytes = std::size_t{1} << 30;
    return record("cuDeviceTotalMem_v2");
}

FAKE(cuDevicePrimaryCtxRetain, void **context, int) {
    static char primary;
    *context = &primary;
    return record("cuDevicePrimaryCtxRetain");
}

FAKE(cuDevicePrimaryCtxRelease_v2, int) { return record("cuDevicePrimaryCtxRelease_v2"); }

FAKE(cuCtxCreate_v2, void **context, unsigned, int) {
    *context = nullptr;
    return record("cuCtxCreate_v2");
}

FAKE(cuCtxDestroy_v2, void *) { return record("cuCtxDestroy_v2"); }
FAKE(cuProfilerStop, void) { return record("cuProfilerStop"); }

FAKE(cuCtxGetApiVersion, void *, unsigned *version) {
    *version = 12000;
    return record("cuCtxGetApiVersion");
}

FAKE(cuCtxGetCurrent, void **context) {
    *context = current();
    return record("cuCtxGetCurrent");
}

FAKE(cuCtxPushCurrent_v2, void *context) {
    const Result result = context == nullptr ? invalid_value : record("cuCtxPushCurrent_v2");
    if (result == 0) {
        contexts.push_back(context);
    }
    return result;
}

FAKE(cuCtxPopCurrent_v2, void **context) {
    if (contexts.empty()) {
        return invalid_context;
    }
    *context = contexts.back();
    contexts.pop_back();
    return record("cuCtxPopCurrent_v2");
}

FAKE(cuCtxGetDevice, int *device) {
    {
        const std::lock_guard lock(state().mutex);
        const auto &others = state().driver.device_of_contexts;
        *device = std::find(std::begin(others), std::end(others), current()) != std::end(others) ? 1 : 0;
    }
    return current() == nullptr ? invalid_context : record("cuCtxGetDevice");
}

FAKE(cuCtxSynchronize, void) { return record("cuCtxSynchronize"); }
FAKE(cuStreamSynchronize, void *stream) { return record("cuStreamSynchronize", stream); }

FAKE(cuStreamCreate, void **stream, unsigned) {
    *stream = std::malloc(1);
    return record("cuStreamCreate");
}

FAKE(cuStreamDestroy_v2, void *stream) {
    std::free(stream);
    return record("cuStreamDestroy_v2");
}

FAKE(cuPointerGetAttribute, void *data, int attribute, Address address) {
    if (!is_known(address)) {
        return invalid_value;
    }
    if (attribute == 2) {  // CU_POINTER_ATTRIBUTE_MEMORY_TYPE: of the device
        *static_cast<unsigned *>(data) = 2;
    } else {
        *static_cast<int *>(data) = 0;
    }
    return record("cuPointerGetAttribute");
}

FAKE(cuMemAlloc_v2, Address *address, std::size_t n_bytes) {
    const Result result = current() == nullptr ? invalid_context : record("cuMemAlloc_v2");
    if (result != 0) {
        return result;
    }
    void *const memory = std::aligned_alloc(256, (n_bytes + 255) / 256 * 256);
    if (memory == nullptr) {
        return out_of_memory;
    }
    const std::lock_guard lock(state().mutex);
    state().driver.memory.emplace_back(memory, n_bytes);
    *address = reinterpret_cast<std::uintptr_t>(memory);
    return 0;
}

FAKE(cuMemFree_v2, Address address) {
    {
        const std::lock_guard lock(state().mutex);
        auto &memory = state().driver.memory;
        const auto found = std::find_if(memory.begin(), memory.end(), [&](const auto &block) {
            return reinterpret_cast<std::uintptr_t>(block.first) == address;
        });
        if (found == memory.end()) {
            return invalid_value;
        }
        std::free(found->first);
        memory.erase(found);
    }
    return record("cuMemFree_v2");
}

FAKE(cuMemcpyHtoD_v2, Address address, const void *data, std::size_t n_bytes) {
    const Result result = record("cuMemcpyHtoD_v2");
    if (result == 0) {
        std::memcpy(reinterpret_cast<void *>(address), data, n_bytes);
    }
    return result;
}

FAKE(cuMemcpyDtoH_v2, void *data, Address address, std::size_t n_bytes) {
    const Result result = record("cuMemcpyDtoH_v2");
    if (result == 0) {
        std::memcpy(data, reinterpret_cast<const void *>(address), n_bytes);
    }
    return result;
}

// Halide looks these up, but Halyard never calls them.
FAKE(cuMemcpyDtoD_v2, Address, Address, std::size_t) { return record("cuMemcpyDtoD_v2"); }
FAKE(cuMemcpy3D_v2, const void *) { return record("cuMemcpy3D_v2"); }
FAKE(cuMemcpyHtoDAsync_v2, Address, const void *, std::size_t, void *) { return record("cuMemcpyHtoDAsync_v2"); }
FAKE(cuMemcpyDtoHAsync_v2, void *, Address, std::size_t, void *) { return record("cuMemcpyDtoHAsync_v2"); }
FAKE(cuMemcpyDtoDAsync_v2, Address, Address, std::size_t, void *stream) {
    n_launches++;
    return record("cuMemcpyDtoDAsync_v2", stream);
}

// The bench needs these. A graph holds nothing; its launch takes a millisecond, as those of kernels and copies do.
FAKE(cuMemsetD8Async, Address, unsigned char, std::size_t, void *stream) { return record("cuMemsetD8Async", stream); }
FAKE(cuDriverGetVersion, int *version) {
    *version = 12000;
    return record("cuDriverGetVersion");
}

FAKE(cuEventCreate, long **event, unsigned) {
    *event = new long(0);
    return record("cuEventCreate");
}
FAKE(cuEventDestroy_v2, long *event) {
    delete event;
    return record("cuEventDestroy_v2");
}
FAKE(cuEventRecord, long *event, void *stream) {
    *event = n_launches;
    return record("cuEventRecord", stream);
}
FAKE(cuEventSynchronize, long *) { return record("cuEventSynchronize"); }
FAKE(cuEventElapsedTime_v2, float *milliseconds, long *start, long *end) {
    *milliseconds = static_cast<float>(*end - *start);
    return record("cuEventElapsedTime_v2");
}
FAKE(cuStreamBeginCapture_v2, void *stream, int) { return record("cuStreamBeginCapture_v2", stream); }
FAKE(cuStreamEndCapture, void *stream, void **graph) {
    *graph = nullptr;
    return record("cuStreamEndCapture", stream);
}
FAKE(cuGraphInstantiateWithFlags, void **executable, void *, unsigned long long) {
    *executable = nullptr;
    return record("cuGraphInstantiateWithFlags");
}
FAKE(cuGraphLaunch, void *, void *stream) {
    n_launches++;
    return record("cuGraphLaunch", stream);
}
FAKE(cuGraphExecDestroy, void *) { return record("cuGraphExecDestroy"); }
FAKE(cuGraphDestroy, void *) { return record("cuGraphDestroy"); }

namespace {

/// A module is a copy of its PTX; so are its functions.
Result load(const char *name, void **module, const void *image) {
    const Result result = record(name);
    if (result == 0) {
        *module = strdup(static_cast<const char *>(image));
        const std::lock_guard lock(state().mutex);
        state().driver.n_modules++;
    }
    return result;
}

}  // namespace

FAKE(cuModuleLoadData, void **module, const void *image) { return load("cuModuleLoadData", module, image); }
FAKE(cuModuleLoadDataEx, void **module, const void *image, unsigned, int *, void **) {
    return load("cuModuleLoadDataEx", module, image);
}

FAKE(cuModuleUnload, void *module) {
    if (module == nullptr) {
        return invalid_handle;
    }
    std::free(module);
    {
        const std::lock_guard lock(state().mutex);
        state().driver.n_modules--;
    }
    return record("cuModuleUnload");
}

FAKE(cuModuleGetFunction, void **function, void *module, const char *name) {
    if (std::strstr(static_cast<const char *>(module), name) == nullptr) {
        return 500;  // CUDA_ERROR_NOT_FOUND
    }
    *function = module;
    return record("cuModuleGetFunction");
}

FAKE(cuLaunchKernel, void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
     unsigned block_y, unsigned block_z, unsigned shared_bytes, void *stream, void **, void **) {
    const unsigned grid[] = {grid_x, grid_y, grid_z}, block[] = {block_x, block_y, block_z};
    const bool is_possible = grid_y <= 65535 && grid_z <= 65535 && grid_x > 0 && grid_y > 0 && grid_z > 0 &&
                             block_x * block_y * block_z <= 1024 && shared_bytes <= 48 * 1024;
    n_launches++;
    return is_possible ? record("cuLaunchKernel", stream, static_cast<const char *>(function), grid, block)
                       : invalid_value;
}

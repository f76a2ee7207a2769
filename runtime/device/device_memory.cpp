// Names, signatures and numbers: CUDA driver API reference manual.
#include "device/device_memory.h"

#include <dlfcn.h>

namespace halyard::device {

namespace {

using CudaAddress = unsigned long long;

CudaAddress address_of(void *memory) { return reinterpret_cast<std::uintptr_t>(memory); }

/// Makes a context current for as long as it lives.
class CurrentContext {
public:
    explicit CurrentContext(void *context) : is_pushed_(call_driver("cuCtxPushCurrent_v2", context) == 0) {}
    CurrentContext(const CurrentContext &) = delete;
    CurrentContext &operator=(const CurrentContext &) = delete;
    ~CurrentContext() {
        void *popped = nullptr;
        if (is_pushed_) {
            call_driver("cuCtxPopCurrent_v2", &popped);
        }
    }

private:
    bool is_pushed_;
};

}  // namespace

void *find_driver_function(const char *name) {
    static void *const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        throw error(HALYARD_ERROR_NO_DEVICE, "no driver: libcuda.so.1 not found");
    }
    void *const function = dlsym(library, name);
    if (function == nullptr) {
        throw error(HALYARD_ERROR_NO_DEVICE, std::string("libcuda.so.1 has no ") + name + ": its driver is too old");
    }
    return function;
}

DeviceQueue::DeviceQueue()
    : DeviceQueue(describe_queue(HALYARD_CUDA, nullptr, nullptr)) {  // so that what is open is closed where this throws
    constexpr unsigned non_blocking = 1;                             // CU_STREAM_NON_BLOCKING
    int first = 0;
    int status = call_driver("cuInit", 0u);
    if (status == 0) {
        status = call_driver("cuDeviceGet", &first, 0);
    }
    if (status == 0) {
        status = call_driver("cuDevicePrimaryCtxRetain", &queue_.context, first);
    }
    if (status == 0) {
        const CurrentContext current(queue_.context);
        status = call_driver("cuStreamCreate", &queue_.stream, non_blocking);
    }
    if (status != 0) {
        throw error(HALYARD_ERROR_DEVICE, "no CUDA context or stream could be made: error " + std::to_string(status));
    }
}

DeviceQueue::~DeviceQueue() {
    if (queue_.context == nullptr) {
        return;
    }
    int first = 0;
    if (queue_.stream != nullptr) {
        const CurrentContext current(queue_.context);
        call_driver("cuStreamDestroy_v2", queue_.stream);
    }
    if (call_driver("cuDeviceGet", &first, 0) == 0) {
        call_driver("cuDevicePrimaryCtxRelease_v2", first);
    }
}

DeviceMemory::DeviceMemory(const halyard_gpu_queue &queue, const void *data, std::size_t n_bytes)
    : DeviceMemory(queue) {
    const std::size_t n_allocated = n_bytes + 1;  // the driver has no memory of no bytes
    CudaAddress address = 0;
    int status = 0;
    {
        const CurrentContext current(queue.context);
        status = call_driver("cuMemAlloc_v2", &address, n_allocated);
    }
    if (status != 0) {
        throw error(HALYARD_ERROR_OUT_OF_MEMORY, "the device has no memory for " + std::to_string(n_bytes) + " bytes");
    }
    memory_ = reinterpret_cast<void *>(address);
    if (data != nullptr) {
        write(data, n_bytes);
    }
}

DeviceMemory::~DeviceMemory() {
    if (memory_ != nullptr) {
        const CurrentContext current(queue_.context);
        call_driver("cuMemFree_v2", address_of(memory_));
    }
}

void DeviceMemory::copy(void *data, std::size_t n_bytes, bool is_write) const {
    if (n_bytes == 0) {
        return;
    }
    const CurrentContext current(queue_.context);
    int status = call_driver("cuStreamSynchronize", queue_.stream);
    if (status == 0) {
        status = is_write ? call_driver("cuMemcpyHtoD_v2", address_of(memory_), data, n_bytes)
                          : call_driver("cuMemcpyDtoH_v2", data, address_of(memory_), n_bytes);
    }
    if (status == 0 && is_write) {
        // A copy of pageable memory may still be on its way, on the default stream, when that call returns.
        void *const default_stream = nullptr;
        status = call_driver("cuStreamSynchronize", default_stream);
    }
    if (status != 0) {
        throw error(HALYARD_ERROR_DEVICE, std::to_string(n_bytes) + " bytes could not be copied " +
                                              (is_write ? "to" : "from") + " the device");
    }
}

}  // namespace halyard::device

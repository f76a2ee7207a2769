// Names, signatures and numbers: CUDA driver API reference manual, and OpenCL 1.2 specification.
#include "device/device_memory.h"

#include <dlfcn.h>

namespace halyard::device {

namespace {

using CudaAddress = unsigned long long;

CudaAddress address_of(void *memory) { return reinterpret_cast<std::uintptr_t>(memory); }

template <typename... Arguments>
int cuda(const char *name, Arguments... arguments) {
    return call_driver(HALYARD_CUDA, name, arguments...);
}

template <typename Result = int, typename... Arguments>
Result opencl(const char *name, Arguments... arguments) {
    return call_driver<Result>(HALYARD_OPENCL, name, arguments...);
}

/// Makes a context current for as long as it lives. CUDA.
class CurrentContext {
public:
    explicit CurrentContext(void *context) : is_pushed_(cuda("cuCtxPushCurrent_v2", context) == 0) {}
    CurrentContext(const CurrentContext &) = delete;
    CurrentContext &operator=(const CurrentContext &) = delete;
    ~CurrentContext() {
        void *popped = nullptr;
        if (is_pushed_) {
            cuda("cuCtxPopCurrent_v2", &popped);
        }
    }

private:
    bool is_pushed_;
};

void *find_opencl_device() {
    constexpr unsigned most_platforms = 16;
    constexpr std::uint64_t any_type = 0xffffffff;  // CL_DEVICE_TYPE_ALL
    void *platforms[most_platforms];
    unsigned n_platforms = 0;
    if (opencl("clGetPlatformIDs", most_platforms, &platforms[0], &n_platforms) != 0) {
        n_platforms = 0;
    }
    for (unsigned i = 0; i < n_platforms && i < most_platforms; i++) {
        void *device = nullptr;
        unsigned n_devices = 0;
        if (opencl("clGetDeviceIDs", platforms[i], any_type, 1u, &device, &n_devices) == 0 && n_devices != 0) {
            return device;
        }
    }
    throw error(HALYARD_ERROR_NO_DEVICE, "OpenCL finds no device");
}

}  // namespace

void *find_driver_function(std::int32_t device, const char *name) {
    static constexpr const char *names[] = {"libcuda.so.1", "libOpenCL.so.1"};
    static void *const libraries[] = {dlopen(names[0], RTLD_NOW | RTLD_LOCAL), dlopen(names[1], RTLD_NOW | RTLD_LOCAL)};
    const int which = device == HALYARD_CUDA ? 0 : 1;
    if (libraries[which] == nullptr) {
        throw error(HALYARD_ERROR_NO_DEVICE, std::string("no driver: ") + names[which] + " not found");
    }
    void *const function = dlsym(libraries[which], name);
    if (function == nullptr) {
        throw error(HALYARD_ERROR_NO_DEVICE, std::string(names[which]) + " has no " + name + ": its driver is too old");
    }
    return function;
}

DeviceQueue::DeviceQueue(std::int32_t device) : DeviceQueue() {  // so that what is open is closed where this throws
    queue_ = describe_queue(device, nullptr, nullptr);
    if (device == HALYARD_CUDA) {
        open_cuda();
    } else {
        open_opencl();
    }
}

void DeviceQueue::open_cuda() {
    constexpr unsigned non_blocking = 1;  // CU_STREAM_NON_BLOCKING
    int first = 0;
    int status = cuda("cuInit", 0u);
    if (status == 0) {
        status = cuda("cuDeviceGet", &first, 0);
    }
    if (status == 0) {
        status = cuda("cuDevicePrimaryCtxRetain", &queue_.context, first);
    }
    if (status == 0) {
        const CurrentContext current(queue_.context);
        status = cuda("cuStreamCreate", &queue_.stream, non_blocking);
    }
    if (status != 0) {
        throw error(HALYARD_ERROR_DEVICE, "no CUDA context or stream could be made: error " + std::to_string(status));
    }
}

void DeviceQueue::open_opencl() {
    const std::intptr_t *const no_properties = nullptr;
    void *const nothing = nullptr;
    void *const first = find_opencl_device();
    int status = 0;
    queue_.context = opencl<void *>("clCreateContext", no_properties, 1u, &first, nothing, nothing, &status);
    if (status == 0) {
        queue_.stream = opencl<void *>("clCreateCommandQueue", queue_.context, first, std::uint64_t{0}, &status);
    }
    if (status != 0) {
        throw error(HALYARD_ERROR_DEVICE, "no OpenCL context or queue could be made: error " + std::to_string(status));
    }
}

DeviceQueue::~DeviceQueue() {
    if (queue_.context == nullptr) {
        return;
    }
    if (queue_.device == HALYARD_OPENCL) {
        if (queue_.stream != nullptr) {
            opencl("clReleaseCommandQueue", queue_.stream);
        }
        opencl("clReleaseContext", queue_.context);
        return;
    }
    int first = 0;
    if (queue_.stream != nullptr) {
        const CurrentContext current(queue_.context);
        cuda("cuStreamDestroy_v2", queue_.stream);
    }
    if (cuda("cuDeviceGet", &first, 0) == 0) {
        cuda("cuDevicePrimaryCtxRelease_v2", first);
    }
}

DeviceMemory::DeviceMemory(const halyard_gpu_queue &queue, const void *data, std::size_t n_bytes)
    : DeviceMemory(queue) {
    const std::size_t n_allocated = n_bytes + 1;  // neither driver has memory of no bytes
    int status = 0;
    if (is_opencl()) {
        constexpr std::uint64_t read_write = 1;  // CL_MEM_READ_WRITE
        void *const nothing = nullptr;
        memory_ = opencl<void *>("clCreateBuffer", queue.context, read_write, n_allocated, nothing, &status);
    } else {
        const CurrentContext current(queue.context);
        CudaAddress address = 0;
        status = cuda("cuMemAlloc_v2", &address, n_allocated);
        memory_ = reinterpret_cast<void *>(address);
    }
    if (status != 0) {
        memory_ = nullptr;
        throw error(HALYARD_ERROR_OUT_OF_MEMORY, "the device has no memory for " + std::to_string(n_bytes) + " bytes");
    }
    if (data != nullptr) {
        write(data, n_bytes);
    }
}

DeviceMemory::~DeviceMemory() {
    if (memory_ == nullptr) {
        return;
    }
    if (is_opencl()) {
        opencl("clReleaseMemObject", memory_);
        return;
    }
    const CurrentContext current(queue_.context);
    cuda("cuMemFree_v2", address_of(memory_));
}

void DeviceMemory::copy(void *data, std::size_t n_bytes, bool is_write) const {
    if (n_bytes == 0) {
        return;
    }
    int status = 0;
    if (is_opencl()) {
        void *const nothing = nullptr;
        status = opencl(is_write ? "clEnqueueWriteBuffer" : "clEnqueueReadBuffer", queue_.stream, memory_, 1u,
                        std::size_t{0}, n_bytes, data, 0u, nothing, nothing);
    } else {
        const CurrentContext current(queue_.context);
        status = cuda("cuStreamSynchronize", queue_.stream);
        if (status == 0) {
            status = is_write ? cuda("cuMemcpyHtoD_v2", address_of(memory_), data, n_bytes)
                              : cuda("cuMemcpyDtoH_v2", data, address_of(memory_), n_bytes);
        }
        if (status == 0 && is_write) {
            // A copy of pageable memory may still be on its way, on the default stream, when that call returns.
            void *const default_stream = nullptr;
            status = cuda("cuStreamSynchronize", default_stream);
        }
    }
    if (status != 0) {
        throw error(HALYARD_ERROR_DEVICE, std::to_string(n_bytes) + " bytes could not be copied " +
                                              (is_write ? "to" : "from") + " the device");
    }
}

}  // namespace halyard::device

#include "gpu/driver.h"

#include "base/error.h"
#include "base/versioned.h"
#include "gpu/halide_runtime.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <dlfcn.h>
#include <iterator>

namespace halyard {

template <>
inline constexpr std::array released_sizes<halyard_gpu_queue> = {24u};

}  // namespace halyard

namespace halyard::gpu {

namespace {

/// Looks up functions, and remembers the first that is missing.
class Library {
public:
    explicit Library(bool is_cuda) : handle_(find_driver_library(is_cuda)) {}

    bool is_open() const { return handle_ != nullptr; }
    const char *missing() const { return missing_; }

    void *find(const char *name) {
        void *const symbol = handle_ == nullptr ? nullptr : dlsym(handle_, name);
        if (symbol == nullptr && missing_ == nullptr) {
            missing_ = name;
        }
        return symbol;
    }

private:
    void *handle_;
    const char *missing_ = nullptr;
};

/// A function of a library, which is called as itself.
template <typename Type>
class Function {
public:
    Function(Library &library, const char *name) : function_(reinterpret_cast<Type *>(library.find(name))) {}
    operator Type *() const { return function_; }

private:
    Type *function_;
};

// ---- CUDA: what its driver API calls and numbers them ---------------------------------------------------------------

using CudaResult = int;  // 0 is success
using CudaAddress = unsigned long long;

struct Cuda {
    Library library{true};
    Function<CudaResult(unsigned)> init{library, "cuInit"};
    Function<CudaResult(int *)> get_count{library, "cuDeviceGetCount"};
    Function<CudaResult(int *, int)> get_device{library, "cuDeviceGet"};
    Function<CudaResult(int *, int, int)> get_attribute{library, "cuDeviceGetAttribute"};
    Function<CudaResult(void **)> get_current{library, "cuCtxGetCurrent"};
    Function<CudaResult(void *)> push{library, "cuCtxPushCurrent_v2"};
    Function<CudaResult(void **)> pop{library, "cuCtxPopCurrent_v2"};
    Function<CudaResult(int *)> get_context_device{library, "cuCtxGetDevice"};
    Function<CudaResult(void *, int, CudaAddress)> get_pointer_attribute{library, "cuPointerGetAttribute"};
    Function<CudaResult(CudaAddress *, std::size_t)> allocate{library, "cuMemAlloc_v2"};
    Function<CudaResult(CudaAddress)> release{library, "cuMemFree_v2"};
    Function<CudaResult(CudaAddress, const void *, std::size_t)> copy_in{library, "cuMemcpyHtoD_v2"};
    Function<CudaResult(void *, CudaAddress, std::size_t)> copy_out{library, "cuMemcpyDtoH_v2"};
    Function<CudaResult(void *)> synchronize{library, "cuStreamSynchronize"};
    char why_not[96] = {};
};

constexpr int compute_capability_major = 75;  // CU_DEVICE_ATTRIBUTE_…
constexpr int pointer_device = 9;             // CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL

// ---- OpenCL: the same of version 1.2 --------------------------------------------------------------------------------

struct OpenCl {
    using GetInfo = int(void *, unsigned, std::size_t, void *, std::size_t *);
    template <typename Data>
    using Copy = int(void *, void *, unsigned, std::size_t, std::size_t, Data, unsigned, const void *, void *);

    Library library{false};
    Function<int(unsigned, void **, unsigned *)> get_platforms{library, "clGetPlatformIDs"};
    Function<int(void *, std::uint64_t, unsigned, void **, unsigned *)> get_devices{library, "clGetDeviceIDs"};
    Function<GetInfo> get_device_info{library, "clGetDeviceInfo"};
    Function<GetInfo> get_queue_info{library, "clGetCommandQueueInfo"};
    Function<void *(void *, std::uint64_t, std::size_t, void *, int *)> create_buffer{library, "clCreateBuffer"};
    Function<int(void *)> release_buffer{library, "clReleaseMemObject"};
    Function<GetInfo> get_memory_info{library, "clGetMemObjectInfo"};
    Function<Copy<const void *>> write{library, "clEnqueueWriteBuffer"};
    Function<Copy<void *>> read{library, "clEnqueueReadBuffer"};
    char why_not[96] = {};
};

constexpr std::uint64_t any_device_type = 0xffffffff;  // CL_DEVICE_TYPE_ALL
constexpr std::uint64_t read_write = 1;                // CL_MEM_READ_WRITE
constexpr unsigned queue_device = 0x1091;              // CL_QUEUE_DEVICE
constexpr unsigned memory_size = 0x1102;               // CL_MEM_SIZE
constexpr unsigned memory_context = 0x1106;            // CL_MEM_CONTEXT
constexpr unsigned base_address_align = 0x1019;        // CL_DEVICE_MEM_BASE_ADDR_ALIGN, in bits

// ---- Finding them --------------------------------------------------------------------------------------------------

template <typename Driver>
bool is_complete(Driver &driver, const char *name) {
    if (!driver.library.is_open()) {
        std::snprintf(driver.why_not, sizeof(driver.why_not), "no driver: %s not found", name);
    } else if (driver.library.missing() != nullptr) {
        std::snprintf(driver.why_not, sizeof(driver.why_not), "%s has no %s: its driver is too old", name,
                      driver.library.missing());
    }
    return driver.why_not[0] == '\0';
}

Cuda load_cuda() {
    Cuda cuda;
    if (!is_complete(cuda, "libcuda.so.1")) {
        return cuda;
    }
    int count = 0, device = 0, major = 0;
    const CudaResult started = cuda.init(0);
    if (started != 0) {
        std::snprintf(cuda.why_not, sizeof(cuda.why_not), "the driver does not start: cuInit returns %d", started);
    } else if (cuda.get_count(&count) != 0 || count == 0) {
        std::snprintf(cuda.why_not, sizeof(cuda.why_not), "no device: the CUDA driver finds none");
    } else if (cuda.get_device(&device, 0) != 0 || cuda.get_attribute(&major, compute_capability_major, device) != 0 ||
               major < 8) {
        std::snprintf(cuda.why_not, sizeof(cuda.why_not), "the first device has compute capability %d.x, below 8.0",
                      major);
    }
    return cuda;
}

OpenCl load_opencl() {
    OpenCl cl;
    if (!is_complete(cl, "libOpenCL.so.1")) {
        return cl;
    }
    void *platforms[16];
    unsigned n_platforms = 0;
    if (cl.get_platforms(std::size(platforms), platforms, &n_platforms) != 0) {
        n_platforms = 0;
    }
    bool is_found = false;
    for (unsigned i = 0; i < std::min<unsigned>(n_platforms, std::size(platforms)) && !is_found; i++) {
        void *device = nullptr;
        unsigned n_devices = 0;
        is_found = cl.get_devices(platforms[i], any_device_type, 1, &device, &n_devices) == 0 && n_devices != 0;
    }
    if (!is_found) {
        std::snprintf(cl.why_not, sizeof(cl.why_not), "no device: OpenCL finds %s",
                      n_platforms == 0 ? "no platform" : "none on its platforms");
    }
    return cl;
}

const Cuda &cuda() noexcept {
    static const Cuda loaded = load_cuda();
    return loaded;
}

const OpenCl &opencl() noexcept {
    static const OpenCl loaded = load_opencl();
    return loaded;
}

CudaAddress address_of(void *memory) noexcept { return reinterpret_cast<std::uintptr_t>(memory); }

halyard_status require_device(std::int32_t device, halyard_error *error) noexcept {
    const char *const reason = why_not(device);
    return reason[0] == '\0' ? HALYARD_OK
                             : fail(error, HALYARD_ERROR_NO_DEVICE, device == HALYARD_CUDA ? "CUDA" : "OpenCL",
                                    " can't be used: ", reason);
}

}  // namespace

const char *why_not(std::int32_t device) noexcept { return device == HALYARD_CUDA ? cuda().why_not : opencl().why_not; }

halyard_status check_device(const char *name, std::int32_t device, halyard_error *error) noexcept {
    return device == HALYARD_CUDA || device == HALYARD_OPENCL
               ? HALYARD_OK
               : fail(error, HALYARD_ERROR_UNKNOWN_VALUE, name, " is ", device,
                      ", but must be HALYARD_CUDA (1) or HALYARD_OPENCL (2)");
}

halyard_status read_queue(const halyard_gpu_queue *queue, halyard_gpu_queue *out, halyard_error *error) noexcept {
    *out = {};
    HALYARD_TRY(read_struct(queue, "queue", out, error));
    HALYARD_TRY(check_device("queue.device", out->device, error));
    HALYARD_TRY(require_device(out->device, error));
    if (out->device == HALYARD_CUDA && out->context == nullptr) {
        void *current = nullptr;
        out->context = cuda().get_current(&current) == 0 ? current : nullptr;
    }
    if (out->context == nullptr) {
        return fail_null(error, out->device == HALYARD_CUDA
                                    ? "queue.context, and no context is current in this thread: it"
                                    : "queue.context");
    }
    if (out->device == HALYARD_OPENCL && out->stream == nullptr) {
        return fail_null(error, "queue.stream");
    }
    install_handlers();
    return HALYARD_OK;
}

CurrentContext::CurrentContext(void *context) noexcept : is_pushed_(context != nullptr && cuda().push(context) == 0) {}

CurrentContext::~CurrentContext() {
    if (is_pushed_) {
        void *popped = nullptr;
        cuda().pop(&popped);
    }
}

void *allocate(const halyard_gpu_queue &queue, std::size_t n_bytes) noexcept {
    if (queue.device == HALYARD_OPENCL) {
        int status = 0;
        void *const memory = opencl().create_buffer(queue.context, read_write, n_bytes, nullptr, &status);
        return status == 0 ? memory : nullptr;
    }
    const CurrentContext current(queue.context);
    CudaAddress address = 0;
    return cuda().allocate(&address, n_bytes) == 0 ? reinterpret_cast<void *>(address) : nullptr;
}

void release(const halyard_gpu_queue &queue, void *memory) noexcept {
    if (memory == nullptr) {
        return;
    }
    if (queue.device == HALYARD_OPENCL) {
        opencl().release_buffer(memory);
        return;
    }
    const CurrentContext current(queue.context);
    cuda().release(address_of(memory));
}

int copy_in(const halyard_gpu_queue &queue, void *memory, const void *data, std::size_t n_bytes) noexcept {
    if (queue.device == HALYARD_OPENCL) {
        return opencl().write(queue.stream, memory, 1, 0, n_bytes, data, 0, nullptr, nullptr);
    }
    const CurrentContext current(queue.context);
    // A copy of pageable memory may still be on its way, on the default stream, when the first call returns.
    const CudaResult status = cuda().copy_in(address_of(memory), data, n_bytes);
    return status != 0 ? status : cuda().synchronize(nullptr);
}

int copy_out(const halyard_gpu_queue &queue, void *data, void *memory, std::size_t n_bytes) noexcept {
    if (queue.device == HALYARD_OPENCL) {
        return opencl().read(queue.stream, memory, 1, 0, n_bytes, data, 0, nullptr, nullptr);
    }
    const CurrentContext current(queue.context);
    const CudaResult status = cuda().synchronize(queue.stream);
    return status != 0 ? status : cuda().copy_out(data, address_of(memory), n_bytes);
}

MemoryInfo MemoryQueries::describe(void *memory) noexcept {
    if (queue_.device == HALYARD_OPENCL) {
        std::size_t size = 0;
        void *context = nullptr;
        const bool is_known = opencl().get_memory_info(memory, memory_size, sizeof(size), &size, nullptr) == 0 &&
                              opencl().get_memory_info(memory, memory_context, sizeof(context), &context, nullptr) == 0;
        return {is_known, context == queue_.context, size};
    }
    if (!current_) {
        current_.emplace(queue_.context);
        if (cuda().get_context_device(&device_) != 0) {
            device_ = -1;
        }
    }
    int device = -1;
    const bool is_known = cuda().get_pointer_attribute(&device, pointer_device, address_of(memory)) == 0;
    return {is_known, device_ >= 0 && device_ == device, UINT64_MAX};
}

std::uint64_t part_alignment(const halyard_gpu_queue &queue) noexcept {
    void *device = nullptr;
    unsigned bits = 0;
    if (opencl().get_queue_info(queue.stream, queue_device, sizeof(device), &device, nullptr) != 0 ||
        opencl().get_device_info(device, base_address_align, sizeof(bits), &bits, nullptr) != 0 || bits < 8) {
        return 4096;
    }
    return bits / 8;
}

}  // namespace halyard::gpu

#include "gpu/driver.h"

#include "base/error.h"
#include "base/versioned.h"
#include "gpu/halide_runtime.h"

#include <cstdio>
#include <dlfcn.h>

namespace halyard::gpu {

namespace {

/// Looks up the driver's functions, and remembers the first that is missing.
class Library {
public:
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
    void *handle_ = find_driver_library();
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

using CudaResult = int;  // 0 is success
using CudaAddress = unsigned long long;

/// What the driver API calls them.
struct Cuda {
    Library library;
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
    int capability = 0;
    char why_not[96] = {};
};

constexpr int compute_capability_major = 75, compute_capability_minor = 76;  // CU_DEVICE_ATTRIBUTE_…
constexpr int pointer_device = 9;             // CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL

Cuda load_cuda() {
    Cuda cuda;
    if (!cuda.library.is_open()) {
        std::snprintf(cuda.why_not, sizeof(cuda.why_not), "no driver: libcuda.so.1 not found");
        return cuda;
    }
    if (cuda.library.missing() != nullptr) {
        std::snprintf(cuda.why_not, sizeof(cuda.why_not), "libcuda.so.1 has no %s: its driver is too old",
                      cuda.library.missing());
        return cuda;
    }
    int count = 0, device = 0, major = 0, minor = 0;
    const CudaResult started = cuda.init(0);
    if (started != 0) {
        std::snprintf(cuda.why_not, sizeof(cuda.why_not), "the driver does not start: cuInit returns %d", started);
    } else if (cuda.get_count(&count) != 0 || count == 0) {
        std::snprintf(cuda.why_not, sizeof(cuda.why_not), "no device: the CUDA driver finds none");
    } else if (cuda.get_device(&device, 0) != 0 || cuda.get_attribute(&major, compute_capability_major, device) != 0 ||
               cuda.get_attribute(&minor, compute_capability_minor, device) != 0 || major < 8) {
        std::snprintf(cuda.why_not, sizeof(cuda.why_not), "the first device has compute capability %d.x, below 8.0",
                      major);
    } else {
        cuda.capability = 10 * major + minor;
    }
    return cuda;
}

const Cuda &cuda() noexcept {
    static const Cuda loaded = load_cuda();
    return loaded;
}

CudaAddress address_of(void *memory) noexcept { return reinterpret_cast<std::uintptr_t>(memory); }

halyard_status require_device(halyard_error *error) noexcept {
    const char *const reason = why_no_cuda();
    return reason[0] == '\0' ? HALYARD_OK : fail(error, HALYARD_ERROR_NO_DEVICE, "CUDA can't be used: ", reason);
}

}  // namespace

const char *why_no_cuda() noexcept { return cuda().why_not; }

int compute_capability() noexcept { return cuda().capability; }

halyard_status check_device(const char *name, std::int32_t device, halyard_error *error) noexcept {
    return device == HALYARD_CUDA
               ? HALYARD_OK
               : fail(error, HALYARD_ERROR_UNKNOWN_VALUE, name, " is ", device, ", but must be HALYARD_CUDA (1)");
}

halyard_status read_queue(const halyard_gpu_queue *queue, halyard_gpu_queue *out, halyard_error *error) noexcept {
    *out = {};
    HALYARD_TRY(read_struct(queue, "queue", out, error));
    HALYARD_TRY(check_device("queue.device", out->device, error));
    HALYARD_TRY(require_device(error));
    if (out->context == nullptr) {
        void *current = nullptr;
        out->context = cuda().get_current(&current) == 0 ? current : nullptr;
    }
    if (out->context == nullptr) {
        return fail_null(error, "queue.context, and no context is current in this thread: it");
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
    const CurrentContext current(queue.context);
    CudaAddress address = 0;
    return cuda().allocate(&address, n_bytes) == 0 ? reinterpret_cast<void *>(address) : nullptr;
}

void release(const halyard_gpu_queue &queue, void *memory) noexcept {
    if (memory == nullptr) {
        return;
    }
    const CurrentContext current(queue.context);
    cuda().release(address_of(memory));
}

int copy_in(const halyard_gpu_queue &queue, void *memory, const void *data, std::size_t n_bytes) noexcept {
    const CurrentContext current(queue.context);
    // A copy of pageable memory may still be on its way, on the default stream, when the first call returns.
    const CudaResult status = cuda().copy_in(address_of(memory), data, n_bytes);
    return status != 0 ? status : cuda().synchronize(nullptr);
}

int copy_out(const halyard_gpu_queue &queue, void *data, void *memory, std::size_t n_bytes) noexcept {
    const CurrentContext current(queue.context);
    const CudaResult status = cuda().synchronize(queue.stream);
    return status != 0 ? status : cuda().copy_out(data, address_of(memory), n_bytes);
}

MemoryInfo MemoryQueries::describe(void *memory) noexcept {
    if (!current_) {
        current_.emplace(queue_.context);
        if (cuda().get_context_device(&device_) != 0) {
            device_ = -1;
        }
    }
    int device = -1;
    const bool is_known = cuda().get_pointer_attribute(&device, pointer_device, address_of(memory)) == 0;
    return {is_known, device_ >= 0 && device_ == device};
}

}  // namespace halyard::gpu

#include "cuda/driver.h"

#include "base/error.h"
#include "base/versioned.h"
#include "cuda/halide_runtime.h"

#include <cstdio>
#include <dlfcn.h>

namespace halyard::cuda {

namespace {

/// The functions of the driver API that are called here, and the name of the first one that libcuda.so.1 lacks.
/// CUdeviceptr has 64 bits, as pointers do.
struct Cuda {
    void *library = find_driver_library();
    const char *missing = nullptr;

    template <typename... Parameters>
    class Function {
    public:
        Function(Cuda &cuda, const char *name)
            : call_(reinterpret_cast<int (*)(Parameters...)>(cuda.library == nullptr ? nullptr
                                                                                     : dlsym(cuda.library, name))) {
            cuda.missing = call_ == nullptr && cuda.missing == nullptr ? name : cuda.missing;
        }
        /// Returns 0, or the driver's error code.
        int operator()(Parameters... given) const { return call_(given...); }

    private:
        int (*call_)(Parameters...);
    };

    Function<unsigned> init{*this, "cuInit"};
    Function<int *> get_count{*this, "cuDeviceGetCount"};
    Function<int *, int> get_device{*this, "cuDeviceGet"};
    Function<int *, int, int> get_attribute{*this, "cuDeviceGetAttribute"};
    Function<void **> get_current{*this, "cuCtxGetCurrent"};
    Function<void *> push{*this, "cuCtxPushCurrent_v2"};
    Function<void **> pop{*this, "cuCtxPopCurrent_v2"};
    Function<int *> get_context_device{*this, "cuCtxGetDevice"};
    Function<void *, int, const void *> get_pointer_attribute{*this, "cuPointerGetAttribute"};
    Function<void **, std::size_t> allocate{*this, "cuMemAlloc_v2"};
    Function<void *> release{*this, "cuMemFree_v2"};
    Function<void *, const void *, std::size_t> copy_in{*this, "cuMemcpyHtoD_v2"};
    Function<void *, void *, std::size_t> copy_out{*this, "cuMemcpyDtoH_v2"};
    Function<void *> synchronize{*this, "cuStreamSynchronize"};
    int capability = 0;
    char why_not[96] = {};
};

constexpr int compute_capability_major = 75, compute_capability_minor = 76;  // CU_DEVICE_ATTRIBUTE_…
constexpr int pointer_type = 2, pointer_device = 9;  // CU_POINTER_ATTRIBUTE_MEMORY_TYPE and _DEVICE_ORDINAL
constexpr int type_device = 2;                       // CU_MEMORYTYPE_DEVICE

Cuda load_cuda() {
    Cuda cuda;
    if (cuda.library == nullptr || cuda.missing != nullptr) {
        std::snprintf(cuda.why_not, sizeof(cuda.why_not),
                      cuda.library == nullptr ? "no driver: libcuda.so.1 not found"
                                              : "libcuda.so.1 has no %s: its driver is too old",
                      cuda.missing);
        return cuda;
    }
    int count = 0, device = 0, major = 0, minor = 0;
    const int started = cuda.init(0);
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

}  // namespace

const char *why_no_cuda() noexcept { return cuda().why_not; }

int compute_capability() noexcept { return cuda().capability; }

halyard_status check_is_cuda(const char *name, std::int32_t device, halyard_error *error) noexcept {
    return device == HALYARD_CUDA
               ? HALYARD_OK
               : fail(error, HALYARD_ERROR_UNKNOWN_VALUE, name, " is ", device, ", but must be HALYARD_CUDA (1)");
}

halyard_status read_queue(const halyard_cuda_queue *queue, halyard_cuda_queue *out, halyard_error *error) noexcept {
    *out = {};
    HALYARD_TRY(read_struct(queue, "queue", out, error));
    HALYARD_TRY(check_is_cuda("queue.device", out->device, error));
    if (const char *const reason = why_no_cuda(); reason[0] != '\0') {
        return fail(error, HALYARD_ERROR_NO_DEVICE, "CUDA can't be used: ", reason);
    }
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

void *allocate(const halyard_cuda_queue &queue, std::size_t n_bytes) noexcept {
    const CurrentContext current(queue.context);
    void *memory = nullptr;
    return cuda().allocate(&memory, n_bytes) == 0 ? memory : nullptr;
}

void release(const halyard_cuda_queue &queue, void *memory) noexcept {
    if (memory != nullptr) {
        const CurrentContext current(queue.context);
        cuda().release(memory);
    }
}

int copy_in(const halyard_cuda_queue &queue, void *memory, const void *data, std::size_t n_bytes) noexcept {
    const CurrentContext current(queue.context);
    // A copy from pageable memory may still run on the default stream when cuMemcpyHtoD returns.
    const int status = cuda().copy_in(memory, data, n_bytes);
    return status != 0 ? status : cuda().synchronize(nullptr);
}

int copy_out(const halyard_cuda_queue &queue, void *data, void *memory, std::size_t n_bytes) noexcept {
    const CurrentContext current(queue.context);
    const int status = cuda().synchronize(queue.stream);
    return status != 0 ? status : cuda().copy_out(data, memory, n_bytes);
}

MemoryQueries::MemoryQueries(const halyard_cuda_queue &queue) noexcept : current_(queue.context) {
    device_ = cuda().get_context_device(&device_) == 0 ? device_ : -1;
}

MemoryInfo MemoryQueries::describe(const void *memory) noexcept {
    int device = -1;
    const bool is_known = cuda().get_pointer_attribute(&device, pointer_device, memory) == 0;
    return {is_known, device_ >= 0 && device_ == device};
}

bool MemoryQueries::is_device_memory(const void *memory) noexcept {
    int type = 0;  // stays 0 if the driver does not know the memory
    cuda().get_pointer_attribute(&type, pointer_type, memory);
    return type == type_device;
}

}  // namespace halyard::cuda

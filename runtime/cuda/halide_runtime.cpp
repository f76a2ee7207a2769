#include "cuda/halide_runtime.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

// These declarations are copied from HalideRuntime.h and HalideRuntimeCuda.h, so that no Halide is needed to build;
// tests/cuda/halide_declarations.cpp compares them.
extern "C" {
typedef void (*halide_error_handler_t)(void *, const char *);
typedef void (*halide_print_t)(void *, const char *);
typedef void *(*halide_load_library_t)(const char *);
typedef int (*halide_cuda_acquire_context_t)(void *, void **, bool);
typedef int (*halide_cuda_release_context_t)(void *);
typedef int (*halide_cuda_get_stream_t)(void *, void *, void **);
halide_error_handler_t halide_set_error_handler(halide_error_handler_t);
halide_print_t halide_set_custom_print(halide_print_t);
halide_load_library_t halide_set_custom_load_library(halide_load_library_t);
halide_cuda_acquire_context_t halide_set_cuda_acquire_context(halide_cuda_acquire_context_t);
halide_cuda_release_context_t halide_set_cuda_release_context(halide_cuda_release_context_t);
halide_cuda_get_stream_t halide_set_cuda_get_stream(halide_cuda_get_stream_t);
struct halide_device_interface_t;
const struct halide_device_interface_t *halide_cuda_device_interface(void);
void halide_device_release(void *, const struct halide_device_interface_t *);
struct halide_mutex;
void halide_mutex_lock(struct halide_mutex *);
void halide_mutex_unlock(struct halide_mutex *);
}

// Halide 21's hash table of loaded modules (its src/runtime/gpu_context_common.h), which no public header declares.
struct ModuleCache {
    struct Place {
        void *context, *module;
        uintptr_t kernel, n_uses;
    };
    static constexpr uintptr_t emptied = 1;  // `kernel` of a place whose module was removed
    uintptr_t mutex;
    int log2_places;
    Place *places;
    int n_kernels;
    uintptr_t next_kernel;
};
extern ModuleCache modules __asm__("_ZN6Halide7Runtime8Internal4Cuda17compilation_cacheE");

namespace {

using halyard::cuda::Call;

void keep_message(void *context, const char *message) {
    auto *call = static_cast<Call *>(context);
    if (call != nullptr && call->message[0] == '\0') {  // later messages are consequences of the first
        snprintf(call->message, sizeof(call->message), "%.*s", static_cast<int>(strcspn(message, "\n")), message);
    }
}

void *load_library(const char *name) {
    return strstr(name, "cuda") != nullptr ? halyard::cuda::find_driver_library() : nullptr;
}

// At exit Halide calls this with `call` = NULL, to release its modules. That call gets no context.

int acquire_cuda(void *call, void **context, bool) {
    *context = call != nullptr ? static_cast<Call *>(call)->context : nullptr;
    return 0;
}

int get_cuda_stream(void *call, void *, void **stream) {
    *stream = call != nullptr ? static_cast<Call *>(call)->stream : nullptr;
    return 0;
}

}  // namespace

namespace halyard::cuda {

void install_handlers() noexcept {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, [] {
        halide_set_error_handler(keep_message);
        halide_set_custom_print([](void *, const char *) {});
        halide_set_custom_load_library(load_library);
        halide_set_cuda_acquire_context(acquire_cuda);
        halide_set_cuda_release_context([](void *) { return 0; });
        halide_set_cuda_get_stream(get_cuda_stream);
    });
}

const void *cuda_interface() noexcept { return halide_cuda_device_interface(); }

void unload_modules(Call &call) noexcept {
    halide_device_release(&call, halide_cuda_device_interface());
    // Workaround for Halide 21: its next release would count places that this release has emptied as kernels of the
    // context. When its count of kernels reaches 0 that way, it releases nothing more. So detach the emptied places.
    auto *const mutex = reinterpret_cast<halide_mutex *>(&modules.mutex);
    halide_mutex_lock(mutex);
    for (int i = 0; modules.places != nullptr && i < 1 << modules.log2_places; i++) {
        if (modules.places[i].kernel == ModuleCache::emptied) {
            modules.places[i].context = nullptr;
        }
    }
    halide_mutex_unlock(mutex);
}

void *find_driver_library() noexcept { return dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL); }

}  // namespace halyard::cuda

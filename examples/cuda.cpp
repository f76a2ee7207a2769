// Rotates q and k on a CUDA device. The context, the memory and the stream belong to the program; Halyard launches its
// kernels on the stream and does not wait. The program needs no CUDA toolkit: it looks up the driver's functions at run
// time. Without a device it prints the reason and exits with status 77.
#include <halyard/halyard_cuda.hpp>

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

constexpr std::int64_t n_tokens = 512, n_heads = 32, n_kv_heads = 8, head_dim = 128;
constexpr std::int64_t n_packed = (n_heads + 2 * n_kv_heads) * head_dim;

[[noreturn]] void skip(const char *why) {
    std::printf("SKIP: %s\n", why);
    std::exit(77);
}

/// Calls a function of libcuda.so.1, as the CUDA driver API's reference manual declares it.
template <typename... Arguments>
void call(const char *name, Arguments... arguments) {
    static void *const driver = dlopen("libcuda.so.1", RTLD_NOW);
    void *const symbol = driver != nullptr ? dlsym(driver, name) : nullptr;
    if (symbol == nullptr) {
        skip("there is no CUDA driver");
    }
    int (*function)(Arguments...);
    std::memcpy(&function, &symbol, sizeof(symbol));
    if (const int status = function(arguments...)) {
        std::fprintf(stderr, "%s failed with %d\n", name, status);
        std::exit(1);
    }
}

/// q or k in a packed buffer.
halyard_tensor slice(float *packed, std::int64_t first_head, std::int64_t heads, std::int32_t device) {
    auto view = halyard::tensor(packed + first_head * head_dim, halyard::dtype::f32, {1, n_tokens, heads, head_dim},
                                {n_tokens * n_packed, n_packed, head_dim, 1});
    view.device = device;
    return view;
}

}  // namespace

int main() {
    const auto target = halyard::cuda_target(HALYARD_CUDA);
    if (!target.supported) {
        skip(target.reason);
    }
    // An engine already has a context, a stream and tensors in device memory.
    int device = 0;
    void *context = nullptr, *stream = nullptr;
    unsigned long long memory = 0;
    call("cuInit", 0u);
    call("cuDeviceGet", &device, 0);
    call("cuDevicePrimaryCtxRetain", &context, device);
    call("cuCtxPushCurrent_v2", context);
    call("cuStreamCreate", &stream, 0u);
    std::vector<float> packed(n_tokens * n_packed);
    for (std::size_t i = 0; i < packed.size(); ++i) {
        packed[i] = static_cast<float>(i % 251) / 251.0f - 0.5f;
    }
    const auto n_bytes = packed.size() * sizeof(float);
    call("cuMemAlloc_v2", &memory, n_bytes);
    call("cuMemcpyHtoD_v2", memory, static_cast<const void *>(packed.data()), n_bytes);

    // This is done once for the model: it copies the table to the device, and loads the kernels.
    const auto table = halyard::angle_source::table(halyard::frequencies::from_base(500000.0, head_dim), 0, n_tokens);
    const auto head = halyard::describe_tensor(halyard::dtype::f32, head_dim, halyard::pairing::half);
    const halyard::plan_desc desc(head_dim, {head, head});
    const auto queue = halyard::describe_queue(HALYARD_CUDA, context, stream);
    {
        const halyard::cuda_angles angles(queue, table);
        const halyard::cuda_plan plan(queue, desc, angles);

        // q and k of the packed buffer, in place: one launch, on our stream.
        float *const on_device = reinterpret_cast<float *>(memory);
        const halyard_tensor q_and_k[] = {slice(on_device, 0, n_heads, HALYARD_CUDA),
                                          slice(on_device, n_heads, n_kv_heads, HALYARD_CUDA)};
        halyard::cuda_run_options options;
        options.stream = stream;
        halyard::run(plan, q_and_k, q_and_k, options);
        call("cuStreamSynchronize", stream);

        // The result must have the bits that Halyard computes on the CPU.
        std::vector<float> back(packed.size());
        call("cuMemcpyDtoH_v2", static_cast<void *>(back.data()), memory, n_bytes);
        const halyard_tensor here[] = {slice(packed.data(), 0, n_heads, HALYARD_CPU),
                                       slice(packed.data(), n_heads, n_kv_heads, HALYARD_CPU)};
        halyard::run(halyard::plan(desc), table, here, here);
        const bool same = std::memcmp(back.data(), packed.data(), n_bytes) == 0;
        std::printf("%lld tokens rotated on %s: %s\n", static_cast<long long>(n_tokens), target.name,
                    same ? "the same bits as on the CPU" : "other bits than on the CPU");
        if (!same) {
            return 1;
        }
    }
    call("cuMemFree_v2", memory);
    call("cuStreamDestroy_v2", stream);
    call("cuDevicePrimaryCtxRelease_v2", device);
}

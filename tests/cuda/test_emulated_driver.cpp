// When the emulated CUDA driver executes enqueued work (as late as a driver may), and which calls it refuses.
#include "checks/cuda/driver.h"
#include "checks/cuda_memory.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

namespace {

using emulated_cuda::the_driver;
/// Calls a driver function; its arguments must have the exact types of the driver API's reference manual.
using cuda_test::call_driver;

constexpr int invalid_value = 1, invalid_context = 201, invalid_ptx = 218, launch_failed = 719,
              capture_unsupported = 900;

/// Kernel `append` multiplies a word by ten and adds a digit, so that the word shows the order of launches. Kernel
/// `wrong` stores to an invalid address.
const char *const ptx = ".version 7.0\n.target sm_80\n.address_size 64\n"
                        ".visible .entry append(.param .u64 to, .param .u32 digit) {\n"
                        ".reg .b32 %r<4>; .reg .b64 %rd<2>;\n"
                        "ld.param.b64 %rd0, [to]; ld.param.b32 %r0, [digit]; ld.global.b32 %r1, [%rd0];\n"
                        "mad.lo.s32 %r2, %r1, 10, %r0; st.global.b32 [%rd0], %r2; ret;\n}\n"
                        ".visible .entry wrong() { .reg .b64 %rd<2>; st.global.b32 [16], 0; }\n";

template <typename... Arguments>
void must(const char *name, Arguments... arguments) {
    INFO(name);
    REQUIRE(call_driver(name, arguments...) == 0);
}

/// A word of device memory that starts at 0, two streams beside the default one, and the kernels.
struct Device {
    cuda_test::Queue queue, other;
    halyard::cuda::CurrentContext current{queue.get().context};
    cuda_test::Memory memory{queue.get(), std::vector<int>{0}};
    std::uint64_t word = reinterpret_cast<std::uint64_t>(memory.data());
    void *const stream = queue.get().stream, *const other_stream = other.get().stream;
    void *module = nullptr, *append_kernel = nullptr, *wrong_kernel = nullptr;

    Device() {
        must("cuModuleLoadData", &module, ptx);
        must("cuModuleGetFunction", &append_kernel, module, "append");
        must("cuModuleGetFunction", &wrong_kernel, module, "wrong");
        must("cuCtxSynchronize");
        the_driver().n_executed = 0;
    }
    Device(const Device &) = delete;
    ~Device() {
        the_driver().fault.clear();
        call_driver("cuModuleUnload", module);
    }
    int copy_in(int value, std::uint64_t off = 0) const {
        return call_driver("cuMemcpyHtoD_v2", word + off, &value, std::size_t{4});
    }
    int copy_out(int &value, std::uint64_t off = 0) const {
        return call_driver("cuMemcpyDtoH_v2", &value, word + off, std::size_t{4});
    }
    int launch(void *function, int digit, void *stream, unsigned block = 1, unsigned grid = 1,
               unsigned shared_bytes = 0) const {
        std::uint64_t to = word;
        void *parameters[] = {&to, &digit}, **const none = nullptr;
        return call_driver("cuLaunchKernel", function, grid, 1u, 1u, block, 1u, 1u, shared_bytes, stream, parameters,
                           none);
    }
    void append(int digit, void *stream) const { REQUIRE(launch(append_kernel, digit, stream) == 0); }
    /// The word after the pending work of a stream and of the default stream.
    int read(void *stream = nullptr) const {
        int value = -1;
        must("cuStreamSynchronize", stream);
        REQUIRE(copy_out(value) == 0);
        return value;
    }
};

const long &n_executed = the_driver().n_executed;  // executed launches

}  // namespace

TEST_CASE("cuda driver: launches run when something waits for their stream", "[machine]") {
    const Device device;
    void *const stream = device.stream, *blocking = nullptr;
    std::uint64_t other = 0;
    device.append(1, nullptr);
    device.append(2, stream);
    must("cuMemAlloc_v2", &other, std::size_t{4});
    CHECK(n_executed == 0);
    must("cuStreamSynchronize", stream);
    CHECK(n_executed == 1);
    CHECK(device.read() == 21);
    device.append(3, stream);
    CHECK(device.copy_in(5) == 0);  // the copy reads its source at once
    CHECK(device.read(device.other_stream) == 5);
    CHECK(n_executed == 2);
    must("cuMemFree_v2", other);
    CHECK(n_executed == 3);
    must("cuStreamCreate", &blocking, 0u);  // a blocking stream: ordered with the default one
    device.append(4, nullptr);
    device.append(5, blocking);
    device.append(6, stream);
    CHECK(device.read(blocking) == 5345);
    must("cuCtxSynchronize");
    CHECK(n_executed == 6);
}

TEST_CASE("cuda driver: what is captured runs when it is replayed", "[machine]") {
    const Device device;
    void *const stream = device.stream;
    void *graph = nullptr, *executable = nullptr, *module = nullptr;
    std::uint64_t memory = 0;
    int value = 0;
    must("cuStreamBeginCapture_v2", stream, 0);
    device.append(1, stream);
    device.append(2, stream);
    // While a stream captures, calls that wait, allocate, free, copy or load are refused.
    for (const int result :
         {call_driver("cuStreamSynchronize", stream), call_driver("cuCtxSynchronize"),
          call_driver("cuMemAlloc_v2", &memory, std::size_t{4}), call_driver("cuMemFree_v2", device.word),
          device.copy_out(value), device.copy_in(0), call_driver("cuModuleLoadData", &module, ptx)}) {
        CHECK(result == capture_unsupported);
    }
    must("cuStreamEndCapture", stream, &graph);
    must("cuGraphInstantiateWithFlags", &executable, graph, 0ull);
    must("cuGraphDestroy", graph);
    must("cuCtxSynchronize");
    must("cuGraphLaunch", executable, stream);
    must("cuGraphLaunch", executable, device.other_stream);
    CHECK(n_executed == 0);
    CHECK(device.read(stream) == 12);
    CHECK(device.read(device.other_stream) == 1212);
    must("cuGraphExecDestroy", executable);
}

TEST_CASE("cuda driver: a launch that does wrong fails all calls after it", "[machine]") {
    const Device device;
    CHECK(device.launch(device.wrong_kernel, 0, nullptr) == 0);
    device.append(1, nullptr);
    CHECK(call_driver("cuCtxSynchronize") == launch_failed);
    CHECK_THAT(the_driver().fault,
               Catch::Matchers::ContainsSubstring("has the address 0x10, which is in no memory"));
    int value = -1;
    CHECK(device.launch(device.append_kernel, 1, nullptr) == launch_failed);
    CHECK(device.copy_out(value) == launch_failed);
    the_driver().fault.clear();
    CHECK(device.read() == 0);
}

TEST_CASE("cuda driver: what cannot be asked for is refused", "[machine]") {
    const Device device;
    void *module = nullptr, *context = nullptr, *const none = nullptr;
    std::uint64_t memory = 0;
    int value = 0;
    CHECK(device.launch(device.append_kernel, 1, nullptr, 1024, 1, 48 * 1024) == 0);
    CHECK(call_driver("cuCtxSynchronize") == launch_failed);  // its threads race
    the_driver().fault.clear();
    CHECK(call_driver("cuModuleLoadData", &module, ".weird\n") == invalid_ptx);
    must("cuCtxPopCurrent_v2", &context);
    CHECK(call_driver("cuCtxPopCurrent_v2", &context) == invalid_context);
    CHECK(call_driver("cuMemAlloc_v2", &memory, std::size_t{4}) == invalid_context);
    must("cuCtxPushCurrent_v2", device.queue.get().context);
    for (const int result : {device.launch(device.append_kernel, 1, nullptr, 1025),
                             device.launch(device.append_kernel, 1, nullptr, 1, 0),
                             device.launch(device.append_kernel, 1, nullptr, 1, 1, 48 * 1024 + 1),
                             call_driver("cuMemFree_v2", device.word + 1), device.copy_out(value, 1),
                             device.copy_in(0, ~std::uint64_t{0}), call_driver("cuCtxPushCurrent_v2", none)}) {
        CHECK(result == invalid_value);
    }
}

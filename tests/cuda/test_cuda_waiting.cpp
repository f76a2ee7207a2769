// When the driver of checks/cuda does what it is asked to: as late as a driver may, and in the order that streams have.
#include "checks/cuda/driver.h"
#include "checks/cuda_memory.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <array>
#include <thread>

namespace {

using emulated_cuda::Driver, emulated_cuda::with_driver;
/// Signatures are those of the CUDA driver API's reference manual.
using cuda_test::call_driver;

constexpr int invalid_value = 1, invalid_context = 201, invalid_ptx = 218, launch_failed = 719,
              capture_unsupported = 900;

/// A kernel that multiplies a word by ten and adds a digit, so that the word tells the order of launches, and one that
/// does wrong.
const char *const ptx = ".version 7.0\n.target sm_80\n.address_size 64\n"
                        ".visible .entry append(.param .u64 to, .param .u32 digit) {\n"
                        ".reg .b32 %r<4>; .reg .b64 %rd<2>;\n"
                        "ld.param.b64 %rd0, [to]; ld.param.b32 %r0, [digit]; ld.global.b32 %r1, [%rd0];\n"
                        "mad.lo.s32 %r2, %r1, 10, %r0; st.global.b32 [%rd0], %r2; ret;\n}\n"
                        ".visible .entry wrong() { .reg .b64 %rd<2>; st.global.b32 [16], 0; }\n";

/// A word of device memory that is 0, two streams that wait for the default one, two that do not, and the kernels.
struct Scene {
    void *context = nullptr, *module = nullptr, *append_kernel = nullptr, *wrong_kernel = nullptr;
    std::array<void *, 2> blocking = {}, free = {};
    std::uint64_t word = 0;

    Scene() {
        REQUIRE(call_driver("cuDevicePrimaryCtxRetain", &context, 0) == 0);
        REQUIRE(call_driver("cuCtxPushCurrent_v2", context) == 0);
        REQUIRE(call_driver("cuModuleLoadData", &module, ptx) == 0);
        REQUIRE(call_driver("cuModuleGetFunction", &append_kernel, module, "append") == 0);
        REQUIRE(call_driver("cuModuleGetFunction", &wrong_kernel, module, "wrong") == 0);
        REQUIRE(call_driver("cuMemAlloc_v2", &word, std::size_t{4}) == 0);
        REQUIRE(copy_in(0) == 0);
        REQUIRE(call_driver("cuCtxSynchronize") == 0);
        for (const unsigned flag : {0u, 1u}) {
            for (void *&stream : flag == 0 ? blocking : free) {
                REQUIRE(call_driver("cuStreamCreate", &stream, flag) == 0);
            }
        }
        with_driver([](Driver &driver) { driver.n_executed = 0; });
    }
    Scene(const Scene &) = delete;
    ~Scene() {
        with_driver([](Driver &driver) { driver.fault.clear(); });
        for (void *const stream : {blocking[0], blocking[1], free[0], free[1]}) {
            call_driver("cuStreamDestroy_v2", stream);
        }
        call_driver("cuMemFree_v2", word);
        call_driver("cuModuleUnload", module);
        call_driver("cuCtxPopCurrent_v2", &context);
    }
    int copy_in(int value, std::uint64_t off = 0) const {
        return call_driver("cuMemcpyHtoD_v2", word + off, &value, std::size_t{4});
    }
    int copy_out(int &value, std::uint64_t off = 0) const {
        return call_driver("cuMemcpyDtoH_v2", &value, word + off, std::size_t{4});
    }
    int launch(void *function, void *stream, int digit = 1, unsigned block = 1, unsigned grid = 1,
               unsigned shared_bytes = 0) const {
        std::uint64_t to = word;
        void *parameters[] = {&to, &digit}, **const none = nullptr;
        return call_driver("cuLaunchKernel", function, grid, 1u, 1u, block, 1u, 1u, shared_bytes, stream, parameters,
                           none);
    }
    void append(int digit, void *stream) const { REQUIRE(launch(append_kernel, stream, digit) == 0); }
    /// The word, after the work of a stream and of the default one.
    int read(void *stream = nullptr) const {
        int value = -1;
        REQUIRE(call_driver("cuStreamSynchronize", stream) == 0);
        REQUIRE(copy_out(value) == 0);
        return value;
    }
};

/// How many launches have run.
long n_executed() {
    long n = 0;
    with_driver([&](Driver &driver) { n = driver.n_executed; });
    return n;
}

}  // namespace

TEST_CASE("cuda driver: launches run when something waits for them", "[machine]") {
    const Scene scene;
    scene.append(1, nullptr);
    scene.append(2, scene.free[0]);
    std::uint64_t other = 0;
    CHECK(call_driver("cuMemAlloc_v2", &other, std::size_t{4}) == 0);
    CHECK(n_executed() == 0);
    SECTION("for one stream") {
        CHECK(call_driver("cuStreamSynchronize", scene.free[0]) == 0);
        CHECK(n_executed() == 1);
        CHECK(scene.read() == 21);
    }
    SECTION("for all of them") {
        CHECK(call_driver("cuCtxSynchronize") == 0);
        CHECK(n_executed() == 2);
    }
    SECTION("but not for a copy to the device, which takes what was there at once") {
        CHECK(scene.copy_in(5) == 0);
        CHECK(scene.read() == 5);
        CHECK(n_executed() == 1);
    }
    CHECK(call_driver("cuMemFree_v2", other) == 0);
    CHECK(n_executed() == 2);
}

TEST_CASE("cuda driver: streams wait for the default one, or do not, and never for each other", "[machine]") {
    const Scene scene;
    const auto [first, second] = scene.blocking;
    scene.append(1, scene.free[0]);
    CHECK(scene.read() == 0);
    CHECK(scene.read(scene.free[1]) == 0);
    CHECK(scene.read(scene.free[0]) == 1);
    scene.append(2, first);
    scene.append(3, nullptr);
    scene.append(4, second);
    scene.append(5, first);
    CHECK(call_driver("cuStreamSynchronize", first) == 0);  // with the default stream's work, and what that waits for
    CHECK(n_executed() == 4);
    CHECK(scene.read() == 12354);
}

TEST_CASE("cuda driver: what is captured runs when it is replayed", "[machine]") {
    const Scene scene;
    void *const stream = scene.free[0];
    void *graph = nullptr, *executable = nullptr, *module = nullptr;
    std::uint64_t memory = 0;
    int value = 0;
    REQUIRE(call_driver("cuStreamBeginCapture_v2", stream, 0) == 0);
    scene.append(1, stream);
    scene.append(2, stream);
    // Nothing may wait, or change what there is, while a stream captures.
    for (const int result :
         {call_driver("cuStreamSynchronize", stream), call_driver("cuCtxSynchronize"),
          call_driver("cuMemAlloc_v2", &memory, std::size_t{4}), call_driver("cuMemFree_v2", scene.word),
          scene.copy_out(value), scene.copy_in(0), call_driver("cuModuleLoadData", &module, ptx)}) {
        CHECK(result == capture_unsupported);
    }
    REQUIRE(call_driver("cuStreamEndCapture", stream, &graph) == 0);
    REQUIRE(call_driver("cuGraphInstantiateWithFlags", &executable, graph, 0ull) == 0);
    CHECK(call_driver("cuGraphDestroy", graph) == 0);
    CHECK(call_driver("cuCtxSynchronize") == 0);
    CHECK(call_driver("cuGraphLaunch", executable, stream) == 0);
    CHECK(call_driver("cuGraphLaunch", executable, scene.free[1]) == 0);
    CHECK(n_executed() == 0);
    CHECK(scene.read(stream) == 12);
    CHECK(scene.read(scene.free[1]) == 1212);
    CHECK(call_driver("cuGraphExecDestroy", executable) == 0);
}

TEST_CASE("cuda driver: a launch that does wrong fails all calls after it", "[machine]") {
    const Scene scene;
    CHECK(scene.launch(scene.wrong_kernel, nullptr) == 0);
    scene.append(1, nullptr);
    CHECK(call_driver("cuCtxSynchronize") == launch_failed);
    with_driver([](Driver &driver) {
        CHECK_THAT(driver.fault, Catch::Matchers::ContainsSubstring("has the address 0x10, which is in no memory"));
    });
    CHECK(scene.launch(scene.append_kernel, nullptr) == launch_failed);
    int value = -1;
    CHECK(scene.copy_out(value) == launch_failed);
    with_driver([](Driver &driver) { driver.fault.clear(); });
    CHECK(scene.read() == 0);
}

TEST_CASE("cuda driver: what cannot be asked for is refused", "[machine]") {
    const Scene scene;
    CHECK(scene.launch(scene.append_kernel, nullptr, 1, 1024, 1, 48 * 1024) == 0);
    CHECK(call_driver("cuCtxSynchronize") == launch_failed);  // its threads race
    with_driver([](Driver &driver) { driver.fault.clear(); });
    void *module = nullptr;
    CHECK(call_driver("cuModuleLoadData", &module, ".weird\n") == invalid_ptx);
    int value = 0;
    for (const int result :
         {scene.launch(scene.append_kernel, nullptr, 1, 1025), scene.launch(scene.append_kernel, nullptr, 1, 1, 0),
          scene.launch(scene.append_kernel, nullptr, 1, 1, 1, 48 * 1024 + 1),
          call_driver("cuMemFree_v2", scene.word + 1), scene.copy_out(value, 1), scene.copy_in(0, ~std::uint64_t{0})}) {
        CHECK(result == invalid_value);
    }
}

namespace {

/// Calls the driver when its thread has ended, as Halide's caches do.
struct Late {
    void *context = nullptr;
    std::array<int, 4> *results = nullptr;
    ~Late() {
        void *popped = nullptr;
        *results = {call_driver("cuCtxPushCurrent_v2", context), call_driver("cuCtxSynchronize"),
                    call_driver("cuCtxPopCurrent_v2", &popped), popped == context ? 0 : 1};
    }
};

}  // namespace

TEST_CASE("cuda driver: each thread has contexts of its own, to its very end", "[machine]") {
    char first, second;
    void *const contexts[] = {&first, &second}, *context = &first, *const none = nullptr;
    CHECK((call_driver("cuCtxGetCurrent", &context) == 0 && context == nullptr));
    std::uint64_t memory = 0;
    CHECK(call_driver("cuMemAlloc_v2", &memory, std::size_t{4}) == invalid_context);
    CHECK(call_driver("cuCtxPushCurrent_v2", none) == invalid_value);
    for (void *const each : contexts) {
        CHECK(call_driver("cuCtxPushCurrent_v2", each) == 0);
    }
    std::array<int, 4> late = {-1, -1, -1, -1};
    void *elsewhere = &first;
    std::jthread([&] {
        thread_local Late at_end;
        at_end = {&first, &late};
        call_driver("cuCtxGetCurrent", &elsewhere);
    }).join();
    CHECK(elsewhere == nullptr);
    CHECK(late == std::array<int, 4>{});
    CHECK((call_driver("cuCtxGetCurrent", &context) == 0 && context == &second));
    for (void *const each : {contexts[1], contexts[0]}) {
        CHECK((call_driver("cuCtxPopCurrent_v2", &context) == 0 && context == each));
    }
    CHECK(call_driver("cuCtxPopCurrent_v2", &context) == invalid_context);
}

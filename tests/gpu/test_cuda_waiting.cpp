// When the driver of checks/cuda does what it is asked to: as late as a driver may, and in the order that streams have.
#include "checks/cuda/driver.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <array>
#include <cstdint>
#include <thread>

// Signatures are those of the CUDA driver API's reference manual.
extern "C" {
int cuCtxPushCurrent_v2(void *context);
int cuCtxPopCurrent_v2(void **context);
int cuCtxGetCurrent(void **context);
int cuCtxSynchronize();
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuStreamCreate(void **stream, unsigned flags);
int cuStreamDestroy_v2(void *stream);
int cuStreamSynchronize(void *stream);
int cuStreamBeginCapture_v2(void *stream, int mode);
int cuStreamEndCapture(void *stream, void **graph);
int cuGraphInstantiateWithFlags(void **executable, void *graph, unsigned long long flags);
int cuGraphLaunch(void *executable, void *stream);
int cuGraphExecDestroy(void *executable);
int cuGraphDestroy(void *graph);
int cuMemAlloc_v2(std::uint64_t *address, std::size_t n_bytes);
int cuMemFree_v2(std::uint64_t address);
int cuMemcpyHtoD_v2(std::uint64_t to, const void *from, std::size_t n_bytes);
int cuMemcpyDtoH_v2(void *to, std::uint64_t from, std::size_t n_bytes);
int cuModuleLoadData(void **module, const void *image);
int cuModuleUnload(void *module);
int cuModuleGetFunction(void **function, void *module, const char *name);
int cuLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                   unsigned block_y, unsigned block_z, unsigned shared_bytes, void *stream, void **parameters,
                   void **extra);
}

namespace {

using emulated_cuda::Driver, emulated_cuda::with_driver;

constexpr int invalid_value = 1, invalid_context = 201, invalid_ptx = 218, launch_failed = 719,
              capture_unsupported = 900;

/// How many launches have run.
long n_executed() {
    long n = 0;
    with_driver([&](Driver &driver) { n = driver.n_executed; });
    return n;
}

/// A kernel that multiplies a word by ten and adds a digit, so that the word tells the order of launches, and one that
/// does wrong.
const char *const ptx = ".version 7.0\n.target sm_80\n.address_size 64\n"
                        ".visible .entry append(.param .u64 to, .param .u32 digit) {\n"
                        ".reg .b32 %r<4>; .reg .b64 %rd<2>;\n"
                        "ld.param.b64 %rd0, [to]; ld.param.b32 %r0, [digit]; ld.global.b32 %r1, [%rd0];\n"
                        "mad.lo.s32 %r2, %r1, 10, %r0; st.global.b32 [%rd0], %r2; ret;\n}\n"
                        ".visible .entry wrong() { .reg .b64 %rd<2>; st.global.b32 [16], 0; }\n";

/// A word of device memory that is 0, a stream that waits for the default one, two that do not, and the kernels.
struct Scene {
    void *context = nullptr, *module = nullptr, *append_kernel = nullptr, *wrong_kernel = nullptr;
    void *blocking = nullptr;
    std::array<void *, 2> free = {};
    std::uint64_t word = 0;

    Scene() {
        REQUIRE(cuDevicePrimaryCtxRetain(&context, 0) == 0);
        REQUIRE(cuCtxPushCurrent_v2(context) == 0);
        REQUIRE(cuModuleLoadData(&module, ptx) == 0);
        REQUIRE(cuModuleGetFunction(&append_kernel, module, "append") == 0);
        REQUIRE(cuModuleGetFunction(&wrong_kernel, module, "wrong") == 0);
        REQUIRE(cuMemAlloc_v2(&word, 4) == 0);
        const int zero = 0;
        REQUIRE(cuMemcpyHtoD_v2(word, &zero, 4) == 0);
        REQUIRE(cuCtxSynchronize() == 0);
        REQUIRE(cuStreamCreate(&blocking, 0) == 0);
        for (void *&stream : free) {
            REQUIRE(cuStreamCreate(&stream, 1) == 0);
        }
    }
    Scene(const Scene &) = delete;
    Scene &operator=(const Scene &) = delete;
    ~Scene() {
        with_driver([](Driver &driver) { driver.fault.clear(); });
        for (void *const stream : {blocking, free[0], free[1]}) {
            cuStreamDestroy_v2(stream);
        }
        cuMemFree_v2(word);
        cuModuleUnload(module);
        void *popped = nullptr;
        cuCtxPopCurrent_v2(&popped);
    }
    int launch(void *function, void *stream, unsigned block = 1, unsigned shared_bytes = 0, unsigned grid = 1,
               int digit = 1) const {
        std::uint64_t to = word;
        void *parameters[] = {&to, &digit};
        return cuLaunchKernel(function, grid, 1, 1, block, 1, 1, shared_bytes, stream, parameters, nullptr);
    }
    void append(int digit, void *stream) const { REQUIRE(launch(append_kernel, stream, 1, 0, 1, digit) == 0); }
    /// The word, after the work of a stream and of the default one.
    int read(void *stream = nullptr) const {
        int value = -1;
        REQUIRE(cuStreamSynchronize(stream) == 0);
        REQUIRE(cuMemcpyDtoH_v2(&value, word, 4) == 0);
        return value;
    }
};

}  // namespace

TEST_CASE("cuda driver: launches run when something waits for them", "[machine]") {
    const Scene scene;
    const long before = n_executed();
    scene.append(1, nullptr);
    scene.append(2, scene.free[0]);
    CHECK(n_executed() == before);
    SECTION("for one stream") {
        CHECK(cuStreamSynchronize(scene.free[0]) == 0);
        CHECK(n_executed() == before + 1);
        CHECK(scene.read() == 21);
    }
    SECTION("for all of them") {
        CHECK(cuCtxSynchronize() == 0);
        CHECK(n_executed() == before + 2);
    }
    SECTION("for memory to be given back") {
        std::uint64_t other = 0;
        CHECK(cuMemAlloc_v2(&other, 4) == 0);
        CHECK(n_executed() == before);
        CHECK(cuMemFree_v2(other) == 0);
        CHECK(n_executed() == before + 2);
    }
    SECTION("but not for a copy to the device, which takes what was there at once") {
        int digit = 5;
        CHECK(cuMemcpyHtoD_v2(scene.word, &digit, 4) == 0);
        digit = 6;
        CHECK(scene.read() == 5);
        CHECK(n_executed() == before + 1);
    }
}

TEST_CASE("cuda driver: streams wait for the default one, or do not", "[machine]") {
    const Scene scene;
    scene.append(1, scene.free[0]);
    CHECK(scene.read() == 0);
    CHECK(scene.read(scene.free[1]) == 0);
    CHECK(scene.read(scene.blocking) == 0);
    CHECK(scene.read(scene.free[0]) == 1);
    scene.append(2, scene.blocking);
    scene.append(3, nullptr);
    scene.append(4, scene.blocking);
    CHECK(scene.read(scene.blocking) == 1234);
    scene.append(5, scene.blocking);
    CHECK(scene.read() == 12345);
}

TEST_CASE("cuda driver: what is captured runs when it is replayed", "[machine]") {
    const Scene scene;
    void *const stream = scene.free[0];
    void *graph = nullptr, *executable = nullptr;
    const long before = n_executed();
    REQUIRE(cuStreamBeginCapture_v2(stream, 0) == 0);
    scene.append(1, stream);
    scene.append(2, stream);
    // Nothing may wait, or change what there is, while a stream captures.
    std::uint64_t memory = 0;
    void *module = nullptr;
    int value = 0;
    CHECK(cuStreamSynchronize(stream) == capture_unsupported);
    CHECK(cuCtxSynchronize() == capture_unsupported);
    CHECK(cuMemAlloc_v2(&memory, 4) == capture_unsupported);
    CHECK(cuMemFree_v2(scene.word) == capture_unsupported);
    CHECK(cuMemcpyDtoH_v2(&value, scene.word, 4) == capture_unsupported);
    CHECK(cuMemcpyHtoD_v2(scene.word, &value, 4) == capture_unsupported);
    CHECK(cuModuleLoadData(&module, ptx) == capture_unsupported);
    REQUIRE(cuStreamEndCapture(stream, &graph) == 0);
    REQUIRE(cuGraphInstantiateWithFlags(&executable, graph, 0) == 0);
    CHECK(cuGraphDestroy(graph) == 0);
    CHECK(cuCtxSynchronize() == 0);
    CHECK(n_executed() == before);
    CHECK(cuGraphLaunch(executable, stream) == 0);
    CHECK(cuGraphLaunch(executable, scene.free[1]) == 0);
    CHECK(n_executed() == before);
    CHECK(scene.read(stream) == 12);
    CHECK(scene.read(scene.free[1]) == 1212);
    CHECK(cuGraphExecDestroy(executable) == 0);
}

TEST_CASE("cuda driver: a launch that does wrong fails all calls after it", "[machine]") {
    const Scene scene;
    CHECK(scene.launch(scene.wrong_kernel, nullptr) == 0);
    scene.append(1, nullptr);
    CHECK(cuStreamSynchronize(nullptr) == launch_failed);
    std::string fault;
    with_driver([&](Driver &driver) { fault = driver.fault; });
    CHECK_THAT(fault, Catch::Matchers::ContainsSubstring("has the address 0x10, which is in no memory"));
    CHECK(scene.launch(scene.append_kernel, nullptr) == launch_failed);
    int value = -1;
    CHECK(cuMemcpyDtoH_v2(&value, scene.word, 4) == launch_failed);
    with_driver([&](Driver &driver) { driver.fault.clear(); });
    CHECK(scene.read() == 0);
}

TEST_CASE("cuda driver: what cannot be asked for is refused", "[machine]") {
    const Scene scene;
    CHECK(scene.launch(scene.append_kernel, nullptr, 1024, 48 * 1024) == 0);
    CHECK(cuCtxSynchronize() == launch_failed);  // its threads race
    with_driver([&](Driver &driver) { driver.fault.clear(); });
    CHECK(scene.launch(scene.append_kernel, nullptr, 1025) == invalid_value);
    CHECK(scene.launch(scene.append_kernel, nullptr, 1, 0, 0) == invalid_value);
    CHECK(scene.launch(scene.append_kernel, nullptr, 1, 48 * 1024 + 1) == invalid_value);
    void *module = nullptr;
    CHECK(cuModuleLoadData(&module, ".weird\n") == invalid_ptx);
    int value = 0;
    CHECK(cuMemFree_v2(scene.word + 1) == invalid_value);
    CHECK(cuMemcpyDtoH_v2(&value, scene.word + 1, 4) == invalid_value);
    CHECK(cuMemcpyHtoD_v2(scene.word - 1, &value, 4) == invalid_value);
}

namespace {

/// Calls the driver when its thread has ended, as Halide's caches do.
struct Late {
    void *context = nullptr;
    std::array<int, 4> *results = nullptr;
    ~Late() {
        void *popped = nullptr;
        *results = {cuCtxPushCurrent_v2(context), cuCtxSynchronize(), cuCtxPopCurrent_v2(&popped),
                    popped == context ? 0 : 1};
    }
};

}  // namespace

TEST_CASE("cuda driver: each thread has contexts of its own, to its very end", "[machine]") {
    char first, second;
    void *context = &first;
    CHECK((cuCtxGetCurrent(&context) == 0 && context == nullptr));
    std::uint64_t memory = 0;
    CHECK(cuMemAlloc_v2(&memory, 4) == invalid_context);
    CHECK(cuCtxPushCurrent_v2(nullptr) == invalid_value);
    CHECK(cuCtxPushCurrent_v2(&first) == 0);
    CHECK(cuCtxPushCurrent_v2(&second) == 0);
    std::array<int, 4> late = {-1, -1, -1, -1};
    void *elsewhere = &first;
    std::jthread([&] {
        thread_local Late at_end;
        at_end.context = &first;
        at_end.results = &late;
        cuCtxGetCurrent(&elsewhere);
    }).join();
    CHECK(elsewhere == nullptr);
    CHECK(late == std::array<int, 4>{});
    CHECK((cuCtxGetCurrent(&context) == 0 && context == &second));
    CHECK((cuCtxPopCurrent_v2(&context) == 0 && context == &second));
    CHECK((cuCtxPopCurrent_v2(&context) == 0 && context == &first));
    CHECK(cuCtxPopCurrent_v2(&context) == invalid_context);
}

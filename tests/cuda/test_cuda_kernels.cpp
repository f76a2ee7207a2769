// Tests every CUDA kernel by random runs, in a test case of the kernel's name: see checks/cases/on_device.h.
#include "checks/cases/on_device.h"
#include "checks/cuda_device.h"

#include <catch2/catch_get_random_seed.hpp>

#include <algorithm>
#include <cstring>

namespace {

/// Finds the kernel of this name in a list, and calls fault(kernel, random, number of the call) n_calls times. Each
/// call must return no fault.
void test_listed(const auto &kernels, const char *name, int n_calls, const auto &fault) {
    const auto kernel =
        std::ranges::find_if(kernels, [&](const auto &each) { return std::strcmp(each.name, name) == 0; });
    REQUIRE(kernel != kernels.end());
    oracle::Random random(Catch::getSeed());
    for (int i = 0, n = cuda_test::n_calls_times_rounds(n_calls); i < n; i++) {
        INFO("seed " << Catch::getSeed() << ", run " << i);
        const std::string wrong = fault(*kernel, random, i);  // skips the test without a device
        REQUIRE(wrong == "");
    }
}

void test_kernel(const char *name) {
    const halyard_cuda_queue &queue = cuda_test::device_queue();
    test_listed(halyard::cuda::cuda_kernels(), name, 32, [&](const auto &kernel, oracle::Random &random, int) {
        return cases::fault_of_kernel(kernel, queue, random);
    });
}

/// Checks a KV kernel by random runs that it serves.
void test_kv_kernel(const char *name) {
    const halyard_cuda_queue &queue = cuda_test::device_queue();
    const bool is_sm89 = halyard::cuda_target(HALYARD_CUDA).name == std::string("cuda_sm89");
    test_listed(halyard::cuda::kv_kernels(), name, 12, [&](const auto &kernel, oracle::Random &random, int i) {
        if (kernel.capability == 89
                ? !is_sm89
                : is_sm89 && kernel.dtype == halyard::Dtype::bf16 && kernel.out_dtype == halyard::Dtype::e4m3) {
            SKIP("a device of another compute capability takes it");
        }
        return cases::fault_of_kernel(kernel, queue, random, i);
    });
}

}  // namespace

#define HALYARD_CUDA_KERNEL(name, target, ...)                                                                         \
    TEST_CASE(#name, "[cuda][" #target "]") { test_kernel(#name); }
#define HALYARD_CUDA_KV_KERNEL(name, target, ...)                                                                      \
    TEST_CASE(#name, "[cuda][" #target "]") { test_kv_kernel(#name); }
#include "built_kernels.inc"

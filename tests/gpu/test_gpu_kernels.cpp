// Tests every GPU kernel, in a test case of the kernel's name: see gpu_checker.h.
#include "checks/gpu_device.h"

#include <catch2/catch_get_random_seed.hpp>

#include <cstring>

namespace {

void test_kernel(const char *name) {
    for (const halyard::gpu::GpuKernel &kernel : halyard::gpu::gpu_kernels()) {
        if (std::strcmp(kernel.name, name) != 0) {
            continue;
        }
        const halyard_gpu_queue &queue =
            gpu_test::queue_of(kernel.target == halyard::Target::cuda_sm80 ? HALYARD_CUDA : HALYARD_OPENCL);
        oracle::Random random(Catch::getSeed());
        for (int i = 0; i < 16; i++) {
            INFO("seed " << Catch::getSeed() << ", run " << i);
            const std::string fault = gpu_test::check_gpu_run(kernel, queue, random);
            if (!fault.empty()) {
                FAIL(fault);
            }
        }
        SUCCEED();
        return;
    }
    FAIL("not in the list");
}

}  // namespace

#define HALYARD_GPU_KERNEL(name, target, ...)                                                                          \
    TEST_CASE(#name, "[gpu][" #target "]") { test_kernel(#name); }
#include "built_kernels.inc"

// Tests every GPU kernel, in a test case of the kernel's name: see checks/cases/on_device.h.
#include "checks/cuda_device.h"
#include "checks/cases/on_device.h"

#include <catch2/catch_get_random_seed.hpp>

#include <algorithm>
#include <cstring>
#include <vector>

namespace {

/// Tries a kernel of a list, as often as is wanted: fault(kernel, random, number of the call).
void test_listed(const auto &kernels, const char *name, int n_calls, const auto &fault) {
    const auto kernel =
        std::ranges::find_if(kernels, [&](const auto &each) { return std::strcmp(each.name, name) == 0; });
    REQUIRE(kernel != kernels.end());
    oracle::Random random(Catch::getSeed());
    for (int i = 0, n = cuda_test::n_calls(n_calls); i < n; i++) {
        INFO("seed " << Catch::getSeed() << ", run " << i);
        const std::string wrong = fault(*kernel, random, i);  // which may skip the test
        REQUIRE(wrong == "");
    }
}

/// Of some tokens, or of so many at most.
void test_kernel(const char *name, std::int64_t most_tokens = 0) {
    const halyard_cuda_queue &queue = cuda_test::device_queue();
    test_listed(halyard::cuda::cuda_kernels(), name, 32, [&](const auto &kernel, oracle::Random &random, int) {
        return cases::fault_of_kernel(kernel, queue, random, most_tokens == 0 ? 0 : random.in(100, most_tokens));
    });
}

/// Where no other kernel takes its tensors.
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

// Each of them takes three launches.
TEST_CASE("cuda device: heads that are wider than one launch can take have the reference's bits", "[cuda]") {
    const halyard_cuda_queue &queue = cuda_test::device_queue();
    const std::int64_t rotary_dim = 2 * 69984;
    const auto frequencies = halyard::frequencies::from_base(10000, rotary_dim);
    const auto angles = halyard::angle_source::phase(frequencies, 0, 1000);
    const halyard::cuda_angles on_device(queue, angles);
    oracle::Random random(Catch::getSeed());
    for (const auto how : {halyard::pairing::half, halyard::pairing::interleaved}) {
        halyard::plan_desc desc(rotary_dim, {halyard::describe_tensor(halyard::dtype::f32, rotary_dim, how)});
        const halyard::cuda_plan plan(queue, desc, on_device);
        desc.target = "reference";
        const halyard::plan reference(desc);
        std::vector<float> x(static_cast<std::size_t>(2 * rotary_dim));
        std::generate(x.begin(), x.end(), [&] { return static_cast<float>(random.unit()); });
        const cuda_test::Memory memory(queue, x);
        auto view = halyard::tensor(x.data(), halyard::dtype::f32, {1, 2, 1, rotary_dim});
        halyard::run(reference, angles, view, view);
        view.data = memory.data();
        view.device = HALYARD_CUDA;
        halyard::cuda_run_options options;
        options.stream = queue.stream;
        halyard::run(plan, view, view, options);
        CHECK(memory.read<float>() == x);
    }
}

// A kernel of its own checks positions, by blocks of 128 tokens.
TEST_CASE("cuda device: positions of many tokens are checked", "[cuda]") {
    test_kernel("halyard_rotate_strided_f32_in_place_cuda_sm80", 260);
}

#define HALYARD_CUDA_KERNEL(name, target, ...)                                                                         \
    TEST_CASE(#name, "[cuda][" #target "]") { test_kernel(#name); }
#define HALYARD_CUDA_KV_KERNEL(name, target, ...)                                                                      \
    TEST_CASE(#name, "[cuda][" #target "]") { test_kv_kernel(#name); }
#include "built_kernels.inc"

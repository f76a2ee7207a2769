// Tests every kernel of the list, in a test case of the kernel's name. kernel_checker.h says what is tested.
#include "checks/kernel_checker.h"

#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace {

/// How often each count of pairs is tried: HALYARD_TEST_ROUNDS in the environment, for runs at night.
int n_rounds() {
    const char *const rounds = std::getenv("HALYARD_TEST_ROUNDS");
    return rounds != nullptr ? std::max(std::atoi(rounds), 1) : 6;
}

void test_kernel(const char *name) {
    for (const halyard::Kernel &kernel : halyard::kernels()) {
        if (std::strcmp(kernel.name, name) != 0) {
            continue;
        }
        if ((halyard::supported_targets() & halyard::bit(kernel.target)) == 0) {
            SKIP("this machine cannot run " << halyard::name_of(kernel.target));
        }
        const KernelReport report = check_kernel(kernel, Catch::getSeed(), n_rounds());
        INFO("seed " << Catch::getSeed());
        if (!report.fault.empty()) {
            FAIL(report.fault);
        }
        REQUIRE(report.n_outputs > n_rounds() * 30000);
        SUCCEED(report.n_outputs << " outputs of " << report.n_runs << " runs");
        return;
    }
    FAIL("not in the list");
}

}  // namespace

#define HALYARD_KERNEL(name, ...)                                                                                      \
    TEST_CASE(#name, "[kernel]") { test_kernel(#name); }
#include "built_kernels.inc"

TEST_CASE("halyard_rotate_reference", "[kernel]") { test_kernel("halyard_rotate_reference"); }

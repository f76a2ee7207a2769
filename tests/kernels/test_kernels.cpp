// Every kernel of the list against the model, bit by bit and within the memory that it is given: rotations each in a
// test case of the kernel's name. test_conversions.cpp has the roundings of each dtype, test_norms.cpp and
// test_row_kernels.cpp how far the model's norms and rows are off.
#include "kernels/kernel_checker.h"

#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>

#include <cstdlib>

using halyard::StageKernels;
using halyard::Target;

namespace {

/// How often each count of pairs is tried: HALYARD_TEST_ROUNDS in the environment, for runs at night.
int n_rounds() {
    const char *const rounds = std::getenv("HALYARD_TEST_ROUNDS");
    return rounds != nullptr ? std::max(std::atoi(rounds), 1) : 6;
}

void test_rotation(const std::string &name) {
    for (const KernelRow &row : kernel_rows()) {
        if (name_of(row) != name) {
            continue;
        }
        if ((halyard::supported_targets() & halyard::bit(row.target)) == 0) {
            SKIP("this machine cannot run " << halyard::name_of(row.target));
        }
        INFO("seed " << Catch::getSeed());
        CHECK(fault_of(row, Called(row), Catch::getSeed(), 99 * n_rounds()) == "");
        return;
    }
    FAIL("not in the list");
}

}  // namespace

#define HALYARD_KERNEL(name, ...)                                                                                      \
    TEST_CASE(#name, "[kernel]") { test_rotation(#name); }
#include "built_kernels.inc"

// Scenes compare kernels and model with these bits (test_properties.cpp).
TEST_CASE("kernels: the model rotates with three roundings, not more", "[kernel]") {
    Random random(Catch::getSeed());
    for (const std::int32_t dtype : {HALYARD_F32, HALYARD_F16, HALYARD_BF16}) {
        int n_far = 0;
        for (int n = 0; n < 100000; n++) {
            static constexpr Values kinds[] = {Values::ordinary, Values::any_bits, Values::special,
                                               Values::short_mantissa};
            const Values of_x = random.one_of(kinds), of_row = random.one_of(kinds);
            const auto draw = [&](std::int32_t of, Values values) {
                return oracle::widen(of, oracle::random_word(random, of, values));
            };
            const oracle::Pair<float> x = {draw(dtype, of_x), draw(dtype, of_x)};
            const float c = draw(HALYARD_F32, of_row), s = draw(HALYARD_F32, of_row);
            if (!std::isfinite(x.x0) || !std::isfinite(x.x1) || !std::isfinite(c) || !std::isfinite(s)) {
                continue;
            }
            const auto rotated = oracle::rotate(x, c, s);
            const auto exact = oracle::rotate_exactly({x.x0, x.x1}, c, s);
            const auto is_far = [&](float rounded, long double want, long double magnitude) {
                const long double got = oracle::widen(dtype, oracle::narrow(dtype, rounded));
                return magnitude * (1 + 0x1p-22L) < oracle::overflow_threshold(dtype) &&  // else it may overflow
                       !(std::fabs(got - want) <= oracle::kernel_bound(dtype, magnitude, want));
            };
            const auto product = [](long double a, long double b) { return std::fabs(a * b); };
            n_far += is_far(rotated.x0, exact.x0, product(x.x0, c) + product(x.x1, s)) ||
                     is_far(rotated.x1, exact.x1, product(x.x1, c) + product(x.x0, s));
        }
        CHECK(n_far == 0);
    }
}

TEST_CASE("stage kernels: every target of kernels has all that are listed", "[stages]") {
    int index = 0;
    for (const halyard_target_info &info : halyard::targets()) {
        const auto target = static_cast<Target>(index++);
        const StageKernels *const kernels = halyard::find_stage_kernels(halyard::bit(target));
        const bool has_kernels = info.built != 0 && target != Target::reference;
        INFO(info.name);
        CHECK((kernels != nullptr) == has_kernels);
        for (const KernelRow &row : stage_rows) {
            if (kernels != nullptr && row.target == target) {
                CHECK((row.is_in(*kernels) && row.is_in(model::stage_kernels)));
            }
        }
    }
}

TEST_CASE("stage kernels: the model's bits within the memory that they are given", "[stages]") {
    for (const KernelRow &row : kernel_rows()) {
        if (row.stage != Stage::rotate && (halyard::supported_targets() & halyard::bit(row.target)) != 0) {
            CHECK(fault_of(row, Called(row), Catch::getSeed(), 400) == "");
        }
    }
}

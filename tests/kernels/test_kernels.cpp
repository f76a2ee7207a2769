// Every kernel of the list against the model, bit by bit and within the memory that it is given: rotations each in a
// test case of the kernel's name. test_conversions.cpp has the roundings of each dtype, test_norms.cpp and
// test_row_kernels.cpp how far the model's norms and rows are off.
#include "kernels/kernel_checker.h"
#include "kernels/stage_kernels_here.h"

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

TEST_CASE("kernels: the model rotates with three roundings, not more", "[kernel]") {
    Random random(Catch::getSeed());
    for (const std::int32_t dtype : {HALYARD_F32, HALYARD_F16, HALYARD_BF16}) {
        const std::size_t i = halyard::index_of(Dtype(dtype));
        int n_far = 0;
        for (int n = 0; n < 100000; n++) {
            static constexpr Values kinds[] = {Values::ordinary, Values::any_bits, Values::special,
                                               Values::short_mantissa};
            const Values values = random.one_of(kinds), of_rows = random.one_of(kinds);
            auto x = oracle::random_elements(random, dtype, values, 2), y = x;
            const auto row = oracle::random_elements(random, HALYARD_F32, of_rows, 2);
            std::int32_t row_of_token = 0;
            halyard_dimension dims[] = {{0, 1, 1, 0}, {0, 2, 1, 0}, {0, 1, 0, 0}, {0, 1, 0, 0}};
            const auto buffer = [&](const void *data) {
                halyard_buffer made = {};
                made.host = static_cast<std::uint8_t *>(const_cast<void *>(data));
                made.dim = dims;
                return made;
            };
            halyard_buffer tokens = buffer(&row_of_token), cos_row = buffer(row.data()),
                           sin_row = buffer(row.data() + 4), from = buffer(x.data()), to = buffer(y.data());
            model::rotations[i](&tokens, &cos_row, &sin_row, 0, &from, &to);
            const auto element = [&](const std::vector<char> &of, std::int64_t at) -> long double {
                return oracle::widen(dtype,
                                     oracle::read_word(dtype, of.data() + at * oracle::element_bytes(dtype)));
            };
            const long double x0 = element(x, 0), x1 = element(x, 1);
            const long double c = halyard::read_word<float>(row.data()), s = halyard::read_word<float>(row.data() + 4);
            if (!std::isfinite(x0) || !std::isfinite(x1) || !std::isfinite(c) || !std::isfinite(s)) {
                continue;
            }
            const auto exact = oracle::rotate_exactly({x0, x1}, c, s);
            const auto is_far = [&](long double got, long double want, long double magnitude) {
                return magnitude * (1 + 0x1p-22L) < oracle::overflow_threshold(dtype) &&  // else it may overflow
                       !(std::fabs(got - want) <= oracle::kernel_bound(dtype, magnitude, want));
            };
            n_far += is_far(element(y, 0), exact.x0, std::fabs(x0 * c) + std::fabs(x1 * s)) ||
                     is_far(element(y, 1), exact.x1, std::fabs(x1 * c) + std::fabs(x0 * s));
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

// ---- Reductions ----------------------------------------------------------------------------------------------------

TEST_CASE("stage kernels: largest and range pass over NaN and infinities, and zeros have no sign", "[stages]") {
    constexpr std::int32_t n = 64, n_heads = 5;
    std::vector<float> heads(n_heads * n, NAN), largest(n_heads), least(n_heads), greatest(n_heads);
    const auto head = [&](std::int64_t i) { return heads.begin() + i * n; };
    *(head(0) + 5) = -7.5f;
    *(head(0) + 40) = -7.0f;
    std::fill_n(head(1), n, -INFINITY);
    *(head(2) + n - 1) = -0x1p-149f;
    *(head(2) + 1) = INFINITY;
    std::fill_n(head(3), n, -0.0f);
    *head(4) = 0x1.fffffep127f;
    *(head(4) + 2) = -0.0f;
    halyard_dimension dims[] = {{0, n, 1, 0}, {0, n_heads, n, 0}, {0, 1, n * n_heads, 0}};
    halyard_dimension of_heads[] = {{0, n_heads, 1, 0}, {0, 1, n_heads, 0}};
    const auto buffer = [](std::vector<float> &floats, halyard_dimension *of) {
        return halyard_buffer{0, nullptr, reinterpret_cast<std::uint8_t *>(floats.data()), 0, 0, 0, of, nullptr};
    };
    halyard_buffer x = buffer(heads, dims), of_largest = buffer(largest, of_heads), of_least = buffer(least, of_heads),
                   of_greatest = buffer(greatest, of_heads);
    for (const StageKernels &kernels : stage_kernels_here()) {
        kernels.largest[0](&x, &of_largest);
        kernels.range[0](&x, &of_least, &of_greatest);
        CHECK(largest == std::vector<float>{7.5f, 0.0f, 0x1p-149f, 0.0f, 0x1.fffffep127f});
        CHECK(least == std::vector<float>{-7.5f, 0.0f, -0x1p-149f, 0.0f, 0.0f});
        CHECK(greatest == std::vector<float>{-7.0f, 0.0f, -0x1p-149f, 0.0f, 0x1.fffffep127f});
        const auto has_sign = [](float end) { return end == 0.0f && std::signbit(end); };
        CHECK(std::none_of(least.begin(), least.end(), has_sign));
        CHECK(std::none_of(greatest.begin(), greatest.end(), has_sign));
    }
}

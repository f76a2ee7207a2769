// Conversions from float to each dtype and back: each target's kernels, and the kernel model, are compared with the
// oracle, which searches among all values of a dtype.
#include "checks/kernel_model.h"
#include "checks/oracle.h"

#include <catch2/catch_test_macros.hpp>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

using halyard::StageKernels;

namespace {

constexpr std::int32_t dtypes[] = {HALYARD_F16, HALYARD_BF16, HALYARD_E4M3, HALYARD_E5M2, HALYARD_INT8};

/// Calls check(kernels) with the stage kernels of every target that this machine supports, and with the model's.
template <typename Check>
void for_all_kernels(Check check) {
    check(model::stage_kernels);
    for (std::int32_t i = 0; i < halyard::n_targets; i++) {
        const halyard::TargetSet target = halyard::supported_targets() & halyard::bit(halyard::Target(i));
        if (const StageKernels *const kernels = halyard::find_stage_kernels(target)) {
            INFO(halyard::name_of(kernels->target));
            check(*kernels);
        }
    }
}

/// Checks the conversion of floats by all kernels. In 16-bit dtypes any NaN is right.
void check_narrow(std::int32_t dtype, const std::vector<float> &values) {
    const std::int64_t bytes = oracle::element_bytes(dtype);
    std::vector<std::uint32_t> nearest;
    for (const float value : values) {
        nearest.push_back(oracle::narrow(dtype, value));
    }
    std::vector<char> elements(values.size() * sizeof(float));
    for_all_kernels([&](const StageKernels &kernels) {
        halyard::narrow(kernels, halyard::Dtype(dtype), {std::ssize(values), 1, 1}, {values.data(), {1, 0, 0}},
                        halyard::one, {elements.data(), {1, 0, 0}});
        for (std::size_t i = 0; i < values.size(); i++) {
            const std::uint32_t word = oracle::read_word(dtype, elements.data() + static_cast<std::int64_t>(i) * bytes);
            if (word != nearest[i] && !(std::isnan(values[i]) && bytes == 2 && oracle::is_nan(dtype, word))) {
                CAPTURE(dtype, values[i], std::bit_cast<std::uint32_t>(values[i]), word, nearest[i]);
                FAIL("is rounded wrongly");
            }
        }
    });
}

}  // namespace

// Tests floats with each value of the upper 16 bits and some lower 16 bits. Also tests each value of the dtype, each
// midpoint between two of these values, and the floats next to values and midpoints, of both signs.
TEST_CASE("conversions: floats are rounded to the nearest element of every dtype, on every target", "[stages]") {
    for (const std::int32_t dtype : dtypes) {
        std::vector<float> values;
        for (std::uint32_t upper = 0; upper < 0x10000; upper++) {
            for (const std::uint32_t lower : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
                values.push_back(std::bit_cast<float>(upper << 16 | lower));
            }
        }
        const auto threshold = static_cast<float>(oracle::overflow_threshold(dtype));
        for (std::uint32_t word = 0; word < 1u << (8 * oracle::element_bytes(dtype) - 1); word++) {
            const float value = oracle::widen(dtype, word), next = oracle::widen(dtype, word + 1);
            for (const float at : {value, (value + next) / 2, threshold}) {
                for (const float near : {at, std::nextafter(at, 0.0f), std::nextafter(at, INFINITY)}) {
                    values.push_back(near);
                    values.push_back(-near);
                }
            }
        }
        check_narrow(dtype, values);
    }
}

TEST_CASE("conversions: every element of 16 and 8 bits is widened exactly, on every target", "[stages]") {
    for (const std::int32_t dtype : dtypes) {
        const std::int64_t bytes = oracle::element_bytes(dtype), n = std::int64_t{1} << 8 * bytes;
        std::vector<char> elements(static_cast<std::size_t>(n * bytes));
        std::vector<float> values(static_cast<std::size_t>(n));
        for (std::int64_t i = 0; i < n; i++) {
            oracle::write_word(dtype, elements.data() + i * bytes, static_cast<std::uint32_t>(i));
        }
        for_all_kernels([&](const StageKernels &kernels) {
            halyard::widen(kernels, halyard::Dtype(dtype), {n, 1, 1}, {elements.data(), {1, 0, 0}},
                           {values.data(), {1, 0, 0}});
            int n_wrong = 0;
            for (std::uint32_t i = 0; i < n; i++) {
                const float exact = oracle::widen(dtype, i);
                n_wrong += std::bit_cast<std::uint32_t>(values[i]) != std::bit_cast<std::uint32_t>(exact) &&
                           !(std::isnan(exact) && std::isnan(values[i]));
            }
            CAPTURE(dtype);
            CHECK(n_wrong == 0);
        });
    }
}

TEST_CASE("conversions: the oracle has the numbers of the formats", "[stages]") {
    constexpr float nan = std::numeric_limits<float>::quiet_NaN(), most = std::numeric_limits<float>::max();
    const struct {
        std::int32_t dtype;
        std::uint32_t word;
        float value, rounded;  // the word's value, and a float that is rounded to the word
    } rows[] = {{HALYARD_E4M3, 0x7e, 448, INFINITY},
                {HALYARD_E4M3, 0xff, nan, -nan},
                {HALYARD_E4M3, 0x81, -0x1p-9f, -0x1p-9f},
                {HALYARD_E5M2, 0xfb, -57344, -INFINITY},
                {HALYARD_E5M2, 0x7e, nan, nan},
                {HALYARD_E5M2, 0x01, 0x1p-16f, 0x1p-16f},
                {HALYARD_INT8, 0x80, -128, -INFINITY},
                {HALYARD_INT8, 0x7f, 127, INFINITY},
                {HALYARD_INT8, 0xfe, -2, -2.5f},
                {HALYARD_INT8, 0x00, 0, nan},
                {HALYARD_F16, 0xc248, -3.140625f, -3.140625f},
                {HALYARD_F16, 0x7bff, 65504, 65519.996f},
                {HALYARD_F16, 0x7c00, INFINITY, 65520},
                {HALYARD_F16, 0x0000, 0, 0x1p-25f},
                {HALYARD_F16, 0x0001, 0x1p-24f, 0x1.000002p-25f},
                {HALYARD_BF16, 0x4049, 3.140625f, 3.140625f},
                {HALYARD_BF16, 0x0001, 0x1p-133f, 0x1p-133f},
                {HALYARD_BF16, 0x7f80, INFINITY, most}};
    for (const auto &[dtype, word, value, rounded] : rows) {
        CAPTURE(dtype, word);
        const float is = oracle::widen(dtype, word);
        CHECK((is == value || (std::isnan(is) && std::isnan(value))));
        CHECK(oracle::narrow(dtype, rounded) == word);
    }
    CHECK(oracle::widen(HALYARD_E5M2, 0x7c) == INFINITY);
    CHECK(oracle::overflow_threshold(HALYARD_F16) == 65520.0L);
    CHECK(oracle::half_ulp(HALYARD_F16, 1.0L) == 0x1p-11L);
    CHECK(oracle::half_ulp(HALYARD_F32, 1.5L) == 0x1p-24L);
    CHECK(oracle::half_ulp(HALYARD_BF16, 0.0L) == 0x1p-134L);
}

// Hidden, because it takes half an hour: run it once on each kind of machine. See tests/README.md.
TEST_CASE("exhaustive: every float to every dtype, on every target", "[.exhaustive]") {
    std::vector<float> values(1 << 16);
    for (const std::int32_t dtype : dtypes) {
        for (std::uint32_t upper = 0; upper < 0x10000; upper++) {
            for (std::uint32_t lower = 0; lower < 0x10000; lower++) {
                values[lower] = std::bit_cast<float>(upper << 16 | lower);
            }
            check_narrow(dtype, values);
        }
    }
}

// How floats are rounded to each dtype, and elements widened: kernels of every target and the model, against the
// oracle, which searches among all values of a dtype.
#include "checks/model.h"
#include "checks/oracle.h"
#include "kv/stage_kernels.h"

#include <catch2/catch_test_macros.hpp>

#include <bit>
#include <cmath>
#include <cstdio>
#include <limits>
#include <string>
#include <vector>

using halyard::Dtype;
using halyard::StageKernels;

namespace {

constexpr Dtype dtypes[] = {Dtype::f16, Dtype::bf16, Dtype::e4m3, Dtype::e5m2, Dtype::int8};

constexpr std::int32_t number_of(Dtype dtype) { return static_cast<std::int32_t>(dtype); }

/// The stage kernels of every target that this machine has, and the model.
std::vector<StageKernels> stage_kernels_here() {
    std::vector<StageKernels> all = {model::stage_kernels};
    for (std::int32_t i = 0; i < halyard::n_targets; i++) {
        const halyard::TargetSet target = halyard::supported_targets() & halyard::bit(halyard::Target(i));
        if (const StageKernels *const kernels = halyard::find_stage_kernels(target)) {
            all.push_back(*kernels);
        }
    }
    return all;
}

/// Rounds floats by the kernel of each target, without a scale. The first that is rounded wrongly, in words: another
/// NaN of 16 bits is right, too.
std::string fault_of_narrow(Dtype dtype, const std::vector<float> &values) {
    const float one = 1;
    const auto n = static_cast<std::int64_t>(values.size());
    std::vector<std::uint32_t> nearest(values.size());
    std::vector<char> words(values.size() * sizeof(float));
    std::transform(values.begin(), values.end(), nearest.begin(),
                   [=](float value) { return oracle::narrow(number_of(dtype), value); });
    for (const StageKernels &kernels : stage_kernels_here()) {
        halyard::narrow(kernels, dtype, {n, 1, 1}, {values.data(), {1, n, n}}, {&one, {0, 0, 0}},
                        {words.data(), {1, n, n}});
        for (std::size_t i = 0; i < values.size(); i++) {
            const std::uint32_t word = oracle::read_word(
                number_of(dtype), words.data() + i * static_cast<std::size_t>(halyard::element_bytes(dtype)));
            if (word != nearest[i] &&
                !(std::isnan(values[i]) && !halyard::is_8_bit(dtype) && oracle::is_nan(number_of(dtype), word))) {
                char text[200];
                std::snprintf(text, sizeof(text), "%s of %s: %a (%08x) becomes %x, not %x", halyard::name_of(dtype),
                              halyard::name_of(kernels.target), static_cast<double>(values[i]),
                              std::bit_cast<std::uint32_t>(values[i]), word, nearest[i]);
                return text;
            }
        }
    }
    return "";
}

}  // namespace

// Every upper half with some lower halves, and all values of the dtype and the middles between them with their
// neighbours, of both signs.
TEST_CASE("conversions: floats are rounded to the nearest element of every dtype, on every target", "[stages]") {
    for (const Dtype dtype : dtypes) {
        std::vector<float> values;
        for (std::uint32_t upper = 0; upper < 0x10000; upper++) {
            for (const std::uint32_t lower : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
                values.push_back(std::bit_cast<float>(upper << 16 | lower));
            }
        }
        const std::uint32_t sign = 1u << (8 * halyard::element_bytes(dtype) - 1);
        const auto threshold = static_cast<float>(oracle::overflow_threshold(number_of(dtype)));
        for (std::uint32_t word = 0; word < sign; word++) {
            const float value = oracle::widen(number_of(dtype), word), next = oracle::widen(number_of(dtype), word + 1);
            for (const float at : {value, (value + next) / 2, threshold}) {
                for (const float near : {at, std::nextafter(at, 0.0f), std::nextafter(at, INFINITY)}) {
                    values.push_back(near);
                    values.push_back(-near);
                }
            }
        }
        CHECK(fault_of_narrow(dtype, values) == "");
    }
}

TEST_CASE("conversions: every element of 16 and 8 bits is widened exactly, on every target", "[stages]") {
    std::vector<std::uint16_t> words(0x10000);
    std::vector<std::uint8_t> bytes(0x10000);
    for (std::size_t i = 0; i < words.size(); i++) {
        words[i] = static_cast<std::uint16_t>(i);
        bytes[i] = static_cast<std::uint8_t>(i);
    }
    std::vector<float> values(words.size());
    for (const Dtype dtype : dtypes) {
        const bool is_8_bit = halyard::is_8_bit(dtype);
        const char *const elements =
            is_8_bit ? reinterpret_cast<const char *>(bytes.data()) : reinterpret_cast<const char *>(words.data());
        for (const StageKernels &kernels : stage_kernels_here()) {
            halyard::widen(kernels, dtype, {0x10000, 1, 1}, {elements, {1, 0, 0}}, {values.data(), {1, 0, 0}});
            int n_wrong = 0;
            for (std::size_t i = 0; i < words.size(); i++) {
                const float exact = oracle::widen(number_of(dtype), is_8_bit ? bytes[i] : words[i]);
                n_wrong += std::bit_cast<std::uint32_t>(values[i]) != std::bit_cast<std::uint32_t>(exact) &&
                           !(std::isnan(exact) && std::isnan(values[i]));
            }
            INFO(halyard::name_of(dtype) << " of " << halyard::name_of(kernels.target));
            CHECK(n_wrong == 0);
        }
    }
}

TEST_CASE("conversions: the oracle has the numbers of the formats", "[stages]") {
    using oracle::narrow, oracle::widen;
    CHECK(widen(HALYARD_E4M3, 0x7e) == 448);
    CHECK(std::isnan(widen(HALYARD_E4M3, 0x7f)));
    CHECK(widen(HALYARD_E4M3, 0x81) == -0x1p-9f);
    CHECK(widen(HALYARD_E5M2, 0x7b) == 57344);
    CHECK(widen(HALYARD_E5M2, 0x7c) == INFINITY);
    CHECK(widen(HALYARD_E5M2, 0x01) == 0x1p-16f);
    CHECK(widen(HALYARD_F16, 0xc248) == -3.140625f);
    CHECK(widen(HALYARD_BF16, 0x4049) == 3.140625f);
    CHECK(widen(HALYARD_BF16, 0x0001) == 0x1p-133f);
    const float most = std::numeric_limits<float>::max();
    const struct {
        std::int32_t dtype;
        float value;
        std::uint32_t word;
    } rows[] = {{HALYARD_E4M3, INFINITY, 0x7e},  {HALYARD_E5M2, -INFINITY, 0xfb}, {HALYARD_E4M3, -NAN, 0xff},
                {HALYARD_E5M2, NAN, 0x7e},       {HALYARD_INT8, -INFINITY, 0x80}, {HALYARD_INT8, INFINITY, 0x7f},
                {HALYARD_INT8, -2.5f, 0xfe},     {HALYARD_INT8, NAN, 0},          {HALYARD_F16, 65519.996f, 0x7bff},
                {HALYARD_F16, 65520.0f, 0x7c00}, {HALYARD_F16, 0x1p-25f, 0},      {HALYARD_F16, 0x1.000002p-25f, 1},
                {HALYARD_BF16, most, 0x7f80}};
    for (const auto &row : rows) {
        CAPTURE(row.dtype, row.value);
        CHECK(narrow(row.dtype, row.value) == row.word);
    }
    CHECK(oracle::overflow_threshold(HALYARD_F16) == 65520.0L);
    CHECK(oracle::half_ulp(HALYARD_F16, 1.0L) == 0x1p-11L);
    CHECK(oracle::half_ulp(HALYARD_F32, 1.5L) == 0x1p-24L);
    CHECK(oracle::half_ulp(HALYARD_BF16, 0.0L) == 0x1p-134L);
}

// Hidden: it takes half an hour, and is run once for a machine. See tests/README.md.
TEST_CASE("exhaustive: every float to every dtype, on every target", "[.exhaustive]") {
    std::vector<float> values(1 << 16);
    for (const Dtype dtype : dtypes) {
        for (std::uint32_t upper = 0; upper < 0x10000; upper++) {
            for (std::uint32_t lower = 0; lower < 0x10000; lower++) {
                values[lower] = std::bit_cast<float>(upper << 16 | lower);
            }
            REQUIRE(fault_of_narrow(dtype, values) == "");
        }
    }
}

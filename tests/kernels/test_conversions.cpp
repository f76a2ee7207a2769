// How floats are rounded to each dtype, and elements widened: kernels of every target and the model,
// against tables of all values.
#include "checks/nearest.h"
#include "checks/oracle.h"
#include "kernels/stage_kernels_here.h"
#include "kv/convert.h"

#include <catch2/catch_test_macros.hpp>

#include <bit>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

using halyard::Dtype;
using halyard::StageKernels;
using oracle::Nearest;

namespace {

constexpr Dtype dtypes[] = {Dtype::f16, Dtype::bf16, Dtype::e4m3, Dtype::e5m2, Dtype::int8};

std::uint32_t word_at(Dtype dtype, const std::vector<char> &words, std::size_t i) {
    return oracle::read_word(static_cast<std::int32_t>(dtype),
                             words.data() + i * static_cast<std::size_t>(halyard::element_bytes(dtype)));
}

/// Rounds floats by a target's kernel, without a scale.
void narrow(const StageKernels &kernels, Dtype dtype, const std::vector<float> &values, std::vector<char> &words) {
    const float one = 1;
    const auto n = static_cast<std::int64_t>(values.size());
    words.resize(values.size() * sizeof(float));
    halyard::narrow(kernels, dtype, {n, 1, 1}, {values.data(), {1, n, n}}, {&one, {0, 0, 0}},
                    {words.data(), {1, n, n}});
}

/// The first value that is rounded wrongly, in words.
std::string fault_of_narrow(const StageKernels &kernels, Dtype dtype, const std::vector<float> &values) {
    const Nearest nearest(static_cast<std::int32_t>(dtype));
    std::vector<char> words;
    narrow(kernels, dtype, values, words);
    for (std::size_t i = 0; i < values.size(); i++) {
        const std::uint32_t word = word_at(dtype, words, i);
        if (!nearest.is_right(values[i], word)) {
            char text[200];
            std::snprintf(text, sizeof(text), "%s of %s: %a (%08x) becomes %x, not %x", halyard::name_of(dtype),
                          halyard::name_of(kernels.target), static_cast<double>(values[i]),
                          std::bit_cast<std::uint32_t>(values[i]), word, nearest.word_of(values[i]));
            return text;
        }
    }
    return "";
}

/// Every upper half with some lower halves, and for a dtype all its values and the middles between them with their
/// neighbours, of both signs.
std::vector<float> sample_for(Dtype dtype) {
    std::vector<float> values;
    for (std::uint32_t upper = 0; upper < 0x10000; upper++) {
        for (const std::uint32_t lower : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
            values.push_back(std::bit_cast<float>(upper << 16 | lower));
        }
    }
    const Nearest nearest(static_cast<std::int32_t>(dtype));
    for (const std::vector<double> &list : {nearest.values(), nearest.middles()}) {
        for (const double value : list) {
            const auto at = static_cast<float>(value);
            for (const float near : {at, std::nextafter(at, 0.0f), std::nextafter(at, INFINITY)}) {
                values.push_back(near);
                values.push_back(-near);
            }
        }
    }
    return values;
}

}  // namespace

TEST_CASE("conversions: floats are rounded to the nearest element of every dtype, on every target", "[stages]") {
    for (const Dtype dtype : dtypes) {
        const std::vector<float> sample = sample_for(dtype);
        for (const StageKernels &kernels : stage_kernels_here()) {
            CHECK(fault_of_narrow(kernels, dtype, sample) == "");
        }
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
    for (const Dtype dtype : {Dtype::f16, Dtype::bf16, Dtype::e4m3, Dtype::e5m2, Dtype::int8}) {
        const Nearest nearest(static_cast<std::int32_t>(dtype));  // of 8 bits it does not know infinities that are read
        const bool is_8_bit = halyard::is_8_bit(dtype);
        const char *const elements =
            is_8_bit ? reinterpret_cast<const char *>(bytes.data()) : reinterpret_cast<const char *>(words.data());
        for (const StageKernels &kernels : stage_kernels_here()) {
            halyard::widen(kernels, dtype, {0x10000, 1, 1}, {elements, {1, 0, 0}}, {values.data(), {1, 0, 0}});
            int n_wrong = 0;
            for (std::size_t i = 0; i < words.size(); i++) {
                const double exact =
                    is_8_bit ? static_cast<double>(oracle::decode(static_cast<std::int32_t>(dtype), bytes[i]))
                             : nearest.value_of(words[i]);
                const bool same = std::isnan(exact) ? std::isnan(values[i])
                                                    : static_cast<double>(values[i]) == exact &&
                                                          std::signbit(values[i]) == std::signbit(exact);
                n_wrong += same ? 0 : 1;
            }
            INFO(halyard::name_of(dtype) << " of " << halyard::name_of(kernels.target));
            CHECK(n_wrong == 0);
        }
    }
}

TEST_CASE("conversions: the tables are those of the formats", "[stages]") {
    const Nearest e4m3(HALYARD_E4M3), e5m2(HALYARD_E5M2), int8(HALYARD_INT8), f16(HALYARD_F16), bf16(HALYARD_BF16);
    CHECK(e4m3.value_of(0x7e) == 448);
    CHECK(std::isnan(e4m3.value_of(0x7f)));
    CHECK(e4m3.value_of(0x81) == -0x1p-9);
    CHECK(e5m2.value_of(0x7b) == 57344);
    CHECK(e5m2.value_of(0x01) == 0x1p-16);
    CHECK(e4m3.word_of(INFINITY) == 0x7e);
    CHECK(e5m2.word_of(-INFINITY) == 0xfb);
    CHECK(e4m3.word_of(-NAN) == 0xff);
    CHECK(e5m2.word_of(NAN) == 0x7e);
    CHECK(int8.word_of(-INFINITY) == 0x80);
    CHECK(int8.word_of(INFINITY) == 0x7f);
    CHECK(int8.word_of(-2.5f) == 0xfe);
    CHECK(int8.word_of(NAN) == 0);
    CHECK(f16.value_of(0xc248) == -3.140625);
    CHECK(f16.word_of(65519.996f) == 0x7bff);
    CHECK(f16.word_of(65520.0f) == 0x7c00);
    CHECK(f16.word_of(0x1p-25f) == 0);
    CHECK(f16.word_of(0x1.000002p-25f) == 1);
    CHECK(bf16.value_of(0x4049) == 3.140625);
    CHECK(bf16.value_of(0x0001) == 0x1p-133);
    CHECK(bf16.word_of(std::numeric_limits<float>::max()) == 0x7f80);
    CHECK(oracle::overflow_threshold(HALYARD_F16) == 65520.0L);
    CHECK(oracle::half_ulp(HALYARD_F16, 1.0L) == 0x1p-11L);
    CHECK(oracle::half_ulp(HALYARD_F32, 1.5L) == 0x1p-24L);
    CHECK(oracle::half_ulp(HALYARD_BF16, 0.0L) == 0x1p-134L);
    // The oracle widens by arithmetic of its own.
    int n_wrong = 0;
    for (const Nearest *const nearest : {&f16, &bf16}) {
        const std::int32_t dtype = nearest == &f16 ? HALYARD_F16 : HALYARD_BF16;
        for (std::uint32_t word = 0; word < 0x10000; word++) {
            const double value = nearest->value_of(word);
            const float widened = oracle::widen(dtype, word);
            n_wrong += std::isnan(value) ? !oracle::is_nan(dtype, word) || !std::isnan(widened) : widened != value;
        }
    }
    CHECK(n_wrong == 0);
}

TEST_CASE("conversions: a table finds what is rounded wrongly", "[stages]") {
    StageKernels wrong = model::stage_kernels;
    wrong.narrow[halyard::index_of(Dtype::bf16)] = [](halyard_buffer *x, halyard_buffer *, halyard_buffer *y) {
        for (std::int32_t i = 0; i < x->dim[0].extent; i++) {  // ties go up
            const auto bits = reinterpret_cast<const std::uint32_t *>(x->host)[i];
            const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
            reinterpret_cast<std::uint16_t *>(y->host)[i] =
                static_cast<std::uint16_t>(is_nan ? 0x7fff : (bits + 0x8000u) >> 16);
        }
        return 0;
    };
    CHECK(fault_of_narrow(wrong, Dtype::bf16, sample_for(Dtype::bf16)).find("becomes") != std::string::npos);
}

// Hidden: it takes minutes, and is run once for a machine. See tests/README.md.
TEST_CASE("exhaustive: every float to every dtype, on every target", "[.exhaustive]") {
    constexpr std::uint32_t at_once = 1 << 16;
    std::vector<float> values(at_once);
    std::vector<char> words;
    for (const Dtype dtype : dtypes) {
        const Nearest nearest(static_cast<std::int32_t>(dtype));
        for (const StageKernels &kernels : stage_kernels_here()) {
            const auto start = std::chrono::steady_clock::now();
            std::uint64_t n_wrong = 0;
            std::uint32_t first_wrong = 0;
            for (const std::uint32_t sign : {0u, 0x80000000u}) {
                std::uint32_t magnitude = 0;  // never falls
                for (std::uint32_t first = 0; first < 0x80000000u; first += at_once) {
                    for (std::uint32_t i = 0; i < at_once; i++) {
                        values[i] = std::bit_cast<float>(sign | (first + i));
                    }
                    narrow(kernels, dtype, values, words);
                    for (std::uint32_t i = 0; i < at_once; i++) {
                        const std::uint32_t word = word_at(dtype, words, i);
                        bool right = false;
                        if (first + i > 0x7f800000u) {
                            right = nearest.is_right(values[i], word);
                        } else {
                            magnitude = nearest.magnitude_of(std::fabs(values[i]), magnitude);
                            right = word == nearest.with_sign(values[i], magnitude);
                        }
                        if (!right && n_wrong++ == 0) {
                            first_wrong = sign | (first + i);
                        }
                    }
                }
            }
            const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
            INFO("the first is " << std::hex << first_wrong);
            CHECK(n_wrong == 0);
            std::printf("%s of %s: 4294967296 floats, %llu wrong, %.0f s\n", halyard::name_of(dtype),
                        halyard::name_of(kernels.target), static_cast<unsigned long long>(n_wrong), seconds.count());
            std::fflush(stdout);
        }
    }
}

// Tests of the loops that set ceilings: what they do to every value.
#include "checks/oracle.h"
#include "halyard/halyard.h"
#include "rivals/ceiling.h"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>

using namespace halyard::bench;
using Of = CeilingLoop::Of;

namespace {

constexpr std::size_t n_words = 1 << 16;

/// 16-bit words, on a cache line.
struct alignas(64) Words {
    std::uint16_t word[n_words];
};

std::unique_ptr<Words> all_words() {
    auto words = std::make_unique<Words>();
    std::iota(std::begin(words->word), std::end(words->word), std::uint16_t(0));
    return words;
}

Rows rows_of(const Words &from, Words &to) {
    return {reinterpret_cast<const char *>(from.word), reinterpret_cast<char *>(to.word), 1, sizeof(Words),
            sizeof(Words)};
}

/// What a loop counts as the same, of words at even and odd places.
std::size_t count_differences(const CeilingLoop &loop, const Words &x, const Words &y) {
    const std::int32_t type = loop.of == Of::f16 ? HALYARD_F16 : HALYARD_BF16;
    std::size_t n = 0;
    for (std::size_t i = 0; i < n_words; i++) {
        const bool is_subnormal = loop.of == Of::bf16 && (x.word[i] & 0x7f80) == 0;
        const std::uint16_t expected = is_subnormal && !loop.keeps_subnormals ? x.word[i] & 0x8000 : x.word[i];
        // A product of floats has NaNs whose upper halves are not those of the words around them.
        const bool nan = oracle::is_nan(type, x.word[i]) && oracle::is_nan(type, y.word[i]);
        n += y.word[i] != expected && !nan;
    }
    return n;
}

}  // namespace

TEST_CASE("ceilings: every loop leaves every number as it is, in place and out of place") {
    CHECK(ceiling_loops().size() >= 2);
    const auto x = all_words();
    for (const CeilingLoop &loop : ceiling_loops()) {
        CAPTURE(loop.name);
        CHECK((loop.in_place || loop.out_of_place));
        for (const bool in_place : {false, true}) {
            if (in_place ? loop.in_place : loop.out_of_place) {
                auto y = in_place ? all_words() : std::make_unique<Words>();
                loop.run(rows_of(in_place ? *y : *x, *y));
                CHECK(count_differences(loop, *x, *y) == 0);
            }
        }
    }
}

TEST_CASE("ceilings: loops that convert round to nearest even") {
    const auto x = all_words();
    for (const CeilingLoop &loop : ceiling_loops()) {
        CAPTURE(loop.name);
        if (loop.scale == nullptr) {
            continue;
        }
        const std::int32_t type = loop.of == Of::f16 ? HALYARD_F16 : HALYARD_BF16;
        for (const float factor : {1.5f, 1.25f, 1.0f / 3.0f, -0x1.01p0f, 0x1.01p-9f}) {  // the first two make ties
            CAPTURE(factor);
            const auto y = std::make_unique<Words>();
            loop.scale(rows_of(*x, *y), factor);
            std::size_t n_wrong = 0;
            for (std::size_t i = 0; i < n_words; i++) {
                const float product = oracle::widen(type, x->word[i]) * factor;
                const bool is_subnormal = type == HALYARD_BF16 && std::fabs(product) < 0x1.02p-126f;
                const bool counts = std::isfinite(product) && (loop.keeps_subnormals || !is_subnormal);
                n_wrong += counts && y->word[i] != oracle::narrow(type, product);
            }
            CHECK(n_wrong == 0);
        }
    }
}

TEST_CASE("ceilings: loops touch their rows and nothing else") {
    for (const CeilingLoop &loop : ceiling_loops()) {
        CAPTURE(loop.name);
        for (const std::size_t n : {4, 12, 32, 36, 64, 100, 128, 256, 260, 512, 1028}) {
            CAPTURE(n);
            constexpr std::size_t n_rows = 3, stride = 1088;
            alignas(64) char x[n_rows * stride], y[n_rows * stride];
            std::memset(x, 0x41, sizeof(x));  // a normal number in every type
            std::memset(y, 0x42, sizeof(y));
            loop.run({x, loop.out_of_place ? y : x, n_rows, n, stride});
            const char *const result = loop.out_of_place ? y : x;
            for (std::size_t i = 0; i < sizeof(y); i++) {
                const char expected = loop.out_of_place && i % stride >= n ? 0x42 : 0x41;
                REQUIRE(result[i] == expected);
            }
        }
    }
}

// Roots and quotients are the nearest floats whatever the estimates that they are made from, as long as those are only
// a few ulps off: what kernels for OpenCL rely on. A CPU's own operations say what is right.
#include "base/nearest.h"

#include "checks/oracle.h"

#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>

#include <bit>
#include <cmath>
#include <cstdint>

namespace {

/// The arithmetic of nearest.h, with estimates that are some ulps off.
struct WrongBy {
    using Float = float;

    int ulps;

    static float fma(float a, float b, float c) { return std::fma(a, b, c); }
    static float times(float a, float b) { return a * b; }
    static float plus(float a, float b) { return a + b; }
    static float negate(float x) { return -x; }
    static float moved(float x, int n) {
        return std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) + static_cast<std::uint32_t>(n));
    }
    static float select(bool condition, float a, float b) { return condition ? a : b; }
    template <typename Body>
    static float let(float value, const Body &body) {
        return body(value);
    }
    float root_estimate(float x) const { return off(std::sqrt(x)); }
    float quotient_estimate(float a, float b) const { return off(a / b); }

private:
    float off(float x) const { return x > 0 && std::isfinite(x) ? moved(x, ulps) : x; }
};

bool same(float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); }

/// A float of any size that a sum of squares can have.
float any_positive(oracle::Random &random) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(random.bits() >> 33));
}

}  // namespace

TEST_CASE("nearest: roots and quotients from estimates that are up to 3 ulps off", "[road]") {
    oracle::Random random(Catch::getSeed());
    const float ends[] = {0.0f, 0x1p-149f, 0x1p-126f, 0x1p-40f, 1.0f, 0x1.fffffep0f, 0x1p127f, INFINITY, NAN};
    for (int ulps = -3; ulps <= 3; ulps++) {
        const WrongBy math = {ulps};
        for (int i = 0; i < 200000; i++) {
            float x = i < 9 ? ends[i] : any_positive(random);
            if (random.one_in(4)) {  // beside a square, whose root is on the edge between two floats or exact
                const float root = 0x1p-20f * static_cast<float>(random.in(1, 1 << 24));
                x = WrongBy::moved(root * root, static_cast<int>(random.in(-1, 1)));
            }
            INFO("seed " << Catch::getSeed() << ", " << x << ", estimates " << ulps << " ulps off");
            if (const float root = halyard::nearest_root(math, x); !same(root, std::sqrt(x))) {
                FAIL("the root is " << root << ", not " << std::sqrt(x));
            }
            const auto n = static_cast<float>(random.in(1, 2048));
            const float mean = x / n;
            const bool is_normal = !(mean < 0x1p-126f) || mean == 0.0f;
            if (const float made = halyard::nearest_quotient(math, x, n); is_normal && !same(made, mean)) {
                FAIL("divided by " << n << " it is " << made << ", not " << mean);
            }
            const float root = std::sqrt(x);
            if (const float made = halyard::nearest_quotient(math, 1.0f, root); root > 0 && !same(made, 1.0f / root)) {
                FAIL("1 divided by its root is " << made << ", not " << 1.0f / root);
            }
        }
    }
    SUCCEED();
}

TEST_CASE("nearest: an estimate that is further off is not mended", "[road]") {  // so the test above can fail
    const WrongBy math = {9};
    CHECK(halyard::nearest_root(math, 2.0f) != std::sqrt(2.0f));
    CHECK(halyard::nearest_quotient(math, 2.0f, 3.0f) != 2.0f / 3.0f);
}

// How far norms are off, on every target, and the order in which they sum.
#include "checks/nearest.h"
#include "checks/oracle.h"
#include "kernels/stage_kernels_here.h"
#include "walk/stages.h"

#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cmath>
#include <vector>

using halyard::Dtype;
using halyard::ElementStrides;
using halyard::Extents;
using halyard::StageKernels;
using halyard::Target;
using oracle::Random;

namespace {

/// In the order that kernel_abi.h states, written out.
float canonical_scale(const std::vector<float> &v, float eps) {
    float p[16];
    for (std::size_t i = 0; i < 16; i++) {
        p[i] = 0;
        for (std::size_t at = i; at < v.size(); at += 16) {
            p[i] = std::fma(v[at], v[at], p[i]);
        }
    }
    const float a[] = {p[0] + p[8],  p[1] + p[9],  p[2] + p[10], p[3] + p[11],
                       p[4] + p[12], p[5] + p[13], p[6] + p[14], p[7] + p[15]};
    const float sum = ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7]));
    const float mean = sum / static_cast<float>(v.size());
    const float root = std::sqrt(mean + eps);
    return 1.0f / root;
}

}  // namespace

TEST_CASE("norms: they are within their bound, and the portable loop keeps the order", "[stages]") {
    Random random(Catch::getSeed());
    const oracle::Nearest nearest_f16(HALYARD_F16), nearest_bf16(HALYARD_BF16);
    const auto rounded = [&](Dtype dtype, float value) {
        const oracle::Nearest &nearest = dtype == Dtype::f16 ? nearest_f16 : nearest_bf16;
        return static_cast<float>(nearest.value_of(nearest.word_of(value)));
    };
    const std::vector<StageKernels> all = stage_kernels_here();
    double worst = 0;
    for (int round = 0; round < 600; round++) {
        const std::int64_t n = round % 3 == 0 ? random.in(1, 600) : 16 * random.in(1, 32);
        const auto eps = round % 2 == 0 ? 1e-6f : 1e-5f;
        const float size = std::ldexp(1.0f, static_cast<int>(random.in(-12, 12)));
        std::vector<float> v, w;
        for (std::int64_t i = 0; i < n; i++) {
            v.push_back(static_cast<float>(random.unit()) * size);
            w.push_back(static_cast<float>(1 + random.unit()));
        }
        long double sum = 0;
        for (const float value : v) {
            sum += static_cast<long double>(value) * value;
        }
        const long double scale = 1 / std::sqrt(sum / n + eps);
        // Relative to the result: half of what sum, mean and eps round, then root, quotient and two products.
        const auto bound_of = [n](Target target) {
            const std::int64_t of_partial = (n + 15) / 16 * (target == Target::x86_sse41 ? 2 : 1);
            return (static_cast<long double>(of_partial + 4 + 2) / 2 + 4) * 0x1p-24L * 1.0001L;
        };
        const std::int32_t flags = static_cast<std::int32_t>(random.in(0, 3));
        const Dtype dtype = random.one_in(2) ? Dtype::f16 : Dtype::bf16;
        const float canonical = canonical_scale(v, eps);
        for (const StageKernels &kernels : all) {
            INFO(halyard::name_of(kernels.target) << ", " << n << " elements, rounding " << flags);
            const Extents extents = {n, 1, 1};
            const ElementStrides dense = {1, n, n};
            std::vector<float> normed = v;
            normalise(kernels, {eps, w.data(), 0, 0, Dtype::f32}, extents, {normed.data(), dense});
            std::vector<float> coarse = v;
            normalise(kernels, {eps, w.data(), 0, flags, dtype}, extents, {coarse.data(), dense});
            std::int64_t n_far = 0, n_other = 0;
            for (std::size_t i = 0; i < v.size(); i++) {
                const long double exact = v[i] * scale * w[i];
                const long double off = std::fabs(normed[i] - exact);
                n_far += off <= bound_of(kernels.target) * std::fabs(exact) + 0x1p-149L ? 0 : 1;
                worst = std::max(worst, static_cast<double>(off / (std::fabs(exact) * 0x1p-23L + 0x1p-149L)));
                float value = v[i] * canonical;
                n_other += normed[i] == value * w[i] ? 0 : 1;
                value = (flags & halyard::round_before_weight) != 0 ? rounded(dtype, value) : value;
                value *= w[i];
                value = (flags & halyard::round_after_weight) != 0 ? rounded(dtype, value) : value;
                n_other += coarse[i] == value ? 0 : 1;
            }
            CHECK(n_far == 0);
            if (kernels.target != Target::x86_sse41) {
                CHECK(n_other == 0);
            }
        }
    }
    WARN("norms: the greatest error is " << worst << " eps of the result");
}

TEST_CASE("norms: zeros, and sums that overflow", "[stages]") {
    for (const StageKernels &kernels : stage_kernels_here()) {
        const std::vector<float> ones(128, 1.0f);
        const auto normed = [&](float value, float eps) {
            std::vector<float> head(128, value);
            normalise(kernels, {eps, ones.data(), 0, 0, Dtype::f32}, {128, 1, 1}, {head.data(), {1, 128, 128}});
            return head[77];
        };
        CHECK(normed(1e30f, 1e-6f) == 0.0f);
        CHECK(std::isnan(normed(0.0f, 0.0f)));
        CHECK(normed(0.0f, 1e-6f) == 0.0f);
        CHECK(std::isnan(normed(INFINITY, 1e-6f)));
        CHECK(std::isnan(normed(NAN, 1e-6f)));
        CHECK(std::fabs(normed(3.0f, 0.0f) - 1.0f) <= 0x1p-20f);
    }
}

// How far norms are off, on every target, and the order in which they sum.
#include "checks/nearest.h"
#include "checks/oracle.h"
#include "kernels/stage_kernels_here.h"

#include "halyard/halyard_kv.h"

#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

using halyard::Dtype;
using halyard::StageKernels;
using oracle::Random;

namespace {

/// Norms a head by the kernel, in place. Its bias is NULL of an RMS norm.
void normalise(const StageKernels &kernels, float eps, const std::vector<float> &weight, const std::vector<float> *bias,
               std::vector<float> &head, std::int32_t rounding = 0, Dtype dtype = Dtype::f32) {
    std::vector<float> operands[] = {head, weight, bias == nullptr ? head : *bias};
    halyard_dimension dims[3] = {{0, static_cast<std::int32_t>(head.size()), 1, 0}, {0, 1, 0, 0}, {0, 1, 0, 0}};
    halyard_buffer buffers[3] = {};
    for (int i = 0; i < 3; i++) {
        buffers[i].host = reinterpret_cast<std::uint8_t *>(operands[i].data());
        buffers[i].dim = dims;
    }
    const std::size_t to = halyard::index_of(dtype);
    if (bias == nullptr) {
        kernels.norm[to](&buffers[1], eps, rounding, &buffers[0], &buffers[0]);
    } else {
        kernels.layer_norm[to](&buffers[1], eps, rounding, &buffers[2], &buffers[0], &buffers[0]);
    }
    head = operands[0];
}

/// The mean of what add(sum, element) adds up, in the order that kernel_abi.h states, written out.
template <typename Add>
float canonical_mean(const std::vector<float> &v, Add add) {
    float p[16];
    for (std::size_t i = 0; i < 16; i++) {
        p[i] = 0;
        for (std::size_t at = i; at < v.size(); at += 16) {
            p[i] = add(p[i], v[at]);
        }
    }
    const float a[] = {p[0] + p[8],  p[1] + p[9],  p[2] + p[10], p[3] + p[11],
                       p[4] + p[12], p[5] + p[13], p[6] + p[14], p[7] + p[15]};
    const float sum = ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7]));
    return sum / static_cast<float>(v.size());
}

float canonical_scale(const std::vector<float> &v, float eps) {
    const float mean = canonical_mean(v, [](float sum, float x) { return std::fma(x, x, sum); });
    const float root = std::sqrt(mean + eps);
    return 1.0f / root;
}

/// A norm of a head, exactly: of a layer where there are biases.
struct ExactNorm {
    std::vector<float> v, w, b;
    float eps;
    long double mean = 0, scale = 0, magnitude = 0;  // 1 / sqrt(...), and the mean of |v|

    ExactNorm(Random &random, std::vector<float> head, bool is_layer, float with_eps)
        : v(std::move(head)), eps(with_eps) {
        const auto count = static_cast<long double>(v.size());
        for (const float x : v) {
            w.push_back(static_cast<float>(1 + random.unit()));
            if (is_layer) {
                b.push_back(random.one_in(4) ? -0.0f : static_cast<float>(2 * random.unit()));
                mean += x / count;
                magnitude += std::fabs(x) / count;
            }
        }
        long double squares = 0;
        for (const float x : v) {
            squares += (x - mean) * (x - mean);
        }
        scale = 1 / std::sqrt(squares / count + eps);
    }
    long double normed(std::size_t i) const {
        return (v[i] - mean) * scale * w[i] + (b.empty() ? 0.0L : static_cast<long double>(b[i]));
    }
    /// What halyard.h says: half of what sum, mean and eps round, then root, quotient and two products; what the
    /// mean of a layer adds to that.
    long double bound(std::size_t i) const {
        const auto of_partial = static_cast<long double>((v.size() + 15) / 16);
        const long double z = std::fabs(v[i] - mean) * scale, of_rms = (of_partial + 6) / 2 + 4;
        long double units = of_rms * z * std::fabs(w[i]);
        if (!b.empty()) {
            units += 2 * z * std::fabs(w[i]) + std::fabs(normed(i)) +
                     (of_partial + 5) * magnitude * scale * (1 + z / 3) * std::fabs(w[i]);
        }
        return units * 0x1p-24L * (b.empty() ? 1.0001L : 1.001L) + 0x1p-149L;
    }
    /// Operation by operation. Rounds by `round` where flags say so.
    template <typename Round>
    std::vector<float> by_operations(std::int32_t flags, Round round) const {
        const float rounded_mean = b.empty() ? 0.0f : canonical_mean(v, [](float sum, float x) { return sum + x; });
        std::vector<float> y;
        for (const float x : v) {
            y.push_back(x - rounded_mean);
        }
        const float rounded_scale = canonical_scale(y, eps);
        for (std::size_t i = 0; i < y.size(); i++) {
            float value = y[i] * rounded_scale;
            value = (flags & HALYARD_NORM_ROUND_BEFORE_WEIGHT) != 0 ? round(value) : value;
            value *= w[i];
            value += b.empty() ? -0.0f : b[i];
            y[i] = (flags & HALYARD_NORM_ROUND_AFTER_WEIGHT) != 0 ? round(value) : value;
        }
        return y;
    }
};

/// Norms of random heads, of whose numbers those for a layer lie around some number.
void check_norms(bool is_layer) {
    Random random(Catch::getSeed());
    const oracle::Nearest nearest_f16(HALYARD_F16), nearest_bf16(HALYARD_BF16);
    double worst = 0;
    for (int round = 0; round < 600; round++) {
        const float arounds[] = {0.0f, 1.0f, -100.0f, 1e6f, 1e-3f};
        const float around = is_layer ? random.one_of(arounds) : 0.0f;
        const float size = is_layer ? 1.0f : std::ldexp(1.0f, static_cast<int>(random.in(-12, 12)));
        std::vector<float> head(static_cast<std::size_t>(round % 3 == 0 ? random.in(1, 600) : 16 * random.in(1, 32)));
        for (float &value : head) {
            value = around + static_cast<float>(random.unit()) * size;
        }
        const ExactNorm norm(random, head, is_layer, round % 2 == 0 ? 1e-5f : is_layer ? 1e-12f : 1e-6f);
        const auto flags = static_cast<std::int32_t>(random.in(0, 3));
        const Dtype dtype = random.one_in(2) ? Dtype::f16 : Dtype::bf16;
        const oracle::Nearest &nearest = dtype == Dtype::f16 ? nearest_f16 : nearest_bf16;
        const auto exactly = norm.by_operations(0, [](float value) { return value; });
        const auto coarsely = norm.by_operations(
            flags, [&](float value) { return static_cast<float>(nearest.value_of(nearest.word_of(value))); });
        for (const StageKernels &kernels : stage_kernels_here()) {
            INFO(halyard::name_of(kernels.target) << ", " << head.size() << " elements, rounding " << flags);
            const auto normed = [&](std::int32_t rounding, Dtype to) {
                std::vector<float> y = norm.v;
                normalise(kernels, norm.eps, norm.w, is_layer ? &norm.b : nullptr, y, rounding, to);
                return y;
            };
            const std::vector<float> y = normed(0, Dtype::f32);
            std::int64_t n_far = 0;
            for (std::size_t i = 0; i < y.size(); i++) {
                const long double off = std::fabs(y[i] - norm.normed(i)), bound = norm.bound(i);
                n_far += off <= bound ? 0 : 1;
                worst = std::max(worst, static_cast<double>(off / bound));
            }
            CHECK(n_far == 0);
            CHECK((y == exactly && normed(flags, dtype) == coarsely));
        }
    }
    WARN("norms" << (is_layer ? " of layers" : "") << ": the greatest error is " << worst << " of its bound");
}

}  // namespace

TEST_CASE("norms: they are within their bound, and keep the order", "[stages]") {
    check_norms(false);
}

TEST_CASE("norms: those of layers are within their bound, and keep the order", "[stages]") {
    check_norms(true);
}

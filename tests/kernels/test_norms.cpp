// How far norms of the model are off. test_kernels.cpp shows that all targets have its bits.
#include "checks/model.h"
#include "checks/oracle.h"

#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

using oracle::Random;

namespace {

/// Norms a head, in place. Its bias is NULL of an RMS norm.
void normalise(float eps, const std::vector<float> &weight, const std::vector<float> *bias, std::vector<float> &head) {
    std::vector<float> operands[] = {head, weight, bias == nullptr ? head : *bias};
    halyard_dimension dims[3] = {{0, static_cast<std::int32_t>(head.size()), 1, 0}, {0, 1, 0, 0}, {0, 1, 0, 0}};
    halyard_buffer buffers[3] = {};
    for (int i = 0; i < 3; i++) {
        buffers[i].host = reinterpret_cast<std::uint8_t *>(operands[i].data());
        buffers[i].dim = dims;
    }
    if (bias == nullptr) {
        model::stage_kernels.norm[0](&buffers[1], eps, 0, &buffers[0], &buffers[0]);
    } else {
        model::stage_kernels.layer_norm[0](&buffers[1], eps, 0, &buffers[2], &buffers[0], &buffers[0]);
    }
    head = operands[0];
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
};

/// Norms of random heads, of whose numbers those for a layer lie around some number.
void check_norms(bool is_layer) {
    Random random(Catch::getSeed());
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
        INFO(head.size() << " elements");
        std::vector<float> y = norm.v;
        normalise(norm.eps, norm.w, is_layer ? &norm.b : nullptr, y);
        std::int64_t n_far = 0;
        for (std::size_t i = 0; i < y.size(); i++) {
            const long double off = std::fabs(y[i] - norm.normed(i)), bound = norm.bound(i);
            n_far += off <= bound ? 0 : 1;
            worst = std::max(worst, static_cast<double>(off / bound));
        }
        CHECK(n_far == 0);
    }
    WARN("norms" << (is_layer ? " of layers" : "") << ": the greatest error is " << worst << " of its bound");
}

}  // namespace

TEST_CASE("norms: they are within their bound", "[stages]") {
    check_norms(false);
}

TEST_CASE("norms: those of layers are within their bound", "[stages]") {
    check_norms(true);
}

// How far norms of the model are off, those of layers also far from 0. test_kernels.cpp shows that all targets have its
// bits.
#include "checks/model.h"
#include "checks/kv_oracle.h"

#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>

#include <cmath>
#include <vector>

TEST_CASE("norms: they are within their bound", "[stages]") {
    oracle::Random random(Catch::getSeed());
    for (int round = 0; round < 1200; round++) {
        constexpr float arounds[] = {0.0f, 1.0f, -100.0f, 1e6f, 1e-3f};
        oracle::KvPath path;
        path.n_heads = 1;
        path.head_dim = round % 3 == 0 ? random.in(1, 600) : 16 * random.in(1, 32);
        oracle::KvNorm &norm = path.norm.emplace();
        norm.layer = round % 2 == 0;
        norm.size = path.head_dim;
        const float eps = norm.layer && random.one_in(2) ? 1e-12f : 1e-6f;
        norm.eps = eps;
        const float around = norm.layer ? random.one_of(arounds) : 0.0f;
        const float size = norm.layer ? 1.0f : std::ldexp(1.0f, static_cast<int>(random.in(-12, 12)));
        std::vector<float> x, y(static_cast<std::size_t>(path.head_dim));
        for (std::int64_t i = 0; i < path.head_dim; i++) {
            x.push_back(around + static_cast<float>(random.unit()) * size);
            norm.weight.push_back(static_cast<float>(1 + random.unit()));
            norm.bias.push_back(!norm.layer || random.one_in(4) ? -0.0f : static_cast<float>(2 * random.unit()));
        }
        halyard_dimension dims[3] = {{0, static_cast<std::int32_t>(path.head_dim), 1, 0}, {0, 1, 0, 0}, {0, 1, 0, 0}};
        const auto buffer = [&](std::vector<float> &of) {
            return halyard_buffer{0, nullptr, reinterpret_cast<std::uint8_t *>(of.data()), 0, 0, 0, dims, nullptr};
        };
        halyard_buffer from = buffer(x), to = buffer(y), weight = buffer(norm.weight), bias = buffer(norm.bias);
        norm.layer ? model::stage_kernels.layer_norm[0](&weight, eps, 0, &bias, &from, &to)
                   : model::stage_kernels.norm[0](&weight, eps, 0, &from, &to);
        const oracle::KvValues exact = path_of_values(path, {x.begin(), x.end()}, {}, {});
        std::int64_t n_far = 0;
        for (std::size_t i = 0; i < y.size(); i++) {
            n_far += std::fabs(y[i] - exact.value[i]) <= exact.bound[i] ? 0 : 1;
        }
        CAPTURE(path.head_dim, norm.layer, around, size);
        CHECK(n_far == 0);
    }
}

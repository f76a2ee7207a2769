// How far rows of cos and sin are off, on one target: test_kernels.cpp shows that all have the same bits.
#include "data/golden.h"
#include "kernels/kernel_calls.h"

#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>

#include <cmath>
#include <string>

namespace {

constexpr double phase_bound = 1.2e-7;  // how far off cos and sin may be, times attention_factor

struct Greatest {
    double of_one = 0;  // the error of cos or sin, as a part of attention_factor
    double of_y = 0;    // how far off a rotated pair can be, in 2^-23 of its length

    void see(float cos, float sin, const ExactCosSin &exact, double factor) {
        const auto off_cos = std::fabs(static_cast<double>(cos - factor * exact.cos)) / factor;
        const auto off_sin = std::fabs(static_cast<double>(sin - factor * exact.sin)) / factor;
        // y0 = x0 cos - x1 sin is off by x0 off_cos - x1 off_sin, at most the length of x times that of both; and by
        // the roundings of x1 sin and of y0, each 2^-24: |x1 sin| + |y0| is at most sqrt(1 + 3 sin^2). y1 is alike.
        const double of_both = std::sqrt(off_cos * off_cos + off_sin * off_sin);
        const double sin_squared = static_cast<double>(exact.sin * exact.sin);
        const double y = 0x1p23 * of_both + 0.5 * std::sqrt(1 + 3 * sin_squared);
        // These comparisons also take a NaN.
        of_one = !(off_cos <= of_one) ? off_cos : of_one;
        of_one = !(off_sin <= of_one) ? off_sin : of_one;
        of_y = !(y <= of_y) ? y : of_y;
    }
};

/// Exact cos and sin, [positions, n_pairs]: worked out once for all factors.
std::vector<ExactCosSin> exact_rows(const std::vector<long double> &inv_freq,
                                    const std::vector<std::int32_t> &positions) {
    std::vector<ExactCosSin> exact;
    for (const std::int32_t position : positions) {
        for (const long double frequency : inv_freq) {
            exact.push_back(exact_cos_sin(frequency, position));
        }
    }
    return exact;
}

/// Calls see(cos, sin, exact) for each position and pair of rows, [positions, 2, n_pairs].
template <typename See>
void see_all(const std::vector<float> &rows, const std::vector<ExactCosSin> &exact, std::size_t n_pairs, See see) {
    REQUIRE(rows.size() == 2 * exact.size());
    for (std::size_t i = 0; i < exact.size(); i++) {
        const float *const cos = rows.data() + i / n_pairs * 2 * n_pairs + i % n_pairs;
        see(cos[0], cos[n_pairs], exact[i]);
    }
}

/// Looks at the rows of a phase source with each attention factor; `make` makes its frequencies.
template <typename Make>
void see_phase(const std::vector<std::int32_t> &positions, const std::vector<ExactCosSin> &exact, Make make,
               Greatest &greatest) {
    const auto at = positions_of(positions);
    for (const double factor : attention_factors) {
        const auto source =
            make_source(with_factor(make(), factor), HALYARD_ANGLES_PHASE, least_position, greatest_position);
        see_all(rows_of(source, &at, 1, std::ssize(positions)), exact, exact.size() / positions.size(),
                [&](float cos, float sin, const ExactCosSin &one) { greatest.see(cos, sin, one, factor); });
    }
}

}  // namespace

TEST_CASE("row errors: golden angles, every base, width and attention factor", "[rows][golden]") {
    const golden::Section section("angles");
    const auto golden_positions = section.array<std::int64_t>("positions").values;
    std::vector<std::int32_t> positions(golden_positions.begin(), golden_positions.end());
    for (const int shift : {15, 17, 20, 24, 30}) {
        positions.push_back(1 << shift);
        positions.push_back(-(1 << shift) + 1);
    }
    positions.push_back(least_position);
    Greatest greatest;
    for (const auto &entry : section.cases()) {
        INFO(entry.at("name").get<std::string>());
        const double base = entry.at("base");
        const std::int64_t rotary_dim = entry.at("d");
        const auto make = [&] { return halyard::frequencies::from_base(base, rotary_dim); };
        const auto exact = exact_rows(oracle::inv_freq_of(base, rotary_dim), positions);
        const auto cos = section.array<float>(entry.at("cos_f32")), sin = section.array<float>(entry.at("sin_f32"));
        std::int64_t n_off = 0;  // of the golden data, and of tables with a factor: both are the nearest floats
        const auto see = [&](float value, long double one) {
            n_off += std::fabs(value - one) <= oracle::half_ulp(HALYARD_F32, one) + 1e-9L ? 0 : 1;
        };
        for (std::size_t i = 0; i < cos.values.size(); i++) {
            see(cos.values[i], exact[i].cos);
            see(sin.values[i], exact[i].sin);
        }
        for (const double factor : attention_factors) {
            see_all(table_rows_at(with_factor(make(), factor), positions), exact,
                    static_cast<std::size_t>(rotary_dim / 2), [&](float c, float s, const ExactCosSin &one) {
                        see(c, factor * one.cos);
                        see(s, factor * one.sin);
                    });
        }
        CHECK(n_off == 0);
        see_phase(positions, exact, make, greatest);
    }
    CHECK(greatest.of_one <= phase_bound);
}

TEST_CASE("row errors: phase at random positions, and near the borders of octants", "[rows]") {
    Random random(Catch::getSeed());
    Greatest greatest;
    for (int round = 0; round < 64; round++) {
        const bool is_near = round % 4 != 0;  // of few positions, and all pairs near a border at 1 and -1
        std::vector<double> list(is_near ? 2048 : 128);
        for (std::size_t k = 0; k < list.size(); k++) {
            const double off = std::ldexp(random.unit(), -static_cast<int>(random.in(3, 34)));
            list[k] = is_near          ? 2 * std::acos(-1.0) * (static_cast<double>(random.in(0, 7)) / 8 + off)
                      : round % 8 == 0 ? std::pow(10000.0, -static_cast<double>(k) / 128) * (1 + random.unit() / 9)
                                       : random.unit() * std::exp2(static_cast<double>(random.in(-30, 2)));
        }
        std::vector<std::int32_t> positions = {1, -1};
        while (!is_near && positions.size() < 1024) {
            positions.push_back(random_position(random));
        }
        see_phase(
            positions, exact_rows({list.begin(), list.end()}, positions), [&] { return make_frequencies(list); },
            greatest);
    }
    WARN("greatest error " << greatest.of_one << ", so y is off by " << greatest.of_y << " eps at most");
    CHECK(greatest.of_one <= phase_bound);
    CHECK(greatest.of_y <= 2);
}

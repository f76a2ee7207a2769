// The accuracy of rows of cos and sin, on one target: test_kernels.cpp shows that all targets have the same bits.
#include "checks/make_sources.h"

#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>

namespace {

constexpr double phase_bound = 1.2e-7;  // the permitted error of cos and sin, relative to attention_factor

struct LargestErrors {
    double phase_error = 0;          // the largest error of phase's cos or sin, relative to attention_factor
    double y_error = 0;              // the largest possible error of a rotated element, in 2^-23 of its pair's length
    std::int64_t n_not_nearest = 0;  // how many of tables' cos and sin are not correctly rounded

    void update_phase_errors(float cos, float sin, const ExactCosSin &exact, double factor) {
        const auto off_cos = std::fabs(static_cast<double>(cos - factor * exact.cos)) / factor;
        const auto off_sin = std::fabs(static_cast<double>(sin - factor * exact.sin)) / factor;
        // The error of y0 = x0 cos - x1 sin has two parts. The errors of cos and sin give x0 off_cos - x1 off_sin, at
        // most hypot(x0, x1) * hypot(off_cos, off_sin). The roundings of x1 sin and of y0 give 2^-24 (|x1 sin| + |y0|),
        // at most 2^-24 sqrt(1 + 3 sin^2) for a pair of length 1. The same holds for y1.
        const double of_both = std::sqrt(off_cos * off_cos + off_sin * off_sin);
        const double sin_squared = static_cast<double>(exact.sin * exact.sin);
        const double y = 0x1p23 * of_both + 0.5 * std::sqrt(1 + 3 * sin_squared);
        // Written so that a NaN counts as an error.
        phase_error = !(off_cos <= phase_error) ? off_cos : phase_error;
        phase_error = !(off_sin <= phase_error) ? off_sin : phase_error;
        y_error = !(y <= y_error) ? y : y_error;
    }
    void count_if_not_nearest(float value, long double exact) {
        const bool is_nearest = std::fabs(value - exact) <= oracle::half_ulp(HALYARD_F32, exact) + 1e-9L;
        n_not_nearest += is_nearest ? 0 : 1;
    }
};

}  // namespace

TEST_CASE("row errors: phase at any position and near the borders of octants, and tables", "[rows]") {
    oracle::Random random(Catch::getSeed());
    LargestErrors greatest;
    for (int round = 0; round < 64; round++) {
        const bool is_near = round % 4 != 0;  // at positions 1 and -1 all angles are near a multiple of pi / 4
        std::vector<double> list(is_near ? 2048 : 128);
        for (double &inv_freq : list) {
            const double off = std::ldexp(random.unit(), -static_cast<int>(random.in(3, 34)));
            inv_freq = is_near ? 2 * std::acos(-1.0) * (static_cast<double>(random.in(0, 7)) / 8 + off)
                               : random.unit() * std::exp2(static_cast<double>(random.in(-30, 2)));
        }
        halyard::frequencies frequencies = make_frequencies(list);
        std::vector<long double> inv_freq(list.begin(), list.end());
        if (round % 8 == 0) {
            const double base = std::exp(random.unit() * 3 + 10);
            frequencies = halyard::frequencies::from_base(base, 256);
            inv_freq = oracle::inv_freq_of(base, 256);
        }
        std::vector<std::int32_t> positions = {1, -1};
        while (!is_near && positions.size() < 1024) {
            positions.push_back(random_position(random));
        }
        std::vector<ExactCosSin> exact;  // [positions, pairs]
        for (const std::int32_t position : positions) {
            for (const long double of_pair : inv_freq) {
                exact.push_back(exact_cos_sin(of_pair, position));
            }
        }
        const auto at = positions_of(positions);
        for (const double factor : attention_factors) {
            frequencies.get()->attention_factor = factor;
            const auto source = make_source(frequencies, HALYARD_ANGLES_PHASE, least_position, greatest_position);
            const auto rows = rows_of(source, &at, 1, std::ssize(positions)),
                       of_table = is_near ? table_rows_at(frequencies, positions) : std::vector<float>();
            for (std::size_t i = 0, n = inv_freq.size(); i < exact.size(); i++) {
                const std::size_t cos = i / n * 2 * n + i % n, sin = cos + n;
                greatest.update_phase_errors(rows[cos], rows[sin], exact[i], factor);
                if (is_near) {
                    greatest.count_if_not_nearest(of_table[cos], factor * exact[i].cos);
                    greatest.count_if_not_nearest(of_table[sin], factor * exact[i].sin);
                }
            }
        }
    }
    WARN("greatest error " << greatest.phase_error << ", so y is off by " << greatest.y_error << " eps at most");
    CHECK(greatest.phase_error <= phase_bound);
    CHECK(greatest.y_error <= 2);
    CHECK(greatest.n_not_nearest == 0);
}

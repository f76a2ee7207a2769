// How far rows of cos and sin are off.
#include "data/golden.h"
#include "kernels/kernel_calls.h"
#include "core/rotate.h"

#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>

#include <string>

TEST_CASE("row kernels: every target of kernels has them", "[rows]") {
    int index = 0;
    for (const halyard_target_info &info : halyard::targets()) {
        const auto target = static_cast<halyard::Target>(index++);
        if (info.built != 0) {
            INFO(info.name);
            const halyard::RowKernels kernels = halyard::select_row_kernels(halyard::bit(target));
            CHECK(kernels.target == target);
            CHECK((kernels.phase == nullptr) == (target == halyard::Target::reference));
        }
    }
    CHECK(halyard::select_row_kernels(0).target == halyard::Target::reference);
}

// ---- How far cos and sin are off -----------------------------------------------------------------------------------
// On one target: test_kernels.cpp shows that all have the same bits.

namespace {

constexpr double phase_bound = 1.2e-7;  // how far off cos and sin may be, times attention_factor

/// Exact cos and sin of position * turns, in units of 2^-64 turns; the product wraps in 64 bits.
ExactCosSin exact_of_turns(std::uint64_t turns, std::int32_t position) {
    const auto angle = static_cast<std::int64_t>(turns * static_cast<std::uint64_t>(std::int64_t{position}));
    const long double theta = static_cast<long double>(angle) * 0x1p-63L * std::acos(-1.0L);
    return {std::cos(theta), std::sin(theta)};
}

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

void check_greatest(const Greatest &greatest, double bound_of_one, double bound_of_y = INFINITY) {
    WARN("greatest error " << greatest.of_one << ", so y is off by " << greatest.of_y << " eps at most");
    CHECK(greatest.of_one <= bound_of_one);
    CHECK(greatest.of_y <= bound_of_y);
}

/// Compares rows, [positions, 2, n_pairs], with exact(i, k) of position i and pair k.
template <typename Exact>
void see_all(const std::vector<float> &rows, std::size_t n_pairs, double factor, Exact exact, Greatest &greatest) {
    for (std::size_t i = 0; i < rows.size() / (2 * n_pairs); i++) {
        for (std::size_t k = 0; k < n_pairs; k++) {
            const float *const cos = rows.data() + 2 * i * n_pairs + k;
            greatest.see(cos[0], cos[n_pairs], exact(i, k), factor);
        }
    }
}

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

auto in_order(const std::vector<ExactCosSin> &exact, std::size_t n_pairs) {
    return [&exact, n_pairs](std::size_t i, std::size_t k) { return exact[i * n_pairs + k]; };
}

}  // namespace

TEST_CASE("row errors: golden angles, every base, width and attention factor", "[rows][golden]") {
    const golden::Section section("angles");
    const auto golden_positions = section.array<std::int64_t>("positions").values;
    std::vector<std::int32_t> positions(golden_positions.begin(), golden_positions.end());
    const std::size_t n_golden = positions.size();
    for (const int shift : {15, 17, 20, 24, 30}) {
        positions.push_back(1 << shift);
        positions.push_back(-(1 << shift) + 1);
    }
    positions.push_back(least_position);
    const auto at = positions_of(positions);
    Greatest phase;
    for (const auto &entry : section.cases()) {
        INFO(entry.at("name").get<std::string>());
        const double base = entry.at("base");
        const std::int64_t rotary_dim = entry.at("d");
        const auto n_pairs = static_cast<std::size_t>(rotary_dim / 2);
        const auto exact = exact_rows(oracle::inv_freq_of(base, rotary_dim), positions);
        const auto cos = section.array<float>(entry.at("cos_f32")), sin = section.array<float>(entry.at("sin_f32"));
        std::int64_t n_wrong = 0;  // how often the oracle differs from the golden data
        for (std::size_t i = 0; i < n_golden * n_pairs; i++) {
            const auto agree = [](float golden, long double value) {
                return std::fabs(golden - value) <= oracle::half_ulp(HALYARD_F32, value) + 1e-9L;
            };
            n_wrong += agree(cos.values[i], exact[i].cos) && agree(sin.values[i], exact[i].sin) ? 0 : 1;
        }
        CHECK(n_wrong == 0);
        for (const double factor : attention_factors) {
            const auto frequencies = with_factor(halyard::frequencies::from_base(base, rotary_dim), factor);
            const auto by_phase = make_source(frequencies, HALYARD_ANGLES_PHASE, least_position, greatest_position);
            see_all(rows_of(by_phase, &at, 1, std::ssize(positions)), n_pairs, factor, in_order(exact, n_pairs), phase);
            // A table's values are the nearest, so within half an ulp; test_cos_sin.cpp checks their bits.
            const auto rows = table_rows_at(frequencies, positions);
            std::int64_t n_off = 0;
            for (std::size_t i = 0; i < positions.size(); i++) {
                for (std::size_t k = 0; k < n_pairs; k++) {
                    const auto [exact_cos, exact_sin] = exact[i * n_pairs + k];
                    for (const auto &[value, one] : {std::pair{rows[2 * i * n_pairs + k], factor * exact_cos},
                                                     std::pair{rows[(2 * i + 1) * n_pairs + k], factor * exact_sin}}) {
                        n_off += std::fabs(value - one) <= oracle::half_ulp(HALYARD_F32, one) + 1e-9L ? 0 : 1;
                    }
                }
            }
            CHECK(n_off == 0);
        }
    }
    check_greatest(phase, phase_bound);
}

TEST_CASE("row errors: phase at random positions of the whole range", "[rows]") {
    Random random(Catch::getSeed());
    constexpr std::size_t n_pairs = 128, n_positions = 1024;
    Greatest greatest;
    for (int round = 0; round < 16; round++) {
        std::vector<double> list;
        for (std::size_t k = 0; k < n_pairs; k++) {
            list.push_back(round % 2 == 0
                               ? std::pow(10000.0, -static_cast<double>(k) / n_pairs) * (1 + random.unit() / 9)
                               : random.unit() * std::exp2(static_cast<double>(random.in(-30, 2))));
        }
        std::vector<std::int32_t> positions;
        while (positions.size() < n_positions) {
            positions.push_back(random_position(random));
        }
        const auto exact = exact_rows({list.begin(), list.end()}, positions);
        const auto at = positions_of(positions);
        for (const double factor : attention_factors) {
            const auto frequencies = halyard::frequencies::from_list(list.data(), n_pairs, factor);
            const auto source = make_source(frequencies, HALYARD_ANGLES_PHASE, least_position, greatest_position);
            const auto rows = rows_of(source, &at, 1, n_positions);
            see_all(rows, n_pairs, factor, in_order(exact, n_pairs), greatest);
        }
    }
    check_greatest(greatest, phase_bound, 2);
}

TEST_CASE("row errors: phase near the borders of octants and quarters", "[rows]") {
    Random random(Catch::getSeed());
    constexpr std::size_t n_pairs = 2048, n_rounds = 100;
    Greatest greatest;
    std::vector<std::uint32_t> high(n_pairs), low(n_pairs);
    std::vector<float> rows(2 * n_pairs);
    for (std::size_t round = 0; round < n_rounds; round++) {
        const std::int32_t position = round % 2 == 0 ? 1 : -1;
        std::vector<ExactCosSin> exact;
        for (std::size_t k = 0; k < n_pairs; k++) {
            const std::uint64_t turns =
                (random.bits() << 61) +
                static_cast<std::uint64_t>(static_cast<std::int64_t>(random.bits()) >> random.in(4, 34));
            high[k] = static_cast<std::uint32_t>(turns >> 32);
            low[k] = static_cast<std::uint32_t>(turns);
            exact.push_back(exact_of_turns(turns, position));
        }
        for (const double factor : attention_factors) {
            const auto scale_high = static_cast<float>(factor), scale_low = static_cast<float>(factor - scale_high);
            halyard::phase_row_reference(position, {high.data(), low.data(), scale_high, scale_low}, n_pairs,
                                         rows.data(), rows.data() + n_pairs);
            see_all(rows, n_pairs, factor, in_order(exact, n_pairs), greatest);
        }
    }
    check_greatest(greatest, phase_bound, 2);
}

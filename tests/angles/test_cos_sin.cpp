// Cos and sin of tables: every value is correctly rounded.
#include "checks/make_sources.h"
#include "data/golden.h"
#include "frequencies/cos_sin.h"

#include <catch2/catch_test_macros.hpp>

#include <bit>
#include <climits>
#include <random>

using halyard::CosSin;

namespace {

std::uint32_t bits(float value) { return std::bit_cast<std::uint32_t>(value); }

bool same(CosSin a, CosSin b) { return bits(a.cos) == bits(b.cos) && bits(a.sin) == bits(b.sin); }

CosSin value_at(double inv_freq, double attention_factor, std::int32_t position) {
    CosSin value;
    halyard::make_row(*make_frequencies({inv_freq}, attention_factor).get(), position, &value.cos, &value.sin);
    return value;
}

}  // namespace

TEST_CASE("angles: tables hold the golden values at every position", "[angles]") {
    const golden::Section section("angles");
    const auto positions = section.array<std::int64_t>("positions");
    std::size_t n_checked = 0;
    for (const auto &entry : section.cases()) {
        const auto name = entry.at("name").get<std::string>();
        CAPTURE(name);
        const auto frequencies =
            halyard::frequencies::from_base(entry.at("base").get<double>(), entry.at("d").get<std::int64_t>());
        const auto inv_freq = section.array<double>(entry.at("inv_freq_f64").get<std::string>());
        const auto info = frequencies.info();
        REQUIRE(info.rotary_dim == entry.at("d").get<std::int64_t>());
        CHECK(info.attention_factor == 1.0);
        const auto n_pairs = inv_freq.values.size();
        CHECK(std::vector<double>(info.inv_freq, info.inv_freq + n_pairs) == inv_freq.values);

        const auto cos = section.array<float>(entry.at("cos_f32").get<std::string>());
        const auto sin = section.array<float>(entry.at("sin_f32").get<std::string>());
        const auto rows = table_rows_at(frequencies, positions.values);
        for (std::size_t i = 0; i < positions.values.size(); ++i) {
            for (std::size_t k = 0; k < n_pairs; ++k) {
                CAPTURE(positions.values[i], k);
                const CosSin expected = {cos.values[i * n_pairs + k], sin.values[i * n_pairs + k]};
                REQUIRE(same({rows[2 * i * n_pairs + k], rows[(2 * i + 1) * n_pairs + k]}, expected));
                REQUIRE(same(halyard::precise_cos_sin(*frequencies.get(), static_cast<std::int64_t>(k),
                                                      static_cast<std::int32_t>(positions.values[i])),
                             expected));
                ++n_checked;
            }
        }
    }
    CHECK(n_checked > 20000);
}

TEST_CASE("angles: the fast path agrees with the precise one", "[angles]") {
    const std::uint64_t seed = 20240607;
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    const auto uniform = [&](double low, double high) {
        return low + (high - low) * (static_cast<double>(random() >> 11) * 0x1p-53);
    };
    const double bases[] = {0.5, 2, 100, 10000, 500000, 1e6, 1e9};
    std::size_t n_settled = 0, n_wrong = 0;
    const int n_rounds = 500, n_each = 4400;
    for (int round = 0; round < n_rounds; ++round) {
        halyard::frequencies frequencies;
        if (round % 2 == 0) {
            frequencies =
                halyard::frequencies::from_base(bases[random() % 7], 2 * static_cast<std::int64_t>(1 + random() % 288));
            frequencies.get()->attention_factor = round % 4 == 0 ? 1.0 : std::exp2(uniform(-60, 60));
        } else {
            std::vector<double> inv_freq(64);
            for (double &value : inv_freq) {
                value = uniform(-1, 1) * std::exp2(std::floor(uniform(-60, 21)));
            }
            frequencies = make_frequencies(inv_freq, std::exp2(uniform(-60, 60)));
        }
        for (int i = 0; i < n_each; ++i) {
            const auto pair =
                static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(frequencies.get()->n_pairs));
            const auto shift = 32 + random() % 32;  // positions of all magnitudes alike
            const auto position = static_cast<std::int32_t>(static_cast<std::int64_t>(random()) >> shift);
            CosSin fast;
            if (halyard::try_cos_sin(*frequencies.get(), pair, position, &fast)) {
                ++n_settled;
                n_wrong += !same(fast, halyard::precise_cos_sin(*frequencies.get(), pair, position));
            }
        }
    }
    CHECK(n_wrong == 0);
    CHECK(n_settled > 2'000'000);
}

TEST_CASE("angles: what the fast path leaves open is settled right", "[angles]") {
    // Hard cases, found by search; their results were computed with mpmath.
    const struct {
        double base;
        std::int64_t pair;
        std::int32_t position;
        std::uint32_t cos, sin;
    } cases[] = {
        {10000, 22, 523358, 0xbf7da788, 0xbe0a4cd2},  {10000, 11, 819173, 0x3f6152b9, 0xbef306d3},
        {10000, 61, 924083, 0xbf18faad, 0xbf4d439e},  {10000, 9, 976115, 0xbecb257a, 0x3f6afcac},
        {500000, 27, 171621, 0xbed82994, 0xbf6810cd}, {500000, 52, 183499, 0xbece5c08, 0xbf6a4939},
        {500000, 58, 329120, 0xbf214ec9, 0x3f46c92c}, {500000, 9, 419040, 0xbf68f72b, 0xbed4415b},
    };
    for (const auto &entry : cases) {
        CAPTURE(entry.base, entry.pair, entry.position);
        const auto frequencies = halyard::frequencies::from_base(entry.base, 128);
        CosSin unused;
        CHECK(!halyard::try_cos_sin(*frequencies.get(), entry.pair, entry.position, &unused));
        for (const std::int32_t sign : {1, -1}) {
            float row[128];
            halyard::make_row(*frequencies.get(), sign * entry.position, row, row + 64);
            const float *const cos = row + entry.pair;
            CHECK((bits(cos[0]) == entry.cos && bits(cos[64]) == (entry.sin ^ (sign < 0 ? 0x80000000u : 0u))));
        }
    }
}

TEST_CASE("angles: values just off the middle of two floats go to the right side", "[angles]") {
    // The angle is midway between two floats. Its sine is slightly smaller, so it rounds down; a tie would round up.
    const double middle = (0x1p24 + 3) * 0x1p-124;
    const float below = static_cast<float>((0x1p24 + 2) * 0x1p-124);
    CHECK(value_at(middle, 1, 1).sin == below);
    CHECK(value_at(middle, 1, -1).sin == -below);
    CHECK(value_at(-middle, 1, 1).sin == -below);
    CHECK(value_at(0x1p-124, 1, (1 << 24) + 3).sin == below);
    CHECK(value_at(0x1p-120, (0x1p24 + 3) * 0x1p-4, 1).sin == below);
    // 2^135 + 1 is the product of these two significands and the position. So this angle is above the midpoint of 0 and
    // 2^-149 by only 2^-135 of itself.
    CHECK(value_at(5981411840622251 * 0x1p-233, 7330934210309929 * 0x1p-52, 993313611).sin == 0x1p-149f);
    CHECK(value_at(5981411840622251 * 0x1p-233, 7330934210309929 * 0x1p-52, -993313611).sin == -0x1p-149f);
    // Angles at the midpoint of two subnormal floats, at that of 0 and the smallest one, and just above it.
    CHECK(value_at(0x1.8p-149, 1, 1).sin == 0x1p-149f);
    CHECK(value_at(0x1p-150, 1, 1).sin == 0.0f);
    CHECK(value_at(0x1p-150 * (1 + 0x1p-52), 1, 1).sin == 0x1p-149f);
    // Unless the angle is 0, its exact cosine is below 1, which decides the rounding of factor * cos.
    const double factor = 1 + 0x1p-24 * 3;
    for (const double inv_freq : {0x1p-20, 0x1p-60, 1e-100, 1e-300, 5e-324, -5e-324}) {
        CAPTURE(inv_freq);
        CHECK(value_at(inv_freq, factor, 1).cos == 1 + 0x1p-23f);
    }
    CHECK(value_at(0, factor, 1).cos == 1 + 0x1p-22f);
    CHECK(value_at(1, factor, 0).cos == 1 + 0x1p-22f);
}

TEST_CASE("angles: zeros and their signs", "[angles]") {
    for (const double inv_freq : {0.0, -0.0, 5e-324, 1e-300, -1e-300, 1e-46, -1e-46}) {
        for (const std::int32_t position : {0, 1, -1, INT32_MIN, INT32_MAX}) {
            CAPTURE(inv_freq, position);
            const CosSin value = value_at(inv_freq, 0.75, position);
            CHECK(value.cos == 0.75f);
            if (inv_freq == 0.0 || position == 0) {
                CHECK(bits(value.sin) == 0);
            } else {
                CHECK(std::signbit(value.sin) == ((inv_freq < 0) != (position < 0)));
                const double magnitude = std::fabs(inv_freq) * std::fabs(static_cast<double>(position)) * 0.75;
                CHECK((value.sin != 0) == (magnitude > 0x1p-150));
            }
        }
    }
}

// Golden values already test double-doubles' products, quotients, logarithms and powers.
TEST_CASE("angles: sums, sines and cosines of double-doubles keep twice the bits", "[angles]") {
    using halyard::DoubleDouble;
    std::mt19937_64 random(11);
    const auto draw = [&] { return (static_cast<double>(random() >> 11) * 0x1p-53 + 0.5) * (random() & 1 ? 1 : -1); };
    const auto error_of = [](DoubleDouble a, DoubleDouble b) { return std::fabs((a - b).hi / b.hi); };
    for (int i = 0; i < 1000; ++i) {
        const DoubleDouble a = halyard::two_sum(draw(), draw() * 0x1p-53),
                           b = halyard::two_sum(draw(), draw() * 0x1p-53);
        CHECK(error_of(a + b - b, a) < 0x1p-100);
        const auto value = halyard::sin_cos_of_quarter_turns(a * 0.4);
        CHECK(error_of(value.sin * value.sin + value.cos * value.cos, DoubleDouble{1, 0}) < 0x1p-100);
    }
}

// Frequencies, positions and angle sources: every value is correctly rounded, and every bad argument is refused.
#include "angles/angle_source.h"
#include "angles/cos_sin.h"
#include "angles/frequencies.h"
#include "data/golden.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>
#include <bit>
#include <climits>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

using halyard::CosSin;

namespace {

struct Destroy {
    void operator()(halyard_frequencies *frequencies) const { halyard_destroy_frequencies(frequencies); }
    void operator()(halyard_angle_source *source) const { halyard_destroy_angle_source(source); }
};
using Frequencies = std::unique_ptr<halyard_frequencies, Destroy>;
using Source = std::unique_ptr<halyard_angle_source, Destroy>;

template <typename Struct>
Struct sized() {
    Struct value = {};
    value.size = sizeof(value);
    return value;
}

std::uint32_t bits(float value) { return std::bit_cast<std::uint32_t>(value); }

bool same(CosSin a, CosSin b) { return bits(a.cos) == bits(b.cos) && bits(a.sin) == bits(b.sin); }

Frequencies from_base(double base, std::int64_t rotary_dim) {
    halyard_frequencies *out = nullptr;
    REQUIRE(halyard_create_frequencies_from_base(base, rotary_dim, &out, nullptr) == HALYARD_OK);
    return Frequencies(out);
}

Frequencies from_list(const std::vector<double> &inv_freq, double attention_factor = 1.0) {
    halyard_frequencies *out = nullptr;
    REQUIRE(halyard_create_frequencies_from_list(inv_freq.data(), static_cast<std::int64_t>(inv_freq.size()),
                                                 attention_factor, &out, nullptr) == HALYARD_OK);
    return Frequencies(out);
}

template <typename Integer>
halyard_positions positions_of(const std::vector<Integer> &values, std::int64_t n_batch = 1) {
    auto positions = sized<halyard_positions>();
    positions.type = sizeof(Integer) == 8 ? HALYARD_INT64 : HALYARD_INT32;
    positions.data = values.data();
    positions.shape[0] = n_batch;
    positions.shape[1] = static_cast<std::int64_t>(values.size()) / n_batch;
    positions.strides[0] = positions.shape[1];
    positions.strides[1] = 1;
    return positions;
}

Source make_table(const Frequencies &frequencies, std::int32_t first, std::int32_t last,
                  const halyard_positions *listed = nullptr, std::int32_t kind = HALYARD_ANGLES_AUTO) {
    auto desc = sized<halyard_angle_source_desc>();
    desc.kind = kind;
    desc.first = first;
    desc.last = last;
    desc.listed = listed;
    halyard_angle_source *out = nullptr;
    REQUIRE(halyard_create_angle_source(frequencies.get(), &desc, &out, nullptr) == HALYARD_OK);
    return Source(out);
}

/// A table of just these positions, anywhere in int32.
template <typename Integer>
Source list_table(const Frequencies &frequencies, const std::vector<Integer> &values) {
    const auto listed = positions_of(values);
    return make_table(frequencies, INT32_MIN, INT32_MAX, &listed);
}

halyard_angle_source_info info_of(const Source &source) {
    auto info = sized<halyard_angle_source_info>();
    REQUIRE(halyard_get_angle_source_info(source.get(), &info, nullptr) == HALYARD_OK);
    return info;
}

std::vector<float> rows_of(const Source &source, const halyard_positions *positions, std::int64_t n_batch,
                           std::int64_t n_tokens, std::int32_t bad_position = HALYARD_BAD_POSITION_ERROR) {
    std::vector<float> rows(static_cast<std::size_t>(n_batch * n_tokens * info_of(source).rotary_dim), NAN);
    auto error = sized<halyard_error>();
    const auto status = halyard_make_rows(source.get(), positions, bad_position, n_batch, n_tokens, rows.data(),
                                          static_cast<std::int64_t>(rows.size()), &error);
    INFO(error.message);
    REQUIRE(status == HALYARD_OK);
    return rows;
}

/// A source of the caller's own f32 rows.
Source make_given(const float *cos_rows, const float *sin_rows, std::int64_t n_rows, std::int64_t stride_row,
                  std::int64_t rotary_dim) {
    auto desc = sized<halyard_angle_source_desc>();
    desc.kind = HALYARD_ANGLES_GIVEN;
    desc.cos_rows = cos_rows;
    desc.sin_rows = sin_rows;
    desc.n_rows = n_rows;
    desc.stride_row = stride_row;
    desc.rotary_dim = rotary_dim;
    halyard_angle_source *out = nullptr;
    REQUIRE(halyard_create_angle_source(nullptr, &desc, &out, nullptr) == HALYARD_OK);
    return Source(out);
}

/// A source of one frequency whose row for position p is (p, -p): shows which row was read.
struct Given {
    std::vector<float> memory;
    Source source;

    explicit Given(std::int64_t n_rows) {
        for (std::int64_t row = 0; row < n_rows; ++row) {
            memory.push_back(static_cast<float>(row));
            memory.push_back(static_cast<float>(-row));
        }
        source = make_given(memory.data(), memory.data() + 1, n_rows, 2, 2);
    }
};

/// Which rows of a Given source the tokens read.
std::vector<int> read_rows(const Given &given, const halyard_positions *positions, std::int64_t n_batch,
                           std::int64_t n_tokens, std::int32_t bad_position = HALYARD_BAD_POSITION_ERROR) {
    const auto rows = rows_of(given.source, positions, n_batch, n_tokens, bad_position);
    std::vector<int> result;
    for (std::size_t i = 0; i < rows.size(); i += 2) {
        CHECK(rows[i] == -rows[i + 1]);
        result.push_back(static_cast<int>(rows[i]));
    }
    return result;
}

}  // namespace

// ---- Values ---------------------------------------------------------------------------------------------------------

TEST_CASE("angles: tables hold the golden values at every position", "[angles]") {
    const golden::Section section("angles");
    const auto positions = section.array<std::int64_t>("positions");
    std::size_t n_checked = 0;
    for (const auto &entry : section.cases()) {
        const auto name = entry.at("name").get<std::string>();
        CAPTURE(name);
        const auto frequencies = from_base(entry.at("base").get<double>(), entry.at("d").get<std::int64_t>());
        const auto inv_freq = section.array<double>(entry.at("inv_freq_f64").get<std::string>());
        auto info = sized<halyard_frequencies_info>();
        REQUIRE(halyard_get_frequencies_info(frequencies.get(), &info, nullptr) == HALYARD_OK);
        REQUIRE(info.rotary_dim == entry.at("d").get<std::int64_t>());
        CHECK(info.attention_factor == 1.0);
        const auto n_pairs = inv_freq.values.size();
        CHECK(std::vector<double>(info.inv_freq, info.inv_freq + n_pairs) == inv_freq.values);

        const auto cos = section.array<float>(entry.at("cos_f32").get<std::string>());
        const auto sin = section.array<float>(entry.at("sin_f32").get<std::string>());
        const auto listed = positions_of(positions.values);
        const auto rows = rows_of(list_table(frequencies, positions.values), &listed, 1, listed.shape[1]);
        for (std::size_t i = 0; i < positions.values.size(); ++i) {
            for (std::size_t k = 0; k < n_pairs; ++k) {
                CAPTURE(positions.values[i], k);
                const CosSin expected = {cos.values[i * n_pairs + k], sin.values[i * n_pairs + k]};
                REQUIRE(same({rows[2 * i * n_pairs + k], rows[(2 * i + 1) * n_pairs + k]}, expected));
                REQUIRE(same(halyard::precise_cos_sin(*frequencies, static_cast<std::int64_t>(k),
                                                      static_cast<std::int32_t>(positions.values[i])),
                             expected));
                ++n_checked;
            }
        }
    }
    CHECK(n_checked > 20000);
}

TEST_CASE("angles: the small known answers", "[angles]") {
    const golden::Section section("seeds");
    for (const auto &entry : section.cases()) {
        if (!entry.contains("cos_f64")) {
            continue;
        }
        const auto frequencies = from_base(entry.at("base").get<double>(), entry.at("d").get<std::int64_t>());
        const auto cos = section.array<double>(entry.at("cos_f64").get<std::string>());
        const auto sin = section.array<double>(entry.at("sin_f64").get<std::string>());
        std::vector<float> row(2 * cos.values.size());
        halyard::make_row(*frequencies, entry.at("position").get<std::int32_t>(), row.data(),
                          row.data() + cos.values.size());
        for (std::size_t k = 0; k < cos.values.size(); ++k) {
            CHECK(row[k] == static_cast<float>(cos.values[k]));
            CHECK(row[cos.values.size() + k] == static_cast<float>(sin.values[k]));
        }
        return;
    }
    FAIL("no case with cos_f64");
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
        Frequencies frequencies;
        if (round % 2 == 0) {
            frequencies = from_base(bases[random() % 7], 2 * static_cast<std::int64_t>(1 + random() % 288));
            frequencies->attention_factor = round % 4 == 0 ? 1.0 : std::exp2(uniform(-60, 60));
        } else {
            std::vector<double> inv_freq(64);
            for (double &value : inv_freq) {
                value = uniform(-1, 1) * std::exp2(std::floor(uniform(-60, 21)));
            }
            frequencies = from_list(inv_freq, std::exp2(uniform(-150, 60)));
        }
        for (int i = 0; i < n_each; ++i) {
            const auto pair = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(frequencies->n_pairs));
            const auto shift = 32 + random() % 32;  // as many small positions as large ones
            const auto position = static_cast<std::int32_t>(static_cast<std::int64_t>(random()) >> shift);
            CosSin fast;
            if (halyard::try_cos_sin(*frequencies, pair, position, &fast)) {
                ++n_settled;
                n_wrong += !same(fast, halyard::precise_cos_sin(*frequencies, pair, position));
            }
        }
    }
    CHECK(n_wrong == 0);
    CHECK(n_settled > 2'000'000);
}

TEST_CASE("angles: what the fast path leaves open is settled right", "[angles]") {
    // Found by search; the answers are mpmath's.
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
        const auto frequencies = from_base(entry.base, 128);
        CosSin unused;
        CHECK(!halyard::try_cos_sin(*frequencies, entry.pair, entry.position, &unused));
        std::vector<float> row(128);
        halyard::make_row(*frequencies, entry.position, row.data(), row.data() + 64);
        CHECK(bits(row[static_cast<std::size_t>(entry.pair)]) == entry.cos);
        CHECK(bits(row[static_cast<std::size_t>(entry.pair + 64)]) == entry.sin);
        halyard::make_row(*frequencies, -entry.position, row.data(), row.data() + 64);
        CHECK(bits(row[static_cast<std::size_t>(entry.pair)]) == entry.cos);
        CHECK(bits(row[static_cast<std::size_t>(entry.pair + 64)]) == (entry.sin ^ 0x80000000u));
    }
}

TEST_CASE("angles: values just off the middle of two floats go to the right side", "[angles]") {
    const auto value_at = [](double inv_freq, double attention_factor, std::int32_t position) {
        const auto frequencies = from_list({inv_freq}, attention_factor);
        CosSin value;
        halyard::make_row(*frequencies, position, &value.cos, &value.sin);
        return value;
    };
    // sin is a hair nearer to zero than the angle, which is in the middle; ties to even would go the other way.
    const double middle = (0x1p24 + 3) * 0x1p-124;
    const float below = static_cast<float>((0x1p24 + 2) * 0x1p-124);
    CHECK(value_at(middle, 1, 1).sin == below);
    CHECK(value_at(middle, 1, -1).sin == -below);
    CHECK(value_at(-middle, 1, 1).sin == -below);
    CHECK(value_at(0x1p-124, 1, (1 << 24) + 3).sin == below);
    CHECK(value_at(0x1p-120, (0x1p24 + 3) * 0x1p-4, 1).sin == below);
    // 2^135 + 1 has three factors that fit: a product above the middle of 0 and 2^-149 by 2^-135 of itself.
    CHECK(value_at(5981411840622251 * 0x1p-233, 7330934210309929 * 0x1p-52, 993313611).sin == 0x1p-149f);
    CHECK(value_at(5981411840622251 * 0x1p-233, 7330934210309929 * 0x1p-52, -993313611).sin == -0x1p-149f);
    // Subnormal floats have fewer bits, and the same middles.
    CHECK(value_at(0x1.8p-149, 1, 1).sin == 0x1p-149f);
    CHECK(value_at(0x1p-150, 1, 1).sin == 0.0f);
    CHECK(value_at(0x1p-150 * (1 + 0x1p-52), 1, 1).sin == 0x1p-149f);
    // cos is a hair below 1, however small the angle, unless it is zero.
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
            const auto frequencies = from_list({inv_freq}, 0.75);
            CosSin value;
            halyard::make_row(*frequencies, position, &value.cos, &value.sin);
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
    // A factor too small for float still leaves the sign.
    const auto frequencies = from_list({2.0}, 5e-324);
    CosSin value;
    halyard::make_row(*frequencies, 1, &value.cos, &value.sin);
    CHECK(bits(value.cos) == 0x80000000u);
    CHECK(bits(value.sin) == 0);
}

TEST_CASE("angles: attention_factor is applied before rounding", "[angles]") {
    const std::vector<double> inv_freq = {1.0, 0.75, 0.3, 0.01, -0.2};
    for (const double factor : {0.1, 0.5, 1.3465735902799727, 4.0, 1000.1}) {
        const auto frequencies = from_list(inv_freq, factor);
        std::vector<float> row(2 * inv_freq.size());
        for (std::int32_t position = -500; position <= 500; ++position) {
            halyard::make_row(*frequencies, position, row.data(), row.data() + inv_freq.size());
            for (std::size_t k = 0; k < inv_freq.size(); ++k) {
                // Independent of the code under test, and good to 1e-12; half an ulp of float32 is up to 6e-8.
                const double angle = position * inv_freq[k];
                const double cos = factor * std::cos(angle), sin = factor * std::sin(angle);
                CAPTURE(factor, position, k);
                REQUIRE(std::fabs(row[k] - cos) <= 0x1p-24 * std::fabs(cos) + 1e-12 * factor);
                REQUIRE(std::fabs(row[inv_freq.size() + k] - sin) <= 0x1p-24 * std::fabs(sin) + 1e-12 * factor);
            }
        }
    }
}

TEST_CASE("angles: double-double arithmetic keeps twice the bits", "[angles]") {
    using halyard::DoubleDouble;
    std::mt19937_64 random(11);
    const auto error_of = [](DoubleDouble a, DoubleDouble b) {
        const DoubleDouble difference = a - b;
        return std::fabs(difference.hi) / std::fabs(b.hi);
    };
    for (int i = 0; i < 1000; ++i) {
        const auto draw = [&] {
            return (static_cast<double>(random() >> 11) * 0x1p-53 + 0.5) * (random() & 1 ? 1 : -1);
        };
        const DoubleDouble a = halyard::two_sum(draw(), draw() * 0x1p-53);
        const DoubleDouble b = halyard::two_sum(draw(), draw() * 0x1p-53);
        CHECK(error_of(a * b / b, a) < 0x1p-99);
        CHECK(error_of(a + b - b, a) < 0x1p-100);
        CHECK(error_of(a * b.hi / b.hi, a) < 0x1p-101);
        const DoubleDouble exponent = halyard::precise_log2(std::fabs(a.hi) * 1000);
        CHECK(error_of(halyard::precise_exp2(exponent), DoubleDouble{std::fabs(a.hi) * 1000, 0}) < 0x1p-97);
        const auto value = halyard::sin_cos_of_quarter_turns(a * 0.4);
        CHECK(error_of(value.sin * value.sin + value.cos * value.cos, DoubleDouble{1, 0}) < 0x1p-100);
    }
    for (int exponent = -1000; exponent <= 1000; exponent += 125) {
        const DoubleDouble log = halyard::precise_log2(std::ldexp(1.0, exponent));
        CHECK((log.hi == exponent && log.lo == 0));
        const DoubleDouble power = halyard::precise_exp2(log);
        CHECK((power.hi == std::ldexp(1.0, exponent) && power.lo == 0));
    }
    CHECK(halyard::round_to_float({1 + 0x1p-24, 0x1p-80}) == 1 + 0x1p-23f);
    CHECK(halyard::round_to_float({1 + 0x1p-24, 0}) == 1.0f);
    CHECK(halyard::round_to_float({-1 - 3 * 0x1p-24, 0x1p-80}) == -1 - 0x1p-23f);
    const DoubleDouble sum = halyard::sum_exactly({1e300, 1.0, -1e300, 0x1p-60, 1e-300});
    CHECK(sum.hi == 1.0);
    CHECK(sum.lo > 0.0);
}

// ---- Frequencies ----------------------------------------------------------------------------------------------------

TEST_CASE("frequencies: arguments are checked", "[angles]") {
    auto *const untouched = reinterpret_cast<halyard_frequencies *>(16);
    halyard_frequencies *out = untouched;
    auto error = sized<halyard_error>();
    const double infinity = std::numeric_limits<double>::infinity();

    for (const double base : {0.0, -1.0, infinity, -infinity, static_cast<double>(NAN), 1e-300, 5e-324}) {
        CAPTURE(base);
        CHECK(halyard_create_frequencies_from_base(base, 128, &out, &error) == HALYARD_ERROR_FREQUENCY);
        CHECK(error.code == HALYARD_ERROR_FREQUENCY);
        CHECK(std::string(error.message).find("base is") != std::string::npos);
    }
    // inv_freq[1] is just above 2^20.
    CHECK(halyard_create_frequencies_from_base(0x1.fp-41, 4, &out, &error) == HALYARD_ERROR_FREQUENCY);
    for (const std::int64_t rotary_dim : {std::int64_t{0}, std::int64_t{-2}, std::int64_t{1}, std::int64_t{127},
                                          (std::int64_t{1} << 20) + 2, std::int64_t{INT64_MIN}}) {
        CAPTURE(rotary_dim);
        CHECK(halyard_create_frequencies_from_base(10000, rotary_dim, &out, &error) == HALYARD_ERROR_ROTARY_DIM);
        CHECK(std::string(error.message).find(std::to_string(rotary_dim)) != std::string::npos);
    }
    CHECK(halyard_create_frequencies_from_base(10000, 128, nullptr, &error) == HALYARD_ERROR_NULL_POINTER);

    const std::vector<double> inv_freq = {1, 0.5};
    for (const std::int64_t n_pairs : {std::int64_t{0}, std::int64_t{-1}, (std::int64_t{1} << 19) + 1}) {
        CHECK(halyard_create_frequencies_from_list(inv_freq.data(), n_pairs, 1, &out, &error) ==
              HALYARD_ERROR_ROTARY_DIM);
    }
    for (const double value : {infinity, -infinity, static_cast<double>(NAN), 0x1p20 + 1, -0x1p20 - 1}) {
        const double bad[] = {1.0, value};
        CHECK(halyard_create_frequencies_from_list(bad, 2, 1, &out, &error) == HALYARD_ERROR_FREQUENCY);
        CHECK(std::string(error.message).find("inv_freq[1]") != std::string::npos);
    }
    for (const double factor : {0.0, -1.0, infinity, static_cast<double>(NAN), 0x1p61}) {
        CHECK(halyard_create_frequencies_from_list(inv_freq.data(), 2, factor, &out, &error) ==
              HALYARD_ERROR_FREQUENCY);
    }
    CHECK(halyard_create_frequencies_from_list(nullptr, 2, 1, &out, &error) == HALYARD_ERROR_NULL_POINTER);
    CHECK(halyard_create_frequencies_from_list(inv_freq.data(), 2, 1, nullptr, &error) == HALYARD_ERROR_NULL_POINTER);
    CHECK(out == untouched);

    auto info = sized<halyard_frequencies_info>();
    CHECK(halyard_get_frequencies_info(nullptr, &info, &error) == HALYARD_ERROR_NULL_POINTER);
    const auto frequencies = from_base(10000, 4);
    CHECK(halyard_get_frequencies_info(frequencies.get(), nullptr, &error) == HALYARD_ERROR_NULL_POINTER);
    const unsigned least = offsetof(halyard_frequencies_info, pairing);  // what its first version held
    for (const std::uint32_t size : {0u, 4u, least - 1, unsigned(sizeof(info)) + 1}) {
        info.size = size;
        CHECK(halyard_get_frequencies_info(frequencies.get(), &info, &error) == HALYARD_ERROR_STRUCT_SIZE);
        CHECK(info.inv_freq == nullptr);
    }
    halyard_destroy_frequencies(nullptr);
}

TEST_CASE("frequencies: limits are inside", "[angles]") {
    CHECK(from_base(0x1p20, std::int64_t{1} << 20)->n_pairs == 1 << 19);
    CHECK(from_base(1e-300, 2)->inv_freq[0].hi == 1.0);  // just base^0
    CHECK(from_base(0x1p-40, 4)->inv_freq[1].hi == 0x1p20);
    CHECK(from_base(std::numeric_limits<double>::max(), 64)->inv_freq[31].hi > 0);
    CHECK(from_list({0x1p20, -0x1p20}, 0x1p60)->n_pairs == 2);
    const auto given = from_list({0x1.23456789abcdep-7, -3.0, 1e-310}, 1.5);
    auto info = sized<halyard_frequencies_info>();
    REQUIRE(halyard_get_frequencies_info(given.get(), &info, nullptr) == HALYARD_OK);
    CHECK(info.rotary_dim == 6);
    CHECK(info.attention_factor == 1.5);
    CHECK(std::vector<double>(info.inv_freq, info.inv_freq + 3) ==
          std::vector<double>{0x1.23456789abcdep-7, -3, 1e-310});
}

// ---- Tables ---------------------------------------------------------------------------------------------------------

TEST_CASE("tables: a range and a list hold the same rows", "[angles]") {
    const auto frequencies = from_base(10000, 16);
    const auto range = make_table(frequencies, -40, 60, nullptr, HALYARD_ANGLES_TABLE);
    const std::vector<std::int32_t> positions = {60, -40, 7, 7, 0, 59, -1, 12};
    const auto listed = list_table(frequencies, positions);
    const auto asked = positions_of(positions);
    const auto rows = rows_of(range, &asked, 1, 8);
    CHECK(rows == rows_of(listed, &asked, 1, 8));
    for (std::size_t i = 0; i < positions.size(); ++i) {
        float expected[16];
        halyard::make_row(*frequencies, positions[i], expected, expected + 8);
        CHECK(std::memcmp(expected, &rows[16 * i], sizeof(expected)) == 0);
    }
    const auto info = info_of(range);
    CHECK(info.kind == HALYARD_ANGLES_TABLE);
    CHECK(info.rotary_dim == 16);
    CHECK((info.first == -40 && info.last == 60 && info.n_rows == 101 && info.bytes == 101 * 64));
    const auto listed_info = info_of(listed);
    CHECK((listed_info.first == -40 && listed_info.last == 60 && listed_info.n_rows == 7));
    CHECK(listed_info.bytes == 7 * 64 + 7 * 4);
    CHECK(reinterpret_cast<std::uintptr_t>(range->cos_rows) % 64 == 0);
}

TEST_CASE("tables: rows outlive the frequencies", "[angles]") {
    auto frequencies = from_base(10000, 8);
    const auto source = make_table(frequencies, 0, 3);
    const auto before = rows_of(source, nullptr, 1, 4);
    frequencies.reset();
    CHECK(rows_of(source, nullptr, 1, 4) == before);
}

TEST_CASE("tables: position 0 always has a row, but is covered only where asked for", "[angles]") {
    const auto frequencies = from_list({1.0, 0.5}, 1.25);
    const std::vector<std::int32_t> three = {5, 9, 14}, none = {};
    const auto listed = positions_of(three), empty = positions_of(none);
    Source sources[] = {make_table(frequencies, 5, 9), make_table(frequencies, -9, -5),
                        make_table(frequencies, INT32_MIN, INT32_MAX, &listed), make_table(frequencies, 3, 90, &empty)};
    const std::vector<std::int64_t> n_covered = {5, 5, 3, 0};
    for (std::size_t i = 0; i < 4; ++i) {
        CAPTURE(i);
        CHECK(info_of(sources[i]).n_rows == n_covered[i] + 1);
        CHECK(!sources[i]->covers(0));
        const auto rows = rows_of(sources[i], nullptr, 1, 1, HALYARD_BAD_POSITION_IDENTITY);
        CHECK(rows == std::vector<float>{1.25f, 1.25f, 0.0f, 0.0f});
    }
    auto endless = empty;
    endless.shape[0] = INT64_MAX;
    CHECK(info_of(make_table(frequencies, 3, 90, &endless)).n_rows == 1);
    // Nothing is near in an empty list: no rotation.
    CHECK(rows_of(sources[3], nullptr, 1, 2, HALYARD_BAD_POSITION_CLAMP) ==
          std::vector<float>{1.25f, 1.25f, 0, 0, 1.25f, 1.25f, 0, 0});
}

TEST_CASE("tables: listed positions are moved into the range", "[angles]") {
    const auto frequencies = from_base(10000, 4);
    const std::vector<std::int64_t> values = {INT64_MIN, 4, 4, 20, INT64_MAX, 12};
    const auto listed = positions_of(values, 2);
    const auto source = make_table(frequencies, 2, 30, &listed);
    CHECK(info_of(source).n_rows == 6);
    for (const std::int64_t position : {2, 4, 12, 20, 30}) {
        CHECK(source->covers(position));
    }
    for (const std::int64_t position : {0, 1, 3, 13, 31}) {
        CHECK(!source->covers(position));
    }
    // Without gaps, the list is a range.
    const std::vector<std::int32_t> dense = {3, 1, 2, 0, 1};
    const auto without_gaps = list_table(frequencies, dense);
    CHECK(without_gaps->listed == nullptr);
    const auto info = info_of(without_gaps);
    CHECK((info.first == 0 && info.last == 3 && info.n_rows == 4 && info.bytes == 64));
}

TEST_CASE("tables: which row serves a position", "[angles]") {
    const auto frequencies = from_base(10000, 4);
    using enum halyard::BadPosition;
    const auto range = make_table(frequencies, -3, 5);
    const struct {
        std::int64_t position, error, clamp, identity;
    } in_range[] = {{-3, 0, 0, 0},         {0, 3, 3, 3},          {5, 8, 8, 8},          {-4, -1, 0, 3},
                    {6, -1, 8, 3},         {INT32_MIN, -1, 0, 3}, {INT32_MAX, -1, 8, 3}, {INT64_MIN, -1, 0, 3},
                    {INT64_MAX, -1, 8, 3}, {4294967296, -1, 8, 3}};
    for (const auto &entry : in_range) {
        CAPTURE(entry.position);
        CHECK(range->find_row(entry.position, error) == entry.error);
        CHECK(range->find_row(entry.position, clamp) == entry.clamp);
        CHECK(range->find_row(entry.position, identity) == entry.identity);
    }
    const std::vector<std::int32_t> values = {INT32_MIN, -10, 4, 10, INT32_MAX};
    const auto listed = list_table(frequencies, values);
    const struct {
        std::int64_t position, clamp;
    } in_list[] = {{INT64_MIN, 0},  {INT32_MIN, 0},   {INT32_MIN + 1, 0},
                   {-11, 1},        {-10, 1},         {-4, 1},
                   {-3, 1},         {-2, 2},          {7, 2},
                   {8, 3},          {11, 3},          {0x40000004, 3},
                   {0x40000005, 4}, {-0x40000005, 0}, {-0x40000004, 1},
                   {INT32_MAX, 4},  {INT64_MAX, 4}};
    for (const auto &entry : in_list) {
        CAPTURE(entry.position);
        const bool is_covered = std::find(values.begin(), values.end(), entry.position) != values.end();
        CHECK(listed->find_row(entry.position, error) == (is_covered ? entry.clamp : -1));
        CHECK(listed->find_row(entry.position, clamp) == entry.clamp);
        CHECK(listed->find_row(entry.position, identity) == (is_covered ? entry.clamp : listed->identity_row));
    }
}

TEST_CASE("tables: the ends of int32", "[angles]") {
    const auto frequencies = from_base(500000, 6);
    for (const auto &[first, last] : {std::pair{INT32_MIN, INT32_MIN + 2}, std::pair{INT32_MAX - 2, INT32_MAX}}) {
        const auto source = make_table(frequencies, first, last);
        CHECK(info_of(source).n_rows == 4);
        float expected[6];
        halyard::make_row(*frequencies, last, expected, expected + 3);
        const std::vector<std::int32_t> at = {last};
        const auto positions = positions_of(at);
        CHECK(rows_of(source, &positions, 1, 1) == std::vector<float>(expected, expected + 6));
    }
}

// ---- Creating sources -----------------------------------------------------------------------------------------------

TEST_CASE("angle sources: arguments are checked", "[angles]") {
    const auto frequencies = from_base(10000, 4);
    auto *const untouched = reinterpret_cast<halyard_angle_source *>(16);
    halyard_angle_source *out = untouched;
    auto error = sized<halyard_error>();
    const std::vector<float> rows(16);
    auto table = sized<halyard_angle_source_desc>();
    table.last = 3;
    auto given = sized<halyard_angle_source_desc>();
    given.kind = HALYARD_ANGLES_GIVEN;
    given.cos_rows = rows.data();
    given.sin_rows = rows.data() + 2;
    given.n_rows = 4;
    given.stride_row = 4;
    given.rotary_dim = 4;
    const auto create = [&](const halyard_angle_source_desc &desc) {
        const auto status = halyard_create_angle_source(frequencies.get(), &desc, &out, &error);
        CHECK(error.code == status);
        CHECK(std::strlen(error.message) > 10);
        return status;
    };
    const auto with = [](auto desc, auto change) {
        change(desc);
        return desc;
    };
    using Desc = halyard_angle_source_desc;

    CHECK(halyard_create_angle_source(nullptr, &table, &out, &error) == HALYARD_ERROR_NULL_POINTER);
    CHECK(halyard_create_angle_source(frequencies.get(), nullptr, &out, &error) == HALYARD_ERROR_NULL_POINTER);
    CHECK(halyard_create_angle_source(frequencies.get(), &table, nullptr, &error) == HALYARD_ERROR_NULL_POINTER);
    for (const std::uint32_t size : {0u, 4u, unsigned(sizeof(Desc)) - 8, unsigned(sizeof(Desc)) + 8}) {
        CHECK(create(with(table, [&](Desc &desc) { desc.size = size; })) == HALYARD_ERROR_STRUCT_SIZE);
    }
    for (const std::int32_t kind : {-1, 5, INT32_MAX}) {
        CHECK(create(with(table, [&](Desc &desc) { desc.kind = kind; })) == HALYARD_ERROR_UNKNOWN_VALUE);
    }
    CHECK(create(with(table, [](Desc &desc) { desc.last = -1; })) == HALYARD_ERROR_POSITION);

    CHECK(create(with(given, [](Desc &desc) { desc.cos_rows = nullptr; })) == HALYARD_ERROR_NULL_POINTER);
    CHECK(create(with(given, [](Desc &desc) { desc.sin_rows = nullptr; })) == HALYARD_ERROR_NULL_POINTER);
    for (const std::int64_t rotary_dim : {0, -2, 3, (1 << 20) + 2}) {
        CHECK(create(with(given, [&](Desc &desc) { desc.rotary_dim = rotary_dim; })) == HALYARD_ERROR_ROTARY_DIM);
    }
    for (const std::int64_t n_rows : {std::int64_t{0}, std::int64_t{-1}, std::int64_t{INT64_MIN}}) {
        CHECK(create(with(given, [&](Desc &desc) { desc.n_rows = n_rows; })) == HALYARD_ERROR_SHAPE);
    }
    for (const std::int64_t stride : {std::int64_t{1}, std::int64_t{0}, std::int64_t{-4}, std::int64_t{INT64_MIN}}) {
        CHECK(create(with(given, [&](Desc &desc) { desc.stride_row = stride; })) == HALYARD_ERROR_SHAPE);
    }
    CHECK(create(with(given, [](Desc &desc) { desc.n_rows = INT64_MAX; })) == HALYARD_ERROR_OVERFLOW);
    CHECK(create(with(given, [](Desc &desc) { desc.n_rows = std::int64_t{1} << 31; })) == HALYARD_ERROR_OVERFLOW);
    CHECK(create(with(given, [](Desc &desc) { desc.stride_row = INT64_MAX; })) == HALYARD_ERROR_OVERFLOW);
    CHECK(create(with(given, [](Desc &desc) { desc.n_rows = INT64_MAX / 8; })) == HALYARD_ERROR_OVERFLOW);
    const auto *const end_of_memory = reinterpret_cast<const float *>(UINTPTR_MAX - 31);
    CHECK(create(with(given, [=](Desc &desc) { desc.cos_rows = end_of_memory; })) == HALYARD_ERROR_OVERFLOW);
    CHECK(create(with(given, [=](Desc &desc) { desc.sin_rows = end_of_memory; })) == HALYARD_ERROR_OVERFLOW);

    const std::vector<std::int32_t> values = {1, 2, 3, 4};
    auto listed = positions_of(values);
    const auto create_listed = [&] { return create(with(table, [&](Desc &desc) { desc.listed = &listed; })); };
    listed.size = 3;
    CHECK(create_listed() == HALYARD_ERROR_STRUCT_SIZE);
    CHECK_THAT(error.message, Catch::Matchers::ContainsSubstring("desc.listed.size is 3"));
    listed = positions_of(values);
    listed.data = nullptr;
    CHECK(create_listed() == HALYARD_ERROR_NULL_POINTER);
    listed = positions_of(values);
    listed.type = 2;
    CHECK(create_listed() == HALYARD_ERROR_UNKNOWN_VALUE);
    for (const auto &[n_batch, n_tokens] : {std::pair<std::int64_t, std::int64_t>{-1, 4}, {4, -1}, {-2, -2}}) {
        listed = positions_of(values);
        listed.shape[0] = n_batch;
        listed.shape[1] = n_tokens;
        CHECK(create_listed() == HALYARD_ERROR_SHAPE);
        CHECK(std::string(error.message).find("desc.listed.shape") != std::string::npos);
    }
    listed = positions_of(values);
    listed.consecutive = 1;
    CHECK(create_listed() == HALYARD_ERROR_MISMATCH);
    listed = positions_of(values);
    listed.shape[0] = listed.shape[1] = std::int64_t{1} << 40;
    listed.strides[0] = listed.strides[1] = 0;
    CHECK(create_listed() == HALYARD_ERROR_OVERFLOW);
    listed.shape[0] = listed.shape[1] = std::int64_t{1} << 31;  // 2^64 bytes
    CHECK(create_listed() == HALYARD_ERROR_OVERFLOW);
    listed.strides[0] = INT64_MIN;
    CHECK(create_listed() == HALYARD_ERROR_OVERFLOW);
    CHECK(out == untouched);

    // What is refused for a table is not read for given rows, and the other way round.
    given.first = 7;
    given.last = -7;
    out = nullptr;
    REQUIRE(halyard_create_angle_source(nullptr, &given, &out, nullptr) == HALYARD_OK);
    const Source source(out);
    const auto info = info_of(source);
    CHECK(info.kind == HALYARD_ANGLES_GIVEN);
    CHECK((info.rotary_dim == 4 && info.first == 0 && info.last == 3 && info.n_rows == 4 && info.bytes == 0));
    table.n_rows = -1;
    table.rotary_dim = 3;
    REQUIRE(halyard_create_angle_source(frequencies.get(), &table, &out, nullptr) == HALYARD_OK);
    const Source other(out);

    auto sized_info = sized<halyard_angle_source_info>();
    CHECK(halyard_get_angle_source_info(nullptr, &sized_info, &error) == HALYARD_ERROR_NULL_POINTER);
    CHECK(halyard_get_angle_source_info(source.get(), nullptr, &error) == HALYARD_ERROR_NULL_POINTER);
    for (const std::uint32_t size : {0u, 8u, unsigned(sizeof(sized_info)) + 1}) {
        sized_info.size = size;
        CHECK(halyard_get_angle_source_info(source.get(), &sized_info, &error) == HALYARD_ERROR_STRUCT_SIZE);
        CHECK(sized_info.n_rows == 0);
    }
    halyard_destroy_angle_source(nullptr);
}

TEST_CASE("angle sources: factored tables hold at most 2^31 - 1 floats", "[angles]") {
    auto desc = sized<halyard_angle_source_desc>();
    desc.kind = HALYARD_ANGLES_FACTORED;
    halyard_angle_source *out = nullptr;
    auto error = sized<halyard_error>();
    const auto refused = [&](const Frequencies &frequencies, std::int32_t n_covered, const char *words) {
        desc.last = n_covered - 1;
        CHECK(halyard_create_angle_source(frequencies.get(), &desc, &out, &error) == HALYARD_ERROR_OVERFLOW);
        CHECK_THAT(error.message, Catch::Matchers::ContainsSubstring(words));
    };
    // Only the coarse ones are too large, then only the fine ones.
    refused(from_base(10000, (1 << 20) - 2), 1 << 22, "2049 and 2048 rows and rotary_dim 1048574");
    refused(from_base(10000, 1 << 20), (1 << 20) + 1, "514 and 2048 rows and rotary_dim 1048576");
    CHECK(out == nullptr);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // their allocators stop the program instead
TEST_CASE("angle sources: a table that no memory holds is an error", "[angles]") {
    const auto frequencies = from_base(10000, 1 << 16);
    auto desc = sized<halyard_angle_source_desc>();
    desc.kind = HALYARD_ANGLES_TABLE;
    desc.first = 0;
    desc.last = INT32_MAX - 1;
    halyard_angle_source *out = nullptr;
    auto error = sized<halyard_error>();
    CHECK(halyard_create_angle_source(frequencies.get(), &desc, &out, &error) == HALYARD_ERROR_OUT_OF_MEMORY);
    desc.last = INT32_MAX;  // 2^31 rows
    CHECK(halyard_create_angle_source(frequencies.get(), &desc, &out, &error) == HALYARD_ERROR_OVERFLOW);
    CHECK_THAT(error.message, Catch::Matchers::ContainsSubstring("2147483648"));
    CHECK(out == nullptr);
}
#endif

// ---- Rows -----------------------------------------------------------------------------------------------------------

TEST_CASE("make_rows: every form of positions", "[angles]") {
    const Given given(100);
    CHECK(read_rows(given, nullptr, 2, 3) == std::vector<int>{0, 1, 2, 0, 1, 2});

    const std::vector<std::int32_t> narrow = {5, 6, 7, 8, 9, 10};
    auto positions = positions_of(narrow, 2);
    CHECK(read_rows(given, &positions, 2, 3) == std::vector<int>{5, 6, 7, 8, 9, 10});
    positions.strides[0] = 1;
    positions.strides[1] = 2;
    CHECK(read_rows(given, &positions, 2, 3) == std::vector<int>{5, 7, 9, 6, 8, 10});
    positions.data = narrow.data() + 5;
    positions.strides[0] = -3;
    positions.strides[1] = -1;
    CHECK(read_rows(given, &positions, 2, 3) == std::vector<int>{10, 9, 8, 7, 6, 5});
    positions.strides[0] = positions.strides[1] = 0;
    CHECK(read_rows(given, &positions, 2, 3) == std::vector<int>{10, 10, 10, 10, 10, 10});

    positions = positions_of(narrow);
    positions.shape[1] = 3;
    positions.strides[0] = INT64_MIN;  // never walked
    CHECK(read_rows(given, &positions, 2, 3) == std::vector<int>{5, 6, 7, 5, 6, 7});

    const std::vector<std::int64_t> wide = {50, 60, 70};
    positions = positions_of(wide);
    CHECK(read_rows(given, &positions, 1, 3) == std::vector<int>{50, 60, 70});
    positions = positions_of(wide, 3);
    CHECK(read_rows(given, &positions, 3, 1) == std::vector<int>{50, 60, 70});
    positions.consecutive = 1;
    CHECK(read_rows(given, &positions, 3, 2) == std::vector<int>{50, 51, 60, 61, 70, 71});
    positions.shape[0] = 1;
    CHECK(read_rows(given, &positions, 2, 3) == std::vector<int>{50, 51, 52, 50, 51, 52});

    // Any alignment.
    std::vector<char> bytes(64);
    std::memcpy(bytes.data() + 3, wide.data(), 24);
    positions = positions_of(wide);
    positions.data = bytes.data() + 3;
    CHECK(read_rows(given, &positions, 1, 3) == std::vector<int>{50, 60, 70});
}

TEST_CASE("make_rows: what bad positions mean", "[angles]") {
    const Given given(10);
    const std::vector<std::int64_t> values = {-1, 10, INT64_MIN, INT64_MAX, 4294967296 + 5, 3};
    auto positions = positions_of(values);
    CHECK(read_rows(given, &positions, 1, 6, HALYARD_BAD_POSITION_CLAMP) == std::vector<int>{0, 9, 0, 9, 9, 3});
    CHECK(read_rows(given, &positions, 1, 6, HALYARD_BAD_POSITION_IDENTITY) == std::vector<int>{0, 0, 0, 0, 0, 3});
    // Consecutive positions saturate instead of wrapping around.
    const std::vector<std::int64_t> start = {INT64_MAX - 1};
    positions = positions_of(start);
    positions.consecutive = 1;
    CHECK(read_rows(given, &positions, 1, 4, HALYARD_BAD_POSITION_CLAMP) == std::vector<int>{9, 9, 9, 9});
}

TEST_CASE("make_rows: the first bad position is named and nothing is written", "[angles]") {
    const Given given(10);
    auto error = sized<halyard_error>();
    std::vector<float> rows(64, 42.0f);
    const auto message_of = [&](const Source &source, const halyard_positions &positions, std::int64_t n_batch,
                                std::int64_t n_tokens) {
        CHECK(halyard_make_rows(source.get(), &positions, HALYARD_BAD_POSITION_ERROR, n_batch, n_tokens, rows.data(),
                                64, &error) == HALYARD_ERROR_POSITION);
        CHECK(rows == std::vector<float>(64, 42.0f));
        return std::string(error.message);
    };
    const std::vector<std::int32_t> values = {1, 2, 3, 4, 5, 70000, 7, -8};
    CHECK(message_of(given.source, positions_of(values, 2), 2, 4) ==
          "positions[batch 1, token 1] is 70000, but the angle source covers 0 to 9");
    const std::vector<std::int64_t> wide = {2, 4294967296};
    CHECK(message_of(given.source, positions_of(wide), 1, 2) ==
          "positions[batch 0, token 1] is 4294967296, but the angle source covers 0 to 9");
    const std::vector<std::int32_t> starts = {0, 8};
    auto consecutive = positions_of(starts, 2);
    consecutive.consecutive = 1;
    CHECK(message_of(given.source, consecutive, 2, 4) ==
          "positions[batch 1, token 2] is 10, but the angle source covers 0 to 9");
    const auto frequencies = from_base(10000, 2);
    const std::vector<std::int32_t> some = {1, 2, 5};
    CHECK(message_of(list_table(frequencies, some), positions_of(values), 1, 8) ==
          "positions[batch 0, token 2] is 3, which is none of the 3 positions that the angle source lists");
    const std::vector<std::int32_t> one = {1};
    auto from_one = positions_of(one);
    from_one.consecutive = 1;
    CHECK(message_of(list_table(frequencies, some), from_one, 1, 5) ==
          "positions[batch 0, token 2] is 3, which is none of the 3 positions that the angle source lists");
}

TEST_CASE("make_rows: arguments are checked before the first write", "[angles]") {
    Given given(10);
    auto error = sized<halyard_error>();
    std::vector<float> rows(64, 42.0f);
    const std::vector<std::int32_t> values = {1, 2, 3, 4, 5, 6};
    const auto valid = positions_of(values, 2);
    const halyard_angle_source *source = given.source.get();
    const auto make = [&](const halyard_positions &positions, std::int32_t policy, std::int64_t n_batch,
                          std::int64_t n_tokens, float *to, std::int64_t n_floats) {
        const auto status = halyard_make_rows(source, &positions, policy, n_batch, n_tokens, to, n_floats, &error);
        CHECK(rows == std::vector<float>(64, 42.0f));
        CHECK(error.code == status);
        return status;
    };
    const auto make_with = [&](auto change) {
        auto positions = valid;
        change(positions);
        return make(positions, HALYARD_BAD_POSITION_CLAMP, 2, 3, rows.data(), 64);
    };
    using Description = halyard_positions;

    CHECK(halyard_make_rows(nullptr, &valid, 0, 2, 3, rows.data(), 64, &error) == HALYARD_ERROR_NULL_POINTER);
    CHECK(make(valid, 0, 2, 3, nullptr, 64) == HALYARD_ERROR_NULL_POINTER);
    CHECK(make_with([](Description &positions) { positions.data = nullptr; }) == HALYARD_ERROR_NULL_POINTER);
    for (const std::uint32_t size : {0u, 4u, unsigned(sizeof(valid)) - 8, unsigned(sizeof(valid)) + 8}) {
        CHECK(make_with([&](Description &positions) { positions.size = size; }) == HALYARD_ERROR_STRUCT_SIZE);
    }
    for (const std::int32_t value : {-1, 2, 99}) {
        CHECK(make_with([&](Description &positions) { positions.type = value; }) == HALYARD_ERROR_UNKNOWN_VALUE);
        CHECK(make_with([&](Description &positions) { positions.consecutive = value; }) == HALYARD_ERROR_UNKNOWN_VALUE);
    }
    for (const std::int32_t policy : {-1, 3}) {
        CHECK(make(valid, policy, 2, 3, rows.data(), 64) == HALYARD_ERROR_UNKNOWN_VALUE);
    }
    CHECK(make(valid, 0, -1, 3, rows.data(), 64) == HALYARD_ERROR_SHAPE);
    CHECK(make(valid, 0, 2, -3, rows.data(), 64) == HALYARD_ERROR_SHAPE);
    CHECK(make(valid, 0, 3, 3, rows.data(), 64) == HALYARD_ERROR_SHAPE);
    CHECK(make(valid, 0, 2, 4, rows.data(), 64) == HALYARD_ERROR_SHAPE);
    CHECK(std::string(error.message) == "positions.shape is {2, 3}, but it must be {1 or 2, 4}");
    CHECK(make_with([](Description &positions) { positions.shape[0] = -1; }) == HALYARD_ERROR_SHAPE);
    CHECK(make_with([](Description &positions) { positions.consecutive = 1; }) == HALYARD_ERROR_SHAPE);
    CHECK(make(valid, 0, 2, 3, rows.data(), 11) == HALYARD_ERROR_SHAPE);
    CHECK(std::string(error.message) == "n_floats is 11, but the rows need 12");
    CHECK(make(valid, 0, 2, 3, rows.data(), -1) == HALYARD_ERROR_SHAPE);

    for (const std::int64_t stride : {std::int64_t{INT64_MIN}, std::int64_t{INT64_MAX}, INT64_MAX / 2, INT64_MIN / 8}) {
        CHECK(make_with([&](Description &positions) { positions.strides[0] = stride; }) == HALYARD_ERROR_OVERFLOW);
        CHECK(make_with([&](Description &positions) { positions.strides[1] = stride; }) == HALYARD_ERROR_OVERFLOW);
    }
    CHECK(halyard_make_rows(source, nullptr, HALYARD_BAD_POSITION_CLAMP, INT64_MAX, INT64_MAX, rows.data(), INT64_MAX,
                            &error) == HALYARD_ERROR_OVERFLOW);
    CHECK(halyard_make_rows(source, nullptr, HALYARD_BAD_POSITION_CLAMP, 1, INT64_MAX / 4, rows.data(), INT64_MAX,
                            &error) == HALYARD_ERROR_OVERFLOW);
    // In 64 bits, these are as many floats as one token has.
    const Source four = make_table(from_base(10000, 4), 0, 9);
    for (const auto &[n_batch, n_tokens] :
         {std::pair<std::int64_t, std::int64_t>{1, (1LL << 62) + 1}, {(1LL << 62) + 1, 1}}) {
        CHECK(halyard_make_rows(four.get(), nullptr, 0, n_batch, n_tokens, rows.data(), 64, &error) ==
              HALYARD_ERROR_OVERFLOW);
    }
    CHECK(make(valid, 0, 2, 3, given.memory.data(), 20) == HALYARD_ERROR_OVERLAP);
    CHECK(make(valid, 0, 2, 3, given.memory.data() + 19, 20) == HALYARD_ERROR_OVERLAP);
    CHECK(rows_of(given.source, nullptr, 1, 10) == given.memory);
    {
        std::vector<float> cos(4, 42.0f), sin = cos;
        const Source apart = make_given(cos.data(), sin.data(), 4, 1, 2);
        for (std::vector<float> *const over : {&cos, &sin}) {
            CHECK(halyard_make_rows(apart.get(), nullptr, 0, 1, 2, over->data(), 4, &error) == HALYARD_ERROR_OVERLAP);
            CHECK(*over == std::vector<float>(4, 42.0f));
        }
    }
    auto inside = valid;
    inside.data = rows.data() + 11;  // bits of floats, but no position is read before the check
    CHECK(make(inside, HALYARD_BAD_POSITION_CLAMP, 2, 3, rows.data(), 64) == HALYARD_ERROR_OVERLAP);
    inside.data = rows.data() + 12;
    CHECK(halyard_make_rows(source, &inside, HALYARD_BAD_POSITION_CLAMP, 2, 3, rows.data(), 64, &error) == HALYARD_OK);
    CHECK(std::vector<float>(rows.begin() + 12, rows.end()) == std::vector<float>(52, 42.0f));
    const auto before = rows;
    for (const std::int64_t negative : {std::int64_t{-1}, std::int64_t{INT64_MIN}}) {
        CHECK(halyard_make_rows(source, nullptr, 0, negative, 1, rows.data(), 64, &error) == HALYARD_ERROR_SHAPE);
        CHECK(halyard_make_rows(source, nullptr, 0, 1, negative, rows.data(), 64, &error) == HALYARD_ERROR_SHAPE);
        CHECK(halyard_make_rows(source, nullptr, 0, negative, negative, rows.data(), 64, &error) ==
              HALYARD_ERROR_SHAPE);
    }
    CHECK(rows == before);
}

TEST_CASE("make_rows: nothing to do is fine", "[angles]") {
    const Given given(10);
    const std::vector<std::int32_t> none = {};
    auto positions = positions_of(none);
    positions.data = nullptr;
    CHECK(halyard_make_rows(given.source.get(), &positions, 0, 5, 0, nullptr, 0, nullptr) == HALYARD_OK);
    positions.shape[0] = 0;
    positions.shape[1] = 7;
    CHECK(halyard_make_rows(given.source.get(), &positions, 0, 0, 7, nullptr, 0, nullptr) == HALYARD_OK);
    positions.shape[0] = INT64_MAX;  // as fast as the others
    positions.shape[1] = 0;
    positions.strides[0] = 1;
    CHECK(halyard_make_rows(given.source.get(), &positions, 0, INT64_MAX, 0, nullptr, 0, nullptr) == HALYARD_OK);
    CHECK(halyard_make_rows(given.source.get(), nullptr, 0, INT64_MAX, 0, nullptr, 0, nullptr) == HALYARD_OK);
    CHECK(halyard_make_rows(given.source.get(), nullptr, 0, 0, INT64_MAX, nullptr, 0, nullptr) == HALYARD_OK);
}

TEST_CASE("make_rows: a given source reads back what a table wrote", "[angles]") {
    const auto frequencies = from_base(10000, 8);
    const auto table = make_table(frequencies, 0, 50);
    const auto rows = rows_of(table, nullptr, 1, 51);
    const Source given = make_given(rows.data(), rows.data() + 4, 51, 8, 8);
    CHECK(rows_of(given, nullptr, 1, 51) == rows);
    CHECK(given->identity_row == 0);
}

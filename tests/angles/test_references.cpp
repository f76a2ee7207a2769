// The reference of tables beside exact ones: Hugging Face's cos and sin in float32.
#include "checks/make_sources.h"
#include "checks/oracle.h"
#include "config/read_config.h"

#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <string>
#include <vector>

namespace {

using nlohmann::json;
using oracle::Random;

/// How many floats lie between two, of any sign.
std::int64_t ulps_between(float a, float b) {
    const auto order = [](float value) {
        const auto word = std::bit_cast<std::uint32_t>(value);
        const auto magnitude = static_cast<std::int64_t>(word & 0x7fffffff);
        return word >> 31 != 0 ? -magnitude : magnitude;
    };
    return std::abs(order(a) - order(b));
}

struct Difference {
    std::int64_t greatest = 0, n_off = 0, n_all = 0;

    void add(std::int64_t ulps) {
        greatest = std::max(greatest, ulps);
        n_off += ulps != 0 ? 1 : 0;
        n_all++;
    }
    std::string text() const {
        return std::to_string(n_off) + " of " + std::to_string(n_all) + " by at most " + std::to_string(greatest);
    }
};

/// Calls see(ours, theirs) for each cos and sin: ours of rows, [positions, 2, n_pairs], and theirs of arrays.
template <typename See>
void see_all(const golden::Section &section, const std::string &cos, const std::string &sin,
             const std::vector<float> &rows, std::size_t n_pairs, See see) {
    for (const bool is_sin : {false, true}) {
        const auto theirs = section.array<float>(is_sin ? sin : cos).values;
        REQUIRE(2 * theirs.size() == rows.size());
        for (std::size_t i = 0; i < theirs.size(); i++) {
            see(rows[i / n_pairs * 2 * n_pairs + (is_sin ? n_pairs : 0) + i % n_pairs], theirs[i]);
        }
    }
}

}  // namespace

TEST_CASE("sources: hf_f32 is within an ulp of transformers' cos and sin, given its frequencies", "[sources][golden]") {
    const golden::Section section("hf_apply"), of_frequencies("frequencies");
    Difference difference;
    std::int64_t n_far_from_exact = 0;
    for (const auto &entry : section.cases()) {
        INFO(entry.at("name").get<std::string>());
        const auto evaluation = of_frequencies.find_case(entry.at("frequencies_case")).at("evaluations").at(0);
        const auto hf = of_frequencies.array<float>(evaluation.at("inv_freq_hf_f32")).values;
        const auto frequencies = make_frequencies({hf.begin(), hf.end()}, evaluation.at("attention_factor"));
        const auto positions = section.array<std::int64_t>(entry.at("positions")).values;
        const auto see = [&](std::int32_t reference, auto see_ulps) {
            see_all(section, entry.at("cos"), entry.at("sin"), table_rows_at(frequencies, positions, reference),
                    hf.size(), [&](float ours, float theirs) { see_ulps(ulps_between(ours, theirs)); });
        };
        see(HALYARD_REFERENCE_HF_F32, [&](std::int64_t ulps) { difference.add(ulps); });
        see(HALYARD_REFERENCE_EXACT, [&](std::int64_t ulps) { n_far_from_exact += ulps > 1 ? 1 : 0; });
    }
    CHECK(difference.greatest <= 1);
    // Hugging Face's angles are far from exact, so this comparison shows something.
    CHECK(n_far_from_exact > difference.n_all / 20);
    WARN("hf_f32: cos and sin differ from transformers' " << difference.text() << "; " << n_far_from_exact
                                                          << " of the exact ones by more than 1");
}

TEST_CASE("sources: hf_f32 is of the angle in float32, at every position", "[sources]") {
    Random random(Catch::getSeed());
    std::int64_t n_wrong = 0;
    for (int round = 0; round < 400; round++) {
        std::vector<double> list;
        for (int k = 0; k < 16; k++) {
            list.push_back(static_cast<float>(random.unit() * std::exp2(static_cast<double>(random.in(-40, 20)))));
        }
        const double factor = random.one_of(attention_factors);
        std::vector<std::int32_t> positions = {0, 1, -1, 16777217, least_position, greatest_position};
        while (positions.size() < 20) {
            positions.push_back(
                static_cast<std::int32_t>(static_cast<std::int64_t>(random.bits()) >> random.in(32, 60)));
        }
        const auto rows = table_rows_at(make_frequencies(list, factor), positions, HALYARD_REFERENCE_HF_F32);
        for (std::size_t i = 0; i < 20 * 16; i++) {
            const float angle = static_cast<float>(positions[i / 16]) * static_cast<float>(list[i % 16]);
            // long double is wide enough: it is most unlikely that the middle of two floats lies within its error.
            const long double scale = static_cast<float>(factor);
            const auto cos = static_cast<float>(scale * std::cos(static_cast<long double>(angle)));
            const auto sin = static_cast<float>(scale * std::sin(static_cast<long double>(angle)));
            const std::size_t where = i / 16 * 32 + i % 16;
            n_wrong += rows[where] == cos ? 0 : 1;
            n_wrong += rows[where + 16] == sin ? 0 : 1;
        }
    }
    CHECK(n_wrong == 0);
}

TEST_CASE("sources: hf_f32 frequencies from a config are some ulp from transformers'", "[sources][golden]") {
    const golden::Section section("frequencies");
    std::int64_t greatest = 0;
    std::string report;
    for (const auto &entry : section.cases()) {
        Difference of_case;
        for (const auto &evaluation : entry.at("evaluations")) {
            const auto read = read_for(evaluation, read_golden(entry));
            const auto hf = section.array<float>(evaluation.at("inv_freq_hf_f32")).values;
            REQUIRE(read.info.rotary_dim == 2 * std::ssize(hf));
            for (std::size_t k = 0; k < hf.size(); k++) {
                of_case.add(ulps_between(static_cast<float>(read.info.inv_freq[k]), hf[k]));
            }
        }
        greatest = std::max(greatest, of_case.greatest);
        report += " " + entry.at("name").get<std::string>() + " " + std::to_string(of_case.greatest);
    }
    CHECK(greatest <= 4);
    WARN("ulp between float32(inv_freq) and transformers':" << report);
}

TEST_CASE("sources: hf_f32 reads given rows as they are", "[sources]") {
    const float rows[] = {0.25f, 0.5f, 0.75f, 1.0f};
    auto desc = describe_given(rows, rows + 2, 1, 4, 4);
    desc.reference = HALYARD_REFERENCE_HF_F32;
    const halyard::angle_source source{halyard::frequencies(), desc};
    CHECK(rows_of(source, nullptr, 1, 1) == std::vector<float>(rows, rows + 4));
}

// Tables by HALYARD_REFERENCE_HF_F32: Hugging Face's float32 cos and sin, in place of exact ones.
#include "checks/make_sources.h"
#include "checks/oracle.h"
#include "data/golden.h"

#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>

#include <cmath>
#include <string>
#include <vector>

TEST_CASE("sources: hf_f32 is within an ulp of transformers' cos and sin, given its frequencies", "[sources][golden]") {
    const golden::Section section("hf_apply"), of_frequencies("frequencies");
    std::int64_t n_far = 0, n_far_from_exact = 0, n_all = 0;
    for (const auto &entry : section.cases()) {
        const auto evaluation = of_frequencies.find_case(entry.at("frequencies_case")).at("evaluations").at(0);
        const auto hf = of_frequencies.array<float>(evaluation.at("inv_freq_hf_f32")).values;
        const auto frequencies = make_frequencies({hf.begin(), hf.end()}, evaluation.at("attention_factor"));
        const auto positions = section.array<std::int64_t>(entry.at("positions")).values;
        const auto rows = table_rows_at(frequencies, positions, HALYARD_REFERENCE_HF_F32),
                   exact = table_rows_at(frequencies, positions);
        const std::size_t n_pairs = hf.size();
        for (const bool is_sin : {false, true}) {
            const auto theirs = section.array<float>(entry.at(is_sin ? "sin" : "cos")).values;
            REQUIRE(2 * theirs.size() == rows.size());
            for (std::size_t i = 0; i < theirs.size(); i++) {
                const std::size_t at = i / n_pairs * 2 * n_pairs + (is_sin ? n_pairs : 0) + i % n_pairs;
                const auto is_near = [&](float ours) {
                    return ours == theirs[i] || std::nextafter(ours, theirs[i]) == theirs[i];
                };
                n_far += is_near(rows[at]) ? 0 : 1;
                n_far_from_exact += is_near(exact[at]) ? 0 : 1;
                n_all++;
            }
        }
    }
    CHECK(n_far == 0);
    // Many of Hugging Face's angles are far from exact, so exact tables would fail the comparison above.
    CHECK(n_far_from_exact > n_all / 20);
}

TEST_CASE("sources: hf_f32 is of the angle in float32, at every position", "[sources]") {
    oracle::Random random(Catch::getSeed());
    std::int64_t n_wrong = 0;
    for (int round = 0; round < 400; round++) {
        std::vector<double> list(16);
        std::ranges::generate(list, [&] {
            return static_cast<float>(random.unit() * std::exp2(static_cast<double>(random.in(-40, 20))));
        });
        const double factor = random.one_of(attention_factors);
        std::vector<std::int32_t> positions = {0, 1, -1, 16777217, least_position, greatest_position};
        while (positions.size() < 20) {
            positions.push_back(
                static_cast<std::int32_t>(static_cast<std::int64_t>(random.bits()) >> random.in(32, 60)));
        }
        const auto rows = table_rows_at(make_frequencies(list, factor), positions, HALYARD_REFERENCE_HF_F32);
        for (std::size_t i = 0; i < 20 * 16; i++) {
            const float angle = static_cast<float>(positions[i / 16]) * static_cast<float>(list[i % 16]);
            // long double is precise enough: a midpoint of two floats within its error is very unlikely.
            const long double scale = static_cast<float>(factor);
            const std::size_t at = i / 16 * 32 + i % 16;
            n_wrong += rows[at] != static_cast<float>(scale * std::cos(static_cast<long double>(angle))) ||
                       rows[at + 16] != static_cast<float>(scale * std::sin(static_cast<long double>(angle)));
        }
    }
    CHECK(n_wrong == 0);
}

TEST_CASE("sources: hf_f32 reads given rows as they are", "[sources]") {
    const float rows[] = {0.25f, 0.5f, 0.75f, 1.0f};
    auto desc = describe_given(rows, rows + 2, 1, 4, 4);
    desc.reference = HALYARD_REFERENCE_HF_F32;
    const halyard::angle_source source{halyard::frequencies(), desc};
    CHECK(rows_of(source, nullptr, 1, 1) == std::vector<float>(rows, rows + 4));
}

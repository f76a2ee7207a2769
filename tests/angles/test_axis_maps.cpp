// Positions with several axes: each pair uses the position on the axis that the axis map gives it, whatever the source.
// The random cases of test_properties.cpp test all maps, also with bad positions.
#include "count_wrong.h"
#include "config/read_config.h"
#include "data/golden_elements.h"

#include <catch2/generators/catch_generators_all.hpp>

TEST_CASE("axis maps: golden mrope, by configs, on every source and target", "[axes][golden]") {
    const golden::Section section("mrope");
    REQUIRE(section.cases().size() == 5);
    const char *const form = GENERATE("config_old", "config_new");
    std::int64_t n_apart = 0;
    for (const auto &entry : section.cases()) {
        INFO(entry.at("name").get<std::string>() << ", " << form);
        Rotation rotation = golden::rotation_of(entry);
        const auto positions = section.array<std::int64_t>(entry.at("positions"));
        const std::int64_t n_axes = positions.shape.at(0), n_tokens = positions.shape.at(1);
        const auto axes = entry.at("axis_of_pair").get<std::vector<std::int64_t>>();
        const auto base = entry.at("base").get<long double>(), freq_dim = entry.at("freq_dim").get<long double>();
        std::vector<double> inv_freq;
        for (const auto &index : entry.at("inv_freq_index")) {
            inv_freq.push_back(static_cast<double>(std::pow(base, -2 * index.get<long double>() / freq_dim)));
        }
        const auto exact = [&](std::int64_t token, std::int64_t k) {
            const auto pair = static_cast<std::size_t>(k), at = static_cast<std::size_t>(axes[pair] * n_tokens + token);
            return exact_cos_sin(inv_freq[pair], positions.values[at]);
        };
        const auto promised = [](oracle::Pair<long double> pair, const ExactCosSin &, long double result) {
            return oracle::promised_bound(HALYARD_F32, pair, 1, result);
        };
        const Elements x = golden::read_elements(section, entry.at("x"));
        CHECK(count_wrong(rotation, x, golden::read_elements(section, entry.at("y_exact")), exact, promised) == 0);
        for (std::int64_t t = 0; t < n_tokens; t++) {
            n_apart += positions.values[static_cast<std::size_t>(t)] !=
                       positions.values[static_cast<std::size_t>(n_tokens + t)];
        }
        auto at = halyard::positions(positions.values.data(), {1, n_tokens});
        at.n_axes = n_axes;
        at.stride_axis = n_tokens;
        const auto greatest = *std::max_element(positions.values.begin(), positions.values.end());
        const auto frequencies =
            entry.at("kind") == "vision"
                ? read_good(read_fixture("qwen2-vl-7b"), "vision").frequencies
                : read_good(golden::read_file(places::golden() + "/mrope/" + entry.at(form).get<std::string>()))
                      .frequencies;
        check_facts(frequencies.info(), {{"rotary_dim", entry.at("rotary_dim")},
                                         {"head_dim", entry.at("head_dim")},
                                         {"pairing", entry.at("pairing")},
                                         {"method", "default"}});
        for (const std::int32_t kind : {HALYARD_ANGLES_TABLE, HALYARD_ANGLES_PHASE}) {
            const halyard::angle_source source(frequencies, halyard::describe_angles(kind, 0, greatest + 1));
            for (const char *target : targets_here()) {
                INFO("kind " << kind << ", " << target);
                rotation.target = target;
                CHECK(count_wrong(rotation, x, rotate(rotation, source, &at, x), exact, promised) == 0);
            }
        }
    }
    CHECK(n_apart > 20);  // equal positions would hide mistakes
}

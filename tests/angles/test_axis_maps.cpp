// Positions with several axes: each pair reads the axis that the map says, whatever the source. Scenes take any map,
// also with bad positions (test_properties.cpp).
#include "angles/count_wrong.h"
#include "config/read_config.h"
#include "data/golden_elements.h"

TEST_CASE("axis maps: golden mrope, by every source and target", "[axes][golden]") {
    const golden::Section section("mrope");
    REQUIRE(section.cases().size() == 5);
    std::int64_t n_apart = 0;
    for (const auto &entry : section.cases()) {
        INFO(entry.at("name").get<std::string>());
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
        const auto counts = entry.at("section").get<std::vector<std::int64_t>>();
        const auto map = entry.at("kind") == "interleaved_axes" ? halyard::axis_map::interleaved(counts)
                                                                : halyard::axis_map::sections(counts);
        const auto greatest = *std::max_element(positions.values.begin(), positions.values.end());
        for (const std::int32_t kind : {HALYARD_ANGLES_TABLE, HALYARD_ANGLES_PHASE}) {
            const halyard::angle_source source(make_frequencies(inv_freq),
                                               halyard::describe_angles(kind, map, 0, greatest + 1));
            for (const char *target : targets_here()) {
                INFO("kind " << kind << ", " << target);
                rotation.target = target;
                CHECK(count_wrong(rotation, x, rotate(rotation, source, &at, x), exact, promised) == 0);
            }
        }
    }
    CHECK(n_apart > 20);  // equal positions would hide every mistake
}

TEST_CASE("axis maps: a source takes over what a config told its frequencies", "[axes]") {
    const auto config =
        type("qwen2_vl", "'rope_theta': 1e6, 'rope_scaling': {'type': 'mrope', 'mrope_section': [16, 24, 24]}");
    const auto frequencies = read_good(quoted(config)).frequencies;
    const auto stated = halyard::axis_map::sections({16, 24, 24});
    const std::int32_t text[] = {3, 4, 5, 10, 11, 12, 20, 21, 22};
    auto at = halyard::positions(text, {1, 3});
    at.n_axes = 3;
    at.stride_axis = 3;
    for (const std::int32_t kind : {HALYARD_ANGLES_AUTO, HALYARD_ANGLES_TABLE, HALYARD_ANGLES_PHASE}) {
        CAPTURE(kind);
        const halyard::angle_source taken(frequencies, halyard::describe_angles(kind, 0, 100));
        const halyard::angle_source same(frequencies, halyard::describe_angles(kind, stated, 0, 100));
        CHECK(rows_of(taken, &at, 1, 3) == rows_of(same, &at, 1, 3));
        // Text has one position on all axes, which is said by a stride of 0, or by leaving the axes out.
        const halyard::angle_source none(frequencies, halyard::describe_angles(kind, halyard::axis_map(), 0, 100));
        for (const std::int64_t n_axes : {0, 1, 3}) {
            auto one = at;
            one.n_axes = n_axes;
            one.stride_axis = n_axes == 3 ? 0 : INT64_MAX;
            const auto plain = halyard::positions(text, {1, 3});
            CHECK(rows_of(taken, &one, 1, 3) == rows_of(none, &plain, 1, 3));
        }
    }
    // Frequencies that no config told of have one axis.
    const halyard::angle_source base(halyard::frequencies::from_base(1e6, 128));
    CHECK(base.get()->axes.n_axes == 1);
    const auto info = base.info();
    CHECK((info.kind == HALYARD_ANGLES_PHASE && info.first == INT32_MIN && info.last == INT32_MAX));
}

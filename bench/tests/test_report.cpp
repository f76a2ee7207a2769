// Tests of what the bench makes of a run: comparisons, floors and files.
#include "checks/scratch_dir.h"
#include "report/compare.h"
#include "report/table.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

using namespace halyard;
using namespace halyard::bench;
using Catch::Matchers::ContainsSubstring;
using nlohmann::json;

namespace {

/// A run of rows with these names and ratios. All times have the same relative spread.
json make_run(const std::vector<std::pair<std::string, double>> &ratios, double spread = 0.01) {
    json run = {{"machine", {{"family", "some CPU"}, {"cpu", "c"}, {"commit", "k"}, {"date", "d"}}},
                {"command", "halyard_bench"},
                {"rows", json::array()}};
    for (const auto &[name, ratio] : ratios) {
        run["rows"].push_back(
            {{"name", name},
             {"target", "x86_avx2"},
             {"median_seconds", 1.0 / ratio},
             {"spread_seconds", spread / ratio},
             {"fastest_seconds", 1.0 / ratio},
             {"cold", name == "cold"},
             {"bytes", name == "large" ? 1e9 : 1e3},
             {"memory",
              {{"median_seconds", 1.0}, {"spread_seconds", spread}, {"fastest_seconds", 1.0}, {"ratio", ratio}}}});
    }
    return run;
}

}  // namespace

TEST_CASE("bench: compare reports what fell beyond noise, by ratio alone") {
    const json before = make_run({{"a", 0.8}, {"b", 0.8}, {"c", 0.8}, {"gone", 0.5}});
    json after = make_run({{"a", 0.7}, {"b", 0.77}, {"c", 0.95}, {"new", 0.5}});
    const Comparison result = compare(before, after);
    REQUIRE(result.slower.size() == 1);
    CHECK_THAT(result.slower[0], ContainsSubstring("a x86_avx2"));
    CHECK(result.n_compared == 3);
    CHECK(result.n_faster == 1);
    CHECK(result.n_only_in_one == 2);
    CHECK(compare(before, before).slower.empty());
    // The same fall is within the noise of rows of spread 10 %.
    CHECK(compare(before, make_run({{"a", 0.7}}, 0.1)).slower.empty());
    // A machine of half the speed has the same ratios.
    for (json &row : after["rows"]) {
        row["median_seconds"] = 2 * row["median_seconds"].get<double>();
        row["spread_seconds"] = 2 * row["spread_seconds"].get<double>();
    }
    CHECK(compare(before, after).slower.size() == 1);

    CHECK_THROWS_WITH(compare(before, json::array()), ContainsSubstring("--json"));
    CHECK_THROWS_WITH(compare(before, json::parse(R"({"rows": [{"name": "a", "target": "t"}]})")),
                      ContainsSubstring("--json"));
}

TEST_CASE("bench: floors are recorded for a CPU, and checked with a margin") {
    json recorded = record_floors(json::object(), {make_run({{"a", 0.8}, {"b", 0.5}, {"old", 0.9}})});
    CHECK(recorded["some CPU"]["x86_avx2"]["rows"].size() == 3);
    recorded = record_floors(recorded, {make_run({{"a", 0.8}, {"b", 0.7}, {"cold", 0.5}, {"large", 0.5}}),
                                        make_run({{"a", 0.9}, {"b", 0.5}})});
    CHECK(recorded["some CPU"]["x86_avx2"]["rows"] == json{{"a", 0.8}, {"b", 0.5}});

    FloorCheck check = check_floors(recorded, make_run({{"a", 0.49}, {"b", 0.29}, {"other", 0.1}}));
    CHECK(check.n_checked == 2);
    REQUIRE(check.below.size() == 1);
    CHECK_THAT(check.below["b"], ContainsSubstring("0.290") && ContainsSubstring("0.500"));

    json wider = make_run({{"a", 0.01}});
    wider["rows"][0]["target"] = "x86_avx512";
    CHECK(check_floors(recorded, wider).n_checked == 0);
    recorded = record_floors(recorded, std::vector<json>{wider});
    CHECK(recorded["some CPU"]["x86_avx2"]["rows"].size() == 2);
    CHECK(check_floors(recorded, wider).n_checked == 1);

    json elsewhere = make_run({{"a", 0.01}});
    elsewhere["machine"]["family"] = "another CPU";
    CHECK(check_floors(recorded, elsewhere).n_checked == 0);
}

TEST_CASE("bench: files are JSON or refused") {
    const ScratchDir dir;
    save_json(dir / "run.json", make_run({{"a", 0.8}}));
    CHECK(load_json(dir / "run.json") == make_run({{"a", 0.8}}));
    CHECK(dir.count_entries() == 1);
    CHECK_THROWS(save_json(dir / "no/such/folder.json", json::object()));
    CHECK_THROWS_WITH(load_json(dir / "absent"), ContainsSubstring("can't read"));
    CHECK_THROWS_WITH(load_json(dir.write("bad", "{")), ContainsSubstring("is not JSON"));
}

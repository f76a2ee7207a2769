// Tests of the bench's roads: that each way gives the right result, and that a wrong one is seen.
#include "checks/scratch_dir.h"
#include "report/table.h"
#include "road/road_call.h"
#include "road/road_row.h"
#include "road/shift_row.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>

using namespace halyard;
using namespace halyard::bench;
using Catch::Matchers::ContainsSubstring;
using nlohmann::json;

namespace {

constexpr Effort hardly_any = {3, 1e-6};

/// A row of the table for few tokens.
RoadWork find_work(const std::string &name, std::int64_t n_tokens) {
    const auto works = road_works();
    const auto found = std::ranges::find_if(works, [&](const RoadWork &work) { return work.name() == name; });
    REQUIRE(found != works.end());
    RoadWork work = *found;
    work.n_tokens = n_tokens;
    return work;
}

}  // namespace

TEST_CASE("bench: all ways of all roads are right") {
    for (RoadWork work : road_works()) {
        CAPTURE(work.name());
        if (work.n_tokens > 1) {
            continue;
        }
        for (const std::int64_t n_tokens : {1, 5}) {
            work.n_tokens = n_tokens;
            const Arena arena(PlacedRoad::bytes_needed(work));
            Setting setting;
            setting.effort = hardly_any;
            const RoadRow row = measure_road(work, arena, setting);
            CHECK_FALSE(row.is_wrong());
            for (const RoadWay &way : row.ways) {
                CAPTURE(static_cast<int>(way.kind), way.name, way.check.max_error);
                CHECK(way.check.n_wrong == 0);
                CHECK(way.timing.median > 0.0);
            }
            CHECK((row.find(RoadWay::Kind::unbound) != nullptr) == (n_tokens == 1));
            CHECK((row.find(RoadWay::Kind::without_norm) != nullptr) == work.model.has_norm());
            CHECK(row.find(RoadWay::Kind::separate) != nullptr);
            CHECK(to_json(row)["ways"].size() == row.ways.size());
            CHECK_THAT(format_roads({row}), ContainsSubstring(work.name()) && !ContainsSubstring("wrong"));
        }
    }
}

TEST_CASE("bench: all ways to shift a cache are right") {
    for (const dtype type : {dtype::bf16, dtype::e4m3}) {
        Setting setting;
        setting.effort = hardly_any;
        const ShiftRow row = measure_shift({2, 3, 32, 64, type}, setting);
        CAPTURE(row.work.name());
        CHECK(row.work.name() == std::string("shift/2x3x32x64/") + (type == dtype::e4m3 ? "e4m3" : "bf16"));
        CHECK(row.ways.size() >= 3);
        for (const ShiftWay &way : row.ways) {
            CAPTURE(way.name);
            CHECK(way.n_wrong == 0);
            CHECK(way.timing.median > 0.0);
        }
        CHECK(to_json(row)["ways"].size() == row.ways.size());
        CHECK_THAT(format_shifts({row}), ContainsSubstring(row.work.name()) && !ContainsSubstring("wrong"));
    }
    CHECK(format_shifts({}).empty());
}

TEST_CASE("bench: a road's separate steps are a run for each stage") {
    for (const auto &[name, n_runs] : {std::pair("llama-3-8b/64/bf16", 2u), {"gemma-3-4b/64/e4m3", 3u}}) {
        const RoadWork work = find_work(name, 3);
        const Arena arena(PlacedRoad::bytes_needed(work));
        const PlacedRoad placed(work, arena);
        CHECK(RoadCall(placed, RoadForm::separate, nullptr).n_runs() == n_runs);
        CHECK(RoadCall(placed, RoadForm::fused, nullptr).n_runs() == 1);
    }
}

TEST_CASE("bench: a road's result that is another one is seen") {
    for (const char *name : {"qwen3-8b/64/bf16", "qwen3-8b/64/e4m3", "deepseek-v3/64/bf16"}) {
        CAPTURE(name);
        const RoadWork work = find_work(name, 4);
        const Arena arena(PlacedRoad::bytes_needed(work));
        const PlacedRoad placed(work, arena);
        placed.reset();
        CHECK(placed.check(true, 0.0).n_wrong > 0);  // poison
        const RoadCall fused(placed, RoadForm::fused, nullptr);
        fused.run();
        CHECK(placed.check(true, 0.0).n_wrong == 0);
        CHECK(placed.check(false, 0.02).n_wrong > 0);  // it was normed
        RoadCall(placed, RoadForm::without_norm, nullptr).run();
        CHECK(placed.check(false, 0.0).n_wrong == 0);
        CHECK(placed.check(true, 0.02).n_wrong > 0);

        // One element of a cache, by two neighbours of its dtype; then a token in another's slot.
        fused.run();
        const std::size_t y = placed.layout().y[1];
        const std::int64_t row = work.model.parts[1].n_heads * work.model.parts[1].head_dim;
        const std::int64_t bytes = row * work.stored_bytes(work.model.parts[1]);
        const std::int64_t *const slots = placed.at<std::int64_t>(placed.layout().slots);
        char *const element = placed.at<char>(y) + slots[2] * bytes;
        *element = static_cast<char>(*element ^ 2);
        CHECK(placed.check(true, 0.0).n_wrong == 1);
        fused.run();
        std::swap_ranges(element, element + bytes, placed.at<char>(y) + slots[3] * bytes);
        CHECK(placed.check(true, 0.02).n_wrong > row / 4);
    }
}

TEST_CASE("bench: a peer that takes no road is seen") {
    const RoadWork work = find_work("qwen3-8b/1/bf16", 2);
    const Arena arena(PlacedRoad::bytes_needed(work));
    Peers peers({"python3", HALYARD_FAKE_PEERS, "good"}, arena, 2.0);
    Setting setting;
    setting.effort = hardly_any;
    setting.peers = &peers;
    const RoadRow row = measure_road(work, arena, setting);
    const RoadWay *const peer = row.find(RoadWay::Kind::peer, "right");
    REQUIRE(peer != nullptr);
    CHECK(peer->is_wrong());
    CHECK_FALSE(row.is_wrong());
    CHECK(format_roads({row}).find("(right is wrong") != std::string::npos);
}

TEST_CASE("bench: a faster rival counts only where it is right") {
    RoadRow row = {find_work("llama-3-8b/1/bf16", 1), "", {}};
    row.ways.push_back({RoadWay::Kind::fused, "", "", {}, {1.0, 0.0, 1.0}});
    row.ways.push_back({RoadWay::Kind::separate, "", "", {}, {0.5, 0.0, 0.5}});
    CHECK_FALSE(row.loses());
    row.ways.push_back({RoadWay::Kind::loop, "gcc", "", {}, {0.5, 0.0, 0.5}});
    CHECK(row.loses());
    row.ways.back().check.n_wrong = 1;
    CHECK_FALSE(row.loses());
    CHECK_FALSE(row.is_wrong());
    row.ways[1].check.n_wrong = 1;
    CHECK(row.is_wrong());
}

TEST_CASE("bench: the program writes its roads") {
    const ScratchDir dir;
    const auto status_of = [&](const std::string &arguments) {
        const std::string command =
            "'" HALYARD_BENCH_PATH "' road " + arguments + " >'" + (dir / "out") + "' 2>'" + (dir / "err") + "'";
        return WEXITSTATUS(std::system(command.c_str()));
    };
    const std::string file = "'" + (dir / "roads.json") + "'";
    REQUIRE(status_of("--quick --filter 'llama-3-8b/1/*' --json " + file) == 0);
    const json record = load_json(dir / "roads.json");
    REQUIRE(record["roads"].size() == 2);
    CHECK(record["roads"][0]["name"] == "llama-3-8b/1/bf16");
    CHECK(record["budget"][0]["stage_kernels"].get<int>() > 0);
    CHECK(status_of("--filter 'nothing*'") == 1);
    CHECK_THAT(dir.read("err"), ContainsSubstring("no row matches"));
}

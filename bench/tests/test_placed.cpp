// Tests of what the server places in memory: that a result which is another one is seen, and what calls find there.
#include "measure/rotation.h"
#include "road/road_call.h"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>

using namespace halyard;
using namespace halyard::bench;

namespace {

Work small_work(dtype type, bool in_place) {
    Work work;
    work.n_q_heads = 2;
    work.n_k_heads = 1;
    work.head_dim = work.rotary_dim = 16;
    work.n_tokens = 3;
    work.type = type;
    work.in_place = in_place;
    return work;
}

RoadWork find_work(const std::string &name, std::int64_t n_tokens, dtype cache) {
    const auto models = road_models();
    const auto found = std::ranges::find_if(models, [&](const RoadModel &model) { return model.name == name; });
    REQUIRE(found != models.end());
    return {*found, n_tokens, cache};
}

}  // namespace

TEST_CASE("bench: a result that is another one is seen") {
    const Work work = small_work(dtype::f32, false);
    const Arena arena(PlacedWork::bytes_needed(work));
    const PlacedWork placed(work, arena);
    placed.reset();
    CHECK_FALSE(placed.max_error(placed.y(0)) <= 1.0);  // poison
    std::vector<float> y(3 * 3 * 16);
    std::copy_n(reinterpret_cast<const float *>(placed.x(0)), y.size(), y.begin());
    CHECK(placed.max_error(y.data()) > 0.5);  // not rotated
}

TEST_CASE("bench: calls on a cold table read all of it, and other sources of angles take the same positions") {
    Work work = small_work(dtype::bf16, true);
    work.n_tokens = 64;
    work.cold_table = true;
    const Arena arena(PlacedWork::bytes_needed(work));
    PlacedWork placed(work, arena);
    std::vector<std::int64_t> positions = placed.positions();
    CHECK(positions.size() == 64 * placed.slots().size());
    CHECK(placed.x(placed.next_slot()) == placed.x(placed.next_slot()));
    CHECK_FALSE(std::ranges::is_sorted(positions));
    std::ranges::sort(positions);
    for (std::size_t i = 0; i < positions.size(); i++) {
        REQUIRE(positions[i] == static_cast<std::int64_t>(i));
    }
    for (const std::int32_t angles : {HALYARD_ANGLES_TABLE, HALYARD_ANGLES_FACTORED, HALYARD_ANGLES_PHASE}) {
        CAPTURE(angles);
        const Rotation rotation(placed, nullptr, nullptr, angles);
        placed.reset();
        rotation.run(0);
        CHECK(placed.max_error(placed.y(0)) <= placed.promised_error() + 0x1p-22);
        placed.reset();
        rotation.run(1);
        CHECK(placed.max_error(placed.y(0)) > 0.1);  // the second call has other positions
    }
}

TEST_CASE("bench: a road's separate steps are a run for each stage") {
    for (const auto &[name, n_runs] : {std::pair("llama-3-8b", 2u), {"gemma-3-4b", 3u}}) {
        const RoadWork work = find_work(name, 3, dtype::e4m3);
        const Arena arena(PlacedRoad::bytes_needed(work));
        const PlacedRoad placed(work, arena);
        CHECK(RoadCall(placed, RoadForm::separate, nullptr).n_runs() == n_runs);
        CHECK(RoadCall(placed, RoadForm::fused, nullptr).n_runs() == 1);
    }
}

TEST_CASE("bench: a road's result that is another one is seen") {
    for (const auto &[name, cache] :
         {std::pair("qwen3-8b", dtype::bf16), {"qwen3-8b", dtype::e4m3}, {"deepseek-v3", dtype::bf16}}) {
        CAPTURE(name, name_of(cache));
        const RoadWork work = find_work(name, 4, cache);
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

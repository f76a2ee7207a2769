// Tests of what the server places in memory: that a result which is another one is seen, and what calls find there.
#include "server/call.h"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>

using namespace halyard;
using namespace halyard::bench;

namespace {

Work small_work(dtype type, bool in_place) {
    Work work;
    work.parts = {{3, 16, 0, 16}};
    work.rotary_dim = 16;
    work.row_elements = 48;
    work.n_tokens = 3;
    work.type = type;
    work.in_place = in_place;
    return work;
}

/// q, k and v one behind the other: the last two are cached, the first two normed.
Work small_road(pairing how, dtype cache) {
    Work work = small_work(dtype::bf16, false);
    work.in = work.out = how;
    work.row_elements = 4 * 32;
    work.n_tokens = 4;
    work.n_slots = 64;
    work.cache = cache;
    work.parts = {
        {2, 32, 0, 32, true, false, 0, 32}, {1, 32, 64, 32, true, true, 16, 16}, {1, 32, 96, 32, false, true}};
    return work;
}

}  // namespace

TEST_CASE("bench: a result that is another one is seen") {
    const Work work = small_work(dtype::f32, false);
    const Arena arena(Placed::bytes_needed(work));
    Placed placed(work, arena);
    placed.reset();
    CHECK_FALSE(placed.check(0.05).max_error <= 1.0);  // poison
    std::copy_n(placed.x(0), work.tensor_bytes(), placed.y(0));
    CHECK(placed.check(0.05).max_error > 0.5);  // not rotated
    CHECK(placed.check(0.05).n_wrong > 0);
    Call(placed, {}).run(0);
    CHECK(placed.check(0.0).n_wrong == 0);
    *reinterpret_cast<float *>(placed.y(0)) += 0x1p-19f;
    CHECK(placed.check(0.0).n_wrong == 1);
    CHECK(placed.check(0.05).n_wrong == 0);
}

TEST_CASE("bench: calls on a cold table read all of it, and other sources of angles take the same positions") {
    Work work = small_work(dtype::bf16, true);
    work.n_tokens = 64;
    work.cold_table = true;
    const Arena arena(Placed::bytes_needed(work));
    Placed placed(work, arena);
    std::vector<std::int64_t> positions = placed.positions();
    CHECK(positions.size() == 64 * placed.layout().n_copies);
    CHECK(placed.x(placed.next_copy()) == placed.x(placed.next_copy()));
    CHECK_FALSE(std::ranges::is_sorted(positions));
    std::ranges::sort(positions);
    for (std::size_t i = 0; i < positions.size(); i++) {
        REQUIRE(positions[i] == static_cast<std::int64_t>(i));
    }
    for (const std::int32_t angles : {HALYARD_ANGLES_TABLE, HALYARD_ANGLES_PHASE}) {
        CAPTURE(angles);
        const Call call(placed, {"", nullptr, angles});
        placed.reset();
        call.run(0);
        CHECK(placed.check(0x1p-22).n_wrong == 0);
        placed.reset();
        call.run(1);
        CHECK(placed.check(0.0).max_error > 0.1);  // the second call has other positions
    }
}

TEST_CASE("bench: a road's result that is another one is seen") {
    for (const auto &[how, cache, by_column] : {std::tuple(pairing::half, dtype::bf16, false),
                                                {pairing::half, dtype::bf16, true},
                                                {pairing::half, dtype::e4m3, false},
                                                {pairing::half, dtype::uint8, false},
                                                {pairing::interleaved, dtype::bf16, false}}) {
        CAPTURE(how == pairing::half, name_of(cache), by_column);
        Work work = small_road(how, cache);
        work.hadamard = cache == dtype::uint8;
        work.by_column = by_column;
        const Arena arena(Placed::bytes_needed(work));
        Placed placed(work, arena);
        placed.reset();
        CHECK(placed.check(0.0).n_wrong > 0);  // poison
        const Call fused(placed, {});
        fused.run(0);
        CHECK(placed.check(0.0).n_wrong == 0);
        CHECK(placed.check(0.02, false).n_wrong > 0);  // it was normed
        Call(placed, {"", nullptr, work.angles, {false, true, true}}).run(0);
        CHECK(placed.check(0.0, false).n_wrong == 0);
        CHECK(placed.check(0.02).n_wrong > 0);

        // One element of a cache, by two neighbours of its dtype; then a token in another's slot.
        fused.run(0);
        const std::int64_t bytes = head_size(cache, 32) * bytes_of(cache);
        const std::int64_t *const slots = placed.at<std::int64_t>(placed.layout().slots);
        char *const y = placed.at<char>(placed.layout().y[1].at);
        const auto place_of = [&](std::int64_t slot) {
            return by_column ? (slot / page_size * 32 * page_size + slot % page_size) * bytes_of(cache) : slot * bytes;
        };
        char *const element = y + place_of(slots[2]) + (cache == dtype::uint8 ? 2 : 0);  // behind a record's scale
        *element = static_cast<char>(*element ^ 2);
        CHECK(placed.check(0.0).n_wrong == 1);
        fused.run(0);
        for (std::int64_t i = 0; i < bytes; i++) {
            const std::int64_t at = by_column ? i / 2 * 2 * page_size + i % 2 : i;
            std::swap(y[place_of(slots[2]) + at], y[place_of(slots[3]) + at]);
        }
        CHECK(placed.check(0.02).n_wrong > 32 / 4);
    }
}

TEST_CASE("bench: a road's stages leave nothing to each other but what they should") {
    const Work work = small_road(pairing::half, dtype::e4m3);
    const Arena arena(Placed::bytes_needed(work));
    Placed placed(work, arena);
    const Stages norm = {true, false, false}, rotation = {false, true, false}, store = {false, false, true};
    for (const bool bound : {false, true}) {
        placed.reset();
        Stages done = no_stages;
        for (const Stages &stages : {norm, rotation, store}) {
            CHECK(placed.check(0.02).n_wrong > 0);
            const Call call(placed, {"", nullptr, work.angles, stages, done});
            bound ? call.run_bound(0) : call.run(0);
            done = {true, !stages.norm, false};
        }
        CHECK(placed.check(0.02).n_wrong == 0);
    }
}

// Which cache descriptions are accepted. The random calls of test_kv_path.cpp check the stores: that each element goes
// where the layout says, that nothing else is written, and that the later of two tokens in one slot is kept.
#include "checks/cases/run_modes.h"

#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>

#include <numeric>

namespace {

using namespace cases;

/// Draws either a random small cache, which is mostly refused, or a cache of contiguous tiles whose last tile is cut
/// off at the end of a head or block.
void draw_any(oracle::Random &random, std::int64_t n_heads, std::int64_t head_dim, halyard_cache_desc &cache) {
    const auto small = [&](std::int64_t last) { return random.one_in(2) ? random.in(0, 3) : random.in(0, last); };
    cache.block_size = random.in(1, 5);
    cache.n_slots = cache.block_size * random.in(1, 3);
    cache.stride_block = random.in(-70, 70);
    cache.stride_head = random.in(-70, 70);
    cache.tile_tokens = random.in(0, 6);
    cache.stride_tile_tokens = small(30);
    cache.stride_token = small(30);
    cache.tile_elements = random.in(0, 7);
    cache.stride_tile_elements = small(30);
    cache.stride_element = small(4);
    if (random.one_in(4)) {
        cache.stride_element = 1;
        cache.tile_elements = random.in(1, 8);
        cache.tile_tokens = random.in(1, 4);
        cache.stride_token = cache.tile_elements;
        cache.stride_tile_tokens = cache.tile_tokens * cache.stride_token;
        cache.stride_tile_elements = (cache.block_size + 3) * cache.stride_token;
        cache.stride_head = (head_dim + 7) * cache.stride_tile_elements;
        cache.stride_block = n_heads * cache.stride_head;
    }
}

/// Creates a call's plan and makes its run. Returns the first status that is not HALYARD_OK.
halyard_status run(const Call &call, halyard_error *error) {
    halyard_plan *made = nullptr;
    const halyard_status status = halyard_create_plan(&call.plan, &made, error);
    const halyard::plan plan(made);
    return status != HALYARD_OK ? status : halyard_run(made, &call.args, error);
}

}  // namespace

TEST_CASE("caches: whatever is accepted, elements lie apart", "[kv][errors]") {
    oracle::Random random(Catch::getSeed());
    int n_accepted = 0, n_refused = 0, n_too_strict = 0;
    for (int round = 0; round < 20000; round++) {
        // One token for each slot.
        const std::int64_t head_dim = random.in(1, random.one_in(4) ? 24 : 6), H = random.in(1, 3);
        Call call;
        halyard_cache_desc &cache = call.caches[0];
        draw_any(random, H, head_dim, cache);
        std::vector<std::int32_t> slots(static_cast<std::size_t>(cache.n_slots));
        std::iota(slots.begin(), slots.end(), 0);
        call.plan.n_tensors = 1;
        call.tensors[0] = halyard::describe_tensor(halyard::dtype::f32, head_dim);
        call.tensors[0].kv = &call.kv[0];
        call.kv[0].no_rotation = 1;
        call.kv[0].cache = &cache;
        call.x[0] = halyard::tensor(nullptr, halyard::dtype::f32, {1, cache.n_slots, H, head_dim});
        call.slots = halyard::unchecked_slots(slots.data(), {1, cache.n_slots});
        call.kv_args.stages = call.stages;
        call.kv_args.slots = &call.slots;
        call.args.kv = &call.kv_args;
        const Extent reach = extent_of_cache(call, 0);
        const auto below = static_cast<std::int64_t>(-reach.low / 4), above = static_cast<std::int64_t>(reach.high / 4);
        std::vector<float> held(static_cast<std::size_t>(below + above + cache.n_slots * H * head_dim));
        float *const first = held.data() + below;
        call.stages[0].cache = first;
        std::vector<float *> places;
        for_each_output_element(call, [&](char *at, std::int32_t) { places.push_back(reinterpret_cast<float *>(at)); });
        auto sorted = places;
        std::sort(sorted.begin(), sorted.end());
        const bool is_apart = std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end();
        float *const behind = std::max(sorted.back(), first) + 1;  // the input follows the cache's last element
        std::iota(behind, behind + places.size(), 1.0f);
        call.x[0].data = behind;
        auto error = sized<halyard_error>();
        const auto status = run(call, &error);
        CAPTURE(round, error.message);
        if (status == HALYARD_OK) {
            n_accepted++;
            REQUIRE(is_apart);
            for (std::size_t i = 0; i < places.size(); i++) {
                REQUIRE(*places[i] == behind[i]);
            }
            REQUIRE(std::count_if(held.data(), behind, [](float x) { return x != 0; }) == std::ssize(places));
        } else {
            n_refused++;
            REQUIRE(status == HALYARD_ERROR_STRIDE);
            n_too_strict += is_apart ? 1 : 0;
        }
    }
    CHECK(n_accepted > 1000);
    CHECK(n_refused > 1000);
    CHECK(n_too_strict < n_accepted);  // the check may refuse some good caches
}

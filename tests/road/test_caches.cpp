// Caches: k and v in one buffer, who keeps a slot, and what descriptions are accepted. Scenes of roads (test_road.cpp)
// see that runs store each element where the description of any engine's layout says, and write nothing else.
#include "checks/scene/ways.h"

#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

namespace {

/// k, rotated, and v of four tokens become int8 with their own scales, at any addresses in caches of one shape.
struct KeysAndValues {
    static constexpr std::int64_t H = 2, D = 16, n_slots = 8, slot_values[] = {7, 0, -1, 3};
    std::vector<float> x = std::vector<float>(2 * 4 * H * D);

    KeysAndValues() {
        oracle::Random random(Catch::getSeed());
        std::ranges::generate(x, [&] { return static_cast<float>(random.unit()); });
    }
    /// Scales lie a row apart, too, as v's do from v.
    halyard_status store(std::int64_t row, char *k, char *v, char *scales, std::int64_t scale_row,
                         halyard_error *error = nullptr) const {
        auto cache = sized<halyard_cache_desc>();
        cache.n_slots = n_slots;
        cache.block_size = 4;
        cache.stride_block = 4 * row;
        cache.stride_head = n_slots * row;
        cache.stride_token = row;
        const auto dynamic = halyard::describe_dynamic_scales();
        auto kv = sized<halyard_kv_desc>();
        kv.out_dtype = HALYARD_INT8;
        kv.cache = &cache;
        kv.scale = &dynamic;
        auto unrotated = kv;
        unrotated.no_rotation = 1;
        std::vector tensors(2, halyard::describe_tensor(halyard::dtype::f32, D, halyard::pairing::half));
        tensors[0].kv = &kv;
        tensors[1].kv = &unrotated;
        const auto frequencies = halyard::frequencies::from_base(10000.0, D);
        const auto angles = halyard::angle_source::table(frequencies, 0, 10);
        const auto slots = halyard::slots(slot_values, {1, 4}, halyard::keep_last);
        halyard_stages stages[2] = {halyard::stages_into(k), halyard::stages_into(v)};
        for (const int i : {0, 1}) {
            stages[i].scales_out = reinterpret_cast<float *>(scales + 4 * i);
            stages[i].stride_scales[1] = scale_row / 4;
            stages[i].stride_scales[2] = n_slots * scale_row / 4;
        }
        const auto view = [&](int i) {
            return halyard::input_tensor(x.data() + i * 4 * H * D, halyard::dtype::f32, {1, 4, H, D});
        };
        const halyard_tensor views[] = {view(0), view(1)};
        const auto brought = halyard::kv_args(stages, &slots);
        auto args = sized<halyard_run_args>();
        args.angles = angles.get();
        args.x = args.y = views;
        args.kv = &brought;
        return halyard_run(halyard::plan({frequencies, tensors}).get(), &args, error);
    }
};

}  // namespace

TEST_CASE("caches: k and v of one packed buffer, and scales in its gaps", "[road]") {
    // [heads, slots, k | v | scale of k | scale of v], and each in an array of its own.
    const KeysAndValues of;
    constexpr std::int64_t D = KeysAndValues::D, n_rows = KeysAndValues::H * KeysAndValues::n_slots, row = 2 * D + 8;
    alignas(4) char packed[n_rows * row], k[n_rows * D], v[n_rows * D], scales[n_rows * 8];
    std::memset(packed, 0x5a, sizeof(packed));
    std::memset(k, 0x5a, sizeof(k));
    std::memset(v, 0x5a, sizeof(v));
    std::memset(scales, 0x5a, sizeof(scales));
    REQUIRE(of.store(D, k, v, scales, 8) == HALYARD_OK);
    REQUIRE(of.store(row, packed, packed + D, packed + 2 * D, row) == HALYARD_OK);
    for (std::int64_t i = 0; i < n_rows; i++) {
        const char *const at = packed + i * row;
        CHECK(std::equal(at, at + D, k + i * D));
        CHECK(std::equal(at + D, at + 2 * D, v + i * D));
        CHECK(std::equal(at + 2 * D, at + row, scales + i * 8));
    }
    // A byte to the left, a scale would meet v.
    auto error = sized<halyard_error>();
    CHECK(of.store(row, packed, packed + D, packed + 2 * D - 1, row, &error) == HALYARD_ERROR_OVERLAP);
    CAPTURE(error.message);
    CHECK(std::string(error.message).find("shares elements with args.kv.stages[0].scales_out") != std::string::npos);
}

TEST_CASE("caches: of two tokens in one slot the later one is kept, whatever the threads", "[road][threads]") {
    using namespace scenes;
    oracle::Random random(Catch::getSeed());
    for (int round = 0; round < 3; round++) {
        Choice choice = Choice::of_rotations();
        choice.level[of_layout] = nhd;
        choice.level[of_policy] = HALYARD_SLOTS_RANGE_ONLY;
        choice.level[of_slots] = round % 2;
        choice.level[of_scale] = round;
        choice.level[of_values] = 0;
        choice.n_tensors = 1;
        choice.shape = {1, 120, 8};  // worth several threads
        choice.head_dim = 256;
        choice.rotary_dim = 64;
        Draw draw(random);
        Scene scene(draw, choice);
        REQUIRE(fault_of_ways(scene) == "");
        const Images expected = run(scene, nullptr, Way::whole);
        for (const std::int32_t n_threads : {1, 2, 3, 7}) {
            CHECK(scene.difference(expected, run(scene, nullptr, Way::pool, n_threads)) == "");
        }
        scene.memory.restore(scene.before);
        const halyard::plan plan(scene.call.plan);
        std::vector<std::jthread> threads;
        for (std::int32_t part = 0; part < 5; part++) {
            threads.emplace_back([&, args = scene.call.args, part]() mutable {
                args.part = part;
                args.n_parts = 5;
                halyard_run(plan.get(), &args, nullptr);
            });
        }
        threads.clear();
        CHECK(scene.difference(expected, scene.memory.image()) == "");
    }
}

namespace {

/// Any cache, small and mostly refused; or one whose tiles lie one behind the other, the last of which heads and blocks
/// cut off.
halyard_cache_desc random_cache(oracle::Random &random, std::int64_t n_heads, std::int64_t head_dim) {
    auto cache = sized<halyard_cache_desc>();
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
    cache.extent = random.in(0, 60);
    if (random.one_in(4)) {
        cache.stride_element = 1;
        cache.tile_elements = random.in(1, 8);
        cache.tile_tokens = random.in(1, 4);
        cache.stride_token = cache.tile_elements;
        cache.stride_tile_tokens = cache.tile_tokens * cache.stride_token;
        cache.stride_tile_elements = (cache.block_size + 3) * cache.stride_token;
        cache.stride_head = (head_dim + 7) * cache.stride_tile_elements;
        cache.stride_block = n_heads * cache.stride_head;
        cache.extent = 0;
    }
    return cache;
}

/// Where elements lie, [slots, heads, elements], as halyard.h has it. Returns whether all are inside the extent.
bool find_places(const halyard_cache_desc &cache, std::int64_t H, std::int64_t head_dim,
                 std::vector<std::int64_t> &places) {
    const std::int64_t Tt = cache.tile_tokens == 0 ? cache.block_size : cache.tile_tokens;
    const std::int64_t Dt = cache.tile_elements == 0 ? head_dim : cache.tile_elements;
    const std::int64_t s3 = cache.stride_element == 0 ? 1 : cache.stride_element;
    bool is_inside = true;
    for (std::int64_t slot = 0; slot < cache.n_slots; slot++) {
        for (std::int64_t i = 0; i < H * head_dim; i++) {
            const std::int64_t t = slot % cache.block_size, h = i / head_dim, d = i % head_dim;
            const std::int64_t in_block = t / Tt * cache.stride_tile_tokens + t % Tt * cache.stride_token +
                                          d / Dt * cache.stride_tile_elements + d % Dt * s3;
            is_inside = is_inside && (cache.extent == 0 || in_block < cache.extent);
            places.push_back(slot / cache.block_size * cache.stride_block + h * cache.stride_head + in_block);
        }
    }
    return is_inside;
}

/// Takes heads, one for each slot, into a cache.
halyard_status store_all(const halyard_cache_desc &cache, std::int64_t H, std::int64_t head_dim, float *x, float *into,
                         halyard_error *error) {
    auto desc = halyard::describe_tensor(halyard::dtype::f32, head_dim);
    auto kv = sized<halyard_kv_desc>();
    kv.no_rotation = 1;
    kv.cache = &cache;
    desc.kv = &kv;
    halyard_plan *made = nullptr;
    auto plan_desc = sized<halyard_plan_desc>();
    plan_desc.n_tensors = 1;
    plan_desc.tensors = &desc;
    const auto status = halyard_create_plan(&plan_desc, &made, error);
    const halyard::plan plan(made);
    if (status != HALYARD_OK) {
        return status;
    }
    std::vector<std::int32_t> order(static_cast<std::size_t>(cache.n_slots));
    std::iota(order.begin(), order.end(), 0);
    const auto view = halyard::tensor(x, halyard::dtype::f32, {1, cache.n_slots, H, head_dim});
    const auto slots = halyard::slots(order.data(), {1, cache.n_slots}, halyard::keep_last);
    const auto stages = halyard::stages_into(into);
    const auto brought = halyard::kv_args(&stages, &slots);
    auto args = sized<halyard_run_args>();
    args.x = args.y = &view;
    args.kv = &brought;
    return halyard_run(plan.get(), &args, error);
}

}  // namespace

TEST_CASE("caches: whatever is accepted, elements lie apart and inside the extent", "[road][errors]") {
    oracle::Random random(Catch::getSeed());
    int n_accepted = 0, n_refused = 0, n_too_strict = 0;
    for (int round = 0; round < 20000; round++) {
        const std::int64_t head_dim = random.in(1, random.one_in(4) ? 24 : 6), H = random.in(1, 3);
        const halyard_cache_desc cache = random_cache(random, H, head_dim);
        std::vector<std::int64_t> places;
        const bool is_inside = find_places(cache, H, head_dim, places);
        auto sorted = places;
        std::sort(sorted.begin(), sorted.end());
        const bool is_apart = std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end();
        // The input lies directly behind the last element.
        constexpr std::int64_t middle = 2000;
        std::vector<float> held(static_cast<std::size_t>(middle + std::max<std::int64_t>(sorted.back(), 0) + 1) +
                                places.size() + 100);
        float *const behind = held.data() + std::max<std::int64_t>(middle + 1 + sorted.back(), 0);
        std::iota(behind, behind + places.size(), 1.0f);
        auto error = sized<halyard_error>();
        const auto status = store_all(cache, H, head_dim, behind, held.data() + middle, &error);
        CAPTURE(round, error.message);
        if (status == HALYARD_OK) {
            n_accepted++;
            REQUIRE((is_apart && is_inside));
            for (std::size_t i = 0; i < places.size(); i++) {
                REQUIRE(held[static_cast<std::size_t>(middle + places[i])] == behind[i]);
            }
            REQUIRE(std::count_if(held.data(), behind, [](float x) { return x != 0; }) == std::ssize(places));
        } else {
            n_refused++;
            REQUIRE(status == HALYARD_ERROR_STRIDE);
            n_too_strict += is_apart && is_inside ? 1 : 0;
        }
    }
    CHECK(n_accepted > 1000);
    CHECK(n_refused > 1000);
    CHECK(n_too_strict < n_accepted);  // it is conservative
}

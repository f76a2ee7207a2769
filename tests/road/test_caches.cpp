// Caches: engines' layouts as descriptions and as formulas, k and v in one buffer, rows of MLA, and who keeps a slot.
#include "checks/rotate.h"
#include "checks/scene/ways.h"

#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

// That runs store each element where the description of any layout says, and write nothing else, is seen by the scenes
// of roads (test_road.cpp).
TEST_CASE("caches: each layout's description leads to where its formula does", "[road]") {
    constexpr std::int64_t bs = 32, n_pages = 3, n_heads = 3;
    std::int64_t slot = 0;
    scenes::Call call;
    call.plan.n_tensors = 1;
    call.tensors[0].dtype = HALYARD_F32;
    call.kv[0].cache = &call.caches[0];
    call.slots = halyard::slots(&slot, {1, 1}, halyard::keep_last);
    for (const std::int64_t head_dim : {64, 80, 576}) {
        for (int layout = rows; layout < n_layouts_of_caches; layout++) {
            CAPTURE(head_dim, layout);
            call.tensors[0].head_dim = head_dim;
            std::vector<float> held(
                static_cast<std::size_t>(describe_layout(layout, n_pages, bs, n_heads, head_dim, call.caches[0])));
            call.stages[0].cache = held.data();
            std::int64_t n_wrong = 0;
            for (slot = 0; slot < n_pages * bs; slot++) {
                for (std::int64_t i = 0; i < n_heads * head_dim; i++) {
                    const std::int64_t h = i / head_dim, d = i % head_dim;
                    const std::int64_t at = index_in_layout(layout, bs, n_heads, head_dim, slot, h, d);
                    const float *const place = &held.at(static_cast<std::size_t>(at));
                    n_wrong += static_cast<void *>(place_of_output(call, 0, {0, 0, h}, d)) == place ? 0 : 1;
                }
            }
            CHECK(n_wrong == 0);
        }
    }
}

TEST_CASE("caches: k and v of one packed buffer, and scales in its gaps", "[road]") {
    // [heads, slots, k | v | scale of k | scale of v], 8 bits and their f32 scales.
    constexpr std::int64_t bs = 4, n_pages = 2, H = 2, D = 16, row = 2 * D + 8, n_slots = n_pages * bs;
    auto cache = sized<halyard_cache_desc>();
    cache.n_slots = n_slots;
    cache.block_size = bs;
    cache.stride_block = bs * row;
    cache.stride_head = n_slots * row;
    cache.stride_token = row;
    const auto scales = halyard::describe_dynamic_scales();
    auto k = halyard::describe_tensor(halyard::dtype::f32, D, halyard::pairing::half);
    auto k_kv = sized<halyard_kv_desc>();
    k_kv.out_dtype = HALYARD_INT8;
    k_kv.cache = &cache;
    k_kv.scale = &scales;
    auto v_kv = k_kv;
    v_kv.no_rotation = 1;
    k.kv = &k_kv;
    auto v = k;
    v.kv = &v_kv;
    const auto frequencies = halyard::frequencies::from_base(10000.0, D);
    const auto angles = halyard::angle_source::table(frequencies, 0, 10);
    const halyard::plan plan(halyard::plan_desc(frequencies, {k, v}));
    std::vector<float> x(2 * n_slots * H * D);
    for (std::size_t i = 0; i < x.size(); i++) {
        x[i] = static_cast<float>(std::sin(static_cast<double>(i)));
    }
    alignas(4) char memory[H * n_slots * row];
    std::memset(memory, 0x5a, sizeof(memory));
    const std::int64_t slot_values[] = {7, 0, -1, 3};
    const auto slots = halyard::slots(slot_values, {1, 4}, halyard::keep_last);
    halyard_stages stages[2] = {halyard::stages_into(memory), halyard::stages_into(memory + D)};
    for (const int i : {0, 1}) {
        stages[i].scales_out = reinterpret_cast<float *>(memory + 2 * D + 4 * i);
        stages[i].stride_scales[1] = row / 4;
        stages[i].stride_scales[2] = n_slots * row / 4;
    }
    const halyard_tensor views[] = {halyard::tensor(x.data(), halyard::dtype::f32, {1, 4, H, D}),
                                    halyard::tensor(x.data() + 4 * H * D, halyard::dtype::f32, {1, 4, H, D})};
    const auto kv = halyard::kv_args(stages, &slots);
    halyard::run(plan, angles, views, views, halyard::run_options().with(kv));
    for (std::int64_t head = 0; head < H; head++) {
        for (std::int64_t slot = 0; slot < n_slots; slot++) {
            const char *const at = memory + (head * n_slots + slot) * row;
            const auto *const token = std::find(slot_values, slot_values + 4, slot);
            if (token == slot_values + 4) {
                CHECK(std::all_of(at, at + row, [](char c) { return c == 0x5a; }));
                continue;
            }
            float scale = 0;
            std::memcpy(&scale, at + 2 * D + 4, 4);
            for (std::int64_t d = 0; d < D; d++) {
                const float value = x[static_cast<std::size_t>(4 * H * D + ((token - slot_values) * H + head) * D + d)];
                CHECK(std::fabs(static_cast<float>(static_cast<signed char>(at[D + d])) * scale - value) <=
                      scale * 0.5001f);
            }
        }
    }
    // A byte to the left, a scale would meet v.
    stages[0].scales_out = reinterpret_cast<float *>(memory + 2 * D - 1);
    auto error = sized<halyard_error>();
    auto args = sized<halyard_run_args>();
    args.angles = angles.get();
    args.x = args.y = views;
    args.kv = &kv;
    CHECK(halyard_run(plan.get(), &args, &error) == HALYARD_ERROR_OVERLAP);
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

// 512 latent elements that are normed, and 64 beside them that are rotated, from interleaved to half; 1 head.
TEST_CASE("caches: rows of multi-head latent attention", "[road]") {
    using namespace scenes;
    oracle::Random random(Catch::getSeed());
    for (int round = 0; round < 12; round++) {
        Choice choice = Choice::of_rotations();
        choice.level[of_turn] = 3;
        choice.level[of_norm] = 4;
        choice.level[of_layout] = round % 2 == 0 ? nhd : rows;
        choice.level[of_values] = 0;
        choice.n_tensors = 1;
        choice.shape = {1, 5, 1};
        choice.head_dim = 576;
        choice.rotary_dim = 64;
        choice.rotary_offset = 512;
        Draw draw(random);
        Scene scene(draw, choice, Scene::InSteps());
        scene.draw_plan();
        scene.call.norms[0].window_offset = 0;
        scene.call.norms[0].window_size = 512;
        scene.draw_run();
        REQUIRE(scene.create_angles() == "");
        REQUIRE(fault_of_ways(scene) == "");
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

}  // namespace

TEST_CASE("caches: whatever is accepted, elements lie apart and inside the extent", "[road][errors]") {
    oracle::Random random(Catch::getSeed());
    int n_accepted = 0, n_refused = 0, n_too_strict = 0;
    for (int round = 0; round < 20000; round++) {
        const std::int64_t head_dim = random.in(1, random.one_in(4) ? 24 : 6), H = random.in(1, 3);
        const halyard_cache_desc cache = random_cache(random, H, head_dim);
        // As halyard.h has it.
        const std::int64_t Tt = cache.tile_tokens == 0 ? cache.block_size : cache.tile_tokens;
        const std::int64_t Dt = cache.tile_elements == 0 ? head_dim : cache.tile_elements;
        const std::int64_t s3 = cache.stride_element == 0 ? 1 : cache.stride_element;
        std::vector<std::int64_t> places;
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
        auto sorted = places;
        std::sort(sorted.begin(), sorted.end());
        const bool is_apart = std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end();
        auto desc = halyard::describe_tensor(halyard::dtype::f32, head_dim);
        auto kv = sized<halyard_kv_desc>();
        kv.no_rotation = 1;
        kv.cache = &cache;
        desc.kv = &kv;
        // The input lies directly behind the last element.
        constexpr std::int64_t middle = 2000;
        std::vector<float> held(static_cast<std::size_t>(middle + std::max<std::int64_t>(sorted.back(), 0) + 1) +
                                places.size() + 100);
        float *const behind = held.data() + std::max<std::int64_t>(middle + 1 + sorted.back(), 0);
        std::iota(behind, behind + places.size(), 1.0f);
        std::vector<std::int32_t> order(static_cast<std::size_t>(cache.n_slots));
        std::iota(order.begin(), order.end(), 0);
        auto error = sized<halyard_error>();
        halyard_plan *made = nullptr;
        auto plan_desc = sized<halyard_plan_desc>();
        plan_desc.n_tensors = 1;
        plan_desc.tensors = &desc;
        auto status = halyard_create_plan(&plan_desc, &made, &error);
        const halyard::plan plan(made);
        if (status == HALYARD_OK) {
            const auto view = halyard::tensor(behind, halyard::dtype::f32, {1, cache.n_slots, H, head_dim});
            const auto slots = halyard::slots(order.data(), {1, cache.n_slots}, halyard::keep_last);
            const auto stages = halyard::stages_into(held.data() + middle);
            auto args = sized<halyard_run_args>();
            args.x = args.y = &view;
            const auto brought = halyard::kv_args(&stages, &slots);
            args.kv = &brought;
            status = halyard_run(plan.get(), &args, &error);
        }
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

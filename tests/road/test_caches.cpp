// Caches: every layout of engines.md element by element, k and v in one buffer, rows of MLA, and who keeps a slot.
#include "checks/guarded_memory.h"
#include "checks/oracle.h"
#include "checks/rotate.h"
#include "checks/scene/cache_layouts.h"
#include "checks/sized.h"
#include "halyard/halyard.hpp"

#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

namespace {

/// A tensor that is not rotated, so that it takes its way unchanged.
halyard_tensor_desc copied(halyard::dtype dtype, halyard::dtype out_dtype, std::int64_t head_dim,
                           const halyard_cache_desc &cache) {
    auto desc = halyard::describe_tensor(dtype, head_dim);
    desc.out_dtype = static_cast<std::int32_t>(out_dtype);
    desc.no_rotation = 1;
    desc.cache = &cache;
    return desc;
}

/// Runs a plan of one tensor into a cache.
void store(const halyard::plan &plan, const halyard_tensor &x, const halyard_slots &slots, void *cache,
           const halyard_executor *executor = nullptr) {
    const auto stages = halyard::stages_into(cache);
    halyard::run_options options;
    options.slots = slots;
    options.stages = stages;
    options.executor = executor;
    halyard::run(plan, halyard::angle_source(), x, x, options);
}

}  // namespace

TEST_CASE("caches: each layout holds each element where its formula says", "[road]") {
    constexpr std::int64_t bs = 32, n_pages = 3, n_slots = bs * n_pages, n_heads = 3;
    std::vector<std::int32_t> order(n_slots);
    std::iota(order.begin(), order.end(), 0);
    const bool shuffled = GENERATE(false, true);
    if (shuffled) {
        oracle::Random random(Catch::getSeed());
        for (std::size_t i = order.size() - 1; i > 0; i--) {
            std::swap(order[i], order[static_cast<std::size_t>(random.in(0, static_cast<std::int64_t>(i)))]);
        }
    }
    // Of two bytes there are enough values for all elements; of four, direct copies where heads are rows.
    for (const std::int64_t head_dim : {64, 80, 576}) {
        for (int layout = rows; layout < n_layouts_of_caches; layout++) {
            for (const bool converts : {false, true}) {
                CAPTURE(head_dim, layout, converts);
                auto cache = sized<halyard_cache_desc>();
                const std::int64_t n = describe_layout(layout, n_pages, bs, n_heads, head_dim, cache);
                const std::int64_t n_x = n_slots * n_heads * head_dim;
                std::vector<float> x(static_cast<std::size_t>(n_x));
                std::iota(x.begin(), x.end(), 1.0f);  // exact in f32
                // Bounded by pages that nothing may touch on one side, and then the other.
                for (const bool at_start : {false, true}) {
                    const auto n_bytes = static_cast<std::size_t>(n) * 4;
                    const GuardedMemory memory((n_bytes + GuardedMemory::page - 1) / GuardedMemory::page);
                    char *const data = at_start ? memory.begin() : memory.end() - n_bytes;
                    std::fill(memory.begin(), memory.end(), '\x5a');
                    auto desc = copied(halyard::dtype::f32, halyard::dtype::f32, head_dim, cache);
                    const auto one = halyard::describe_static_scales();
                    desc.scale = converts ? &one : nullptr;  // has it go through blocks
                    const halyard::plan plan(halyard::plan_desc(0, {desc}));
                    auto stages = halyard::stages_into(data);
                    const float scale = 1.0f;
                    stages.scales = converts ? &scale : nullptr;
                    stages.n_scales = converts ? 1 : 0;
                    std::vector<unsigned char> scratch(n_slots / 8);
                    const auto slots = halyard::slots(order.data(), {1, n_slots}, scratch.data(), n_slots / 8);
                    halyard::run_options options;
                    options.slots = slots;
                    options.stages = stages;
                    const auto view = halyard::tensor(x.data(), halyard::dtype::f32, {1, n_slots, n_heads, head_dim});
                    halyard::run(plan, halyard::angle_source(), view, view, options);
                    std::vector<float> held(static_cast<std::size_t>(n)), expected(held.size());
                    std::memcpy(held.data(), data, n_bytes);
                    std::memset(expected.data(), 0x5a, n_bytes);
                    for (std::int64_t token = 0; token < n_slots; token++) {
                        for (std::int64_t i = 0; i < n_heads * head_dim; i++) {
                            const std::int64_t at =
                                index_in_layout(layout, bs, n_heads, head_dim, order[static_cast<std::size_t>(token)],
                                                i / head_dim, i % head_dim);
                            expected.at(static_cast<std::size_t>(at)) =
                                x[static_cast<std::size_t>(token * n_heads * head_dim + i)];
                        }
                    }
                    CHECK(std::memcmp(held.data(), expected.data(), n_bytes) == 0);
                    const char *const rest_begin = at_start ? data + n_bytes : memory.begin();
                    const char *const rest_end = at_start ? memory.end() : data;
                    CHECK(std::all_of(rest_begin, rest_end, [](char c) { return c == '\x5a'; }));
                }
            }
        }
    }
}

TEST_CASE("caches: tiles that head_dim and the block cut off", "[road]") {
    // 22 elements in tiles of 8, and blocks of 10 tokens in tiles of 4.
    constexpr std::int64_t D = 22, bs = 10, n_slots = 2 * bs;
    auto cache = sized<halyard_cache_desc>();
    cache.n_slots = n_slots;
    cache.block_size = bs;
    cache.stride_block = 1000;
    cache.tile_tokens = 4;
    cache.stride_tile_tokens = 4 * 8;
    cache.stride_token = 8;
    cache.tile_elements = 8;
    cache.stride_tile_elements = 12 * 8;
    cache.extent = 2 * 12 * 8 + 9 * 8 + 6;  // of the last token's last tile
    const halyard::plan plan(halyard::plan_desc(0, {copied(halyard::dtype::f32, halyard::dtype::f32, D, cache)}));
    std::vector<float> x(n_slots * D), held(2000, -1.0f), expected = held;
    std::iota(x.begin(), x.end(), 0.0f);
    std::vector<std::int32_t> order(n_slots);
    std::iota(order.rbegin(), order.rend(), 0);
    for (std::int64_t token = 0; token < n_slots; token++) {
        const std::int64_t slot = n_slots - 1 - token, t = slot % bs;
        for (std::int64_t d = 0; d < D; d++) {
            expected[static_cast<std::size_t>(slot / bs * 1000 + t / 4 * 32 + t % 4 * 8 + d / 8 * 96 + d % 8)] =
                x[static_cast<std::size_t>(token * D + d)];
        }
    }
    store(plan, halyard::tensor(x.data(), halyard::dtype::f32, {1, n_slots, 1, D}),
          halyard::slots(order.data(), {1, n_slots}, halyard::keep_last), held.data());
    CHECK(held == expected);
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
    k.out_dtype = HALYARD_INT8;
    k.cache = &cache;
    k.scale = &scales;
    auto v = k;
    v.no_rotation = 1;
    const auto frequencies = halyard::frequencies::from_base(10000.0, D);
    const auto angles = halyard::angle_source::table(frequencies, 0, 9);
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
    halyard::run_options options;
    options.slots = slots;
    options.stages = stages;
    halyard::run(plan, angles, views, views, options);
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
    args.slots = &slots;
    args.stages = stages;
    CHECK(halyard_run(plan.get(), &args, &error) == HALYARD_ERROR_OVERLAP);
    CAPTURE(error.message);
    CHECK(std::string(error.message).find("shares elements with stages[0].scales_out") != std::string::npos);
}

TEST_CASE("caches: of two tokens in one slot the later one is kept, whatever the threads", "[road][threads]") {
    constexpr std::int64_t n_tokens = 3000, n_slots = 40, H = 4, D = 64;
    oracle::Random random(Catch::getSeed());
    std::vector<std::int64_t> slot_values(n_tokens);
    std::vector<float> x(n_tokens * H * D);
    for (std::size_t t = 0; t < n_tokens; t++) {
        slot_values[t] = random.in(-1, n_slots - 1);
        std::fill_n(x.data() + t * H * D, H * D, static_cast<float>(t));
    }
    const auto slots = halyard::slots(slot_values.data(), {1, n_tokens}, halyard::keep_last);
    const auto view = halyard::tensor(x.data(), halyard::dtype::f32, {1, n_tokens, H, D});
    const auto cache = halyard::describe_nhd_cache(n_slots, 1, H, D);
    const auto one = halyard::describe_static_scales();
    for (const bool staged : {false, true}) {
        auto desc = copied(halyard::dtype::f32, halyard::dtype::f32, D, cache);
        desc.scale = staged ? &one : nullptr;
        const halyard::plan plan(halyard::plan_desc(0, {desc}));
        std::vector<float> held(n_slots * H * D, -1.0f), expected = held;
        for (std::size_t t = 0; t < n_tokens; t++) {
            if (slot_values[t] >= 0) {
                std::fill_n(expected.data() + slot_values[t] * H * D, H * D, static_cast<float>(t));
            }
        }
        auto stages = halyard::stages_into(held.data());
        const float scale = 1.0f;
        stages.scales = staged ? &scale : nullptr;
        stages.n_scales = staged ? 1 : 0;
        halyard::run_options options;
        options.slots = slots;
        options.stages = stages;
        for (const std::int32_t n_threads : {1, 2, 3, 7}) {
            const halyard::pool pool(n_threads);
            options.executor = pool.executor();
            std::fill(held.begin(), held.end(), -1.0f);
            halyard::run(plan, halyard::angle_source(), view, view, options);
            CHECK(held == expected);
        }
        options.executor = nullptr;
        std::fill(held.begin(), held.end(), -1.0f);
        std::vector<std::jthread> threads;
        for (std::int32_t part = 0; part < 5; part++) {
            threads.emplace_back([&, part] {
                auto mine = options;
                mine.part = {part, 5};
                halyard::run(plan, halyard::angle_source(), view, view, mine);
            });
        }
        threads.clear();
        CHECK(held == expected);
    }
}

TEST_CASE("caches: rows of multi-head latent attention", "[road]") {
    // 512 latent elements that are normed, and 64 beside them that are rotated, from interleaved to half; 1 head.
    constexpr std::int64_t D = 576, latent = 512, rotary = 64, n_tokens = 5, bs = 16;
    auto norm = halyard::describe_norm(halyard::dtype::f32);
    norm.window_size = latent;
    const auto cache = halyard::describe_nhd_cache(2, bs, 1, D);
    auto row =
        halyard::describe_tensor(halyard::dtype::f32, D, halyard::pairing::interleaved, halyard::pairing::half, latent);
    row.norm = &norm;
    row.cache = &cache;
    const auto frequencies = halyard::frequencies::from_base(10000.0, rotary);
    const auto angles = halyard::angle_source::table(frequencies, 0, 99);
    const halyard::plan plan(halyard::plan_desc(rotary, {row}));
    std::vector<float> x(n_tokens * D), weight(latent, 2.0f), held(2 * bs * D, -1.0f);
    for (std::size_t i = 0; i < x.size(); i++) {
        x[i] = static_cast<float>(std::cos(static_cast<double>(i)));
    }
    const std::int32_t slot_values[] = {3, 4, 31, 0, 17};
    const auto slots = halyard::slots(slot_values, {1, n_tokens}, halyard::keep_last);
    const auto stages = halyard::stages(weight.data(), latent, held.data());
    const std::int32_t start = 42;
    const auto positions = halyard::consecutive_positions(&start, 1);
    halyard::run_options options;
    options.positions = positions;
    options.slots = slots;
    options.stages = stages;
    const auto view = halyard::tensor(x.data(), halyard::dtype::f32, {1, n_tokens, 1, D});
    halyard::run(plan, angles, view, view, options);
    for (std::int64_t t = 0; t < n_tokens; t++) {
        const float *const in = x.data() + t * D, *const out = held.data() + slot_values[t] * D;
        double sum = 0;
        for (std::int64_t i = 0; i < latent; i++) {
            sum += double(in[i]) * in[i];
        }
        double worst = 0;
        for (std::int64_t i = 0; i < latent; i++) {
            worst = std::max(worst, std::fabs(out[i] - 2 * in[i] / std::sqrt(sum / latent + 1e-6)));
        }
        for (std::int64_t k = 0; k < rotary / 2; k++) {
            const double theta = static_cast<double>(start + t) * std::pow(10000.0, -2.0 * double(k) / rotary);
            const double a = in[latent + 2 * k], b = in[latent + 2 * k + 1];
            worst = std::max(worst, std::fabs(out[latent + k] - (a * std::cos(theta) - b * std::sin(theta))));
            worst =
                std::max(worst, std::fabs(out[latent + rotary / 2 + k] - (a * std::sin(theta) + b * std::cos(theta))));
        }
        CHECK(worst < 2e-6);
    }
    CHECK(std::count(held.begin(), held.end(), -1.0f) == (2 * bs - n_tokens) * D);
}

TEST_CASE("caches: whatever is accepted, elements lie apart and inside the extent", "[road][errors]") {
    oracle::Random random(Catch::getSeed());
    int n_accepted = 0, n_refused = 0, n_too_strict = 0;
    for (int round = 0; round < 20000; round++) {
        auto cache = sized<halyard_cache_desc>();
        const auto small = [&](std::int64_t last) { return random.one_in(2) ? random.in(0, 3) : random.in(0, last); };
        const std::int64_t head_dim = random.in(1, 6), H = random.in(1, 3);
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
        std::sort(places.begin(), places.end());
        const bool is_apart = std::adjacent_find(places.begin(), places.end()) == places.end();
        auto desc = halyard::describe_tensor(halyard::dtype::f32, head_dim);
        desc.no_rotation = 1;
        desc.cache = &cache;
        // The input lies directly behind the last element.
        std::vector<float> held(4000, 0.0f);
        float *const behind = held.data() + std::clamp<std::int64_t>(2001 + places.back(), 0, 3000);
        std::fill_n(behind, cache.n_slots * H * head_dim, 1.0f);
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
            const auto stages = halyard::stages_into(held.data() + 2000);
            auto args = sized<halyard_run_args>();
            args.x = args.y = &view;
            args.slots = &slots;
            args.stages = &stages;
            status = halyard_run(plan.get(), &args, &error);
        }
        CAPTURE(round, error.message);
        if (status == HALYARD_OK) {
            n_accepted++;
            REQUIRE((is_apart && is_inside));
            std::vector<std::int64_t> written;
            for (const float *at = held.data(); at < behind; at++) {
                if (*at != 0.0f) {
                    written.push_back(at - held.data() - 2000);
                }
            }
            REQUIRE(written == places);
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

TEST_CASE("caches: blocks further apart than 32 bits reach, and inputs with any strides", "[road]") {
    constexpr std::int64_t D = 16, H = 2, n_tokens = 4, bs = 8, far = (std::int64_t{1} << 31) + 64;
    auto cache = halyard::describe_nhd_cache(2, bs, H, D);
    cache.stride_block = far;
    const GuardedMemory memory(static_cast<std::size_t>((far + bs * H * D) * 4) / GuardedMemory::page + 1);
    char *const data = memory.end() - (far + bs * H * D) * 4;
    const auto frequencies = halyard::frequencies::from_base(100.0, D);
    const auto angles = halyard::angle_source::table(frequencies, 0, 9);
    const std::int32_t slot_values[n_tokens] = {3, bs + 3, 1, bs + 7};
    const auto slots = halyard::slots(slot_values, {1, n_tokens}, halyard::keep_last);
    // From the last element to the first: heads and elements are reversed.
    std::vector<float> x(n_tokens * H * D * 2), dense(n_tokens * H * D), expected(dense.size());
    std::iota(x.begin(), x.end(), 1.0f);
    const auto view = halyard::tensor(&x.back(), halyard::dtype::f32, {1, n_tokens, H, D}, {0, -2 * H * D, -2 * D, -2});
    for (std::int64_t i = 0; i < n_tokens * H * D; i++) {
        dense[static_cast<std::size_t>(i)] = *(&x.back() - 2 * i);
    }
    auto head = halyard::describe_tensor(halyard::dtype::f32, D, halyard::pairing::half);
    const halyard::plan in_place(halyard::plan_desc(frequencies, {head}));
    expected = dense;
    const auto dense_view = halyard::tensor(expected.data(), halyard::dtype::f32, {1, n_tokens, H, D});
    halyard::run(in_place, angles, dense_view, dense_view);
    const auto one = halyard::describe_static_scales();
    const float scale = 1.0f;
    for (const bool staged : {false, true}) {
        for (const char *target : targets_here()) {
            CAPTURE(staged, target);
            if (std::strcmp(target, "x86_sse41") == 0) {
                continue;  // without FMA its bits differ
            }
            head.cache = &cache;
            head.scale = staged ? &one : nullptr;
            halyard::plan_desc desc(frequencies, {head});
            desc.target = target;
            const halyard::plan plan(desc);
            auto stages = halyard::stages_into(data);
            stages.scales = staged ? &scale : nullptr;
            stages.n_scales = staged ? 1 : 0;
            halyard::run(plan, angles, view, view, halyard::run_options().into(slots, stages));
            for (std::size_t t = 0; t < n_tokens; t++) {
                char *const at = data + (slot_values[t] / bs * far + slot_values[t] % bs * H * D) * 4;
                CHECK(std::memcmp(at, expected.data() + t * H * D, H * D * 4) == 0);
                std::memset(at, 0, H * D * 4);
            }
        }
    }
}

// Whole roads, from projection to cache: a covering array of all their stages against the oracle, on every target; and
// the same bits for any split of the work.
#include "checks/rotate.h"
#include "checks/scene/ways.h"

#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>

#include <bit>
#include <cmath>
#include <numeric>

namespace {

using namespace scenes;

/// Runs a road on every target and in every way, against the oracle.
void check_road(const Levels &levels, std::uint64_t seed, bool moves = false) {
    CAPTURE(levels, seed);
    Choice choice;
    choice.level = levels;
    choice.moves = moves;
    oracle::Random random(seed);
    Draw draw(random);
    Scene scene(draw, choice);
    CAPTURE(scene.text());  // of what crashes
    REQUIRE(fault_of_ways(scene) == "");
}

}  // namespace

TEST_CASE("road: every pair of stages on every target", "[road]") {
    oracle::Random random(Catch::getSeed());
    Levels n_levels = of_roads;
    n_levels[of_head_dim] = 7;
    n_levels[of_values] = n_levels[of_groups] = n_levels[of_from_groups] = 1;
    const auto choices = cover_pairs(random, n_levels);
    CHECK(choices.size() > 60);
    std::uint64_t seed = Catch::getSeed();
    for (const Levels &levels : choices) {
        check_road(levels, ++seed);
    }
}

TEST_CASE("moves: every pair of what they are put together from, on every target", "[road][moves]") {
    oracle::Random random(Catch::getSeed());
    Levels n_levels = of_moves;
    n_levels[of_head_dim] = 5;
    n_levels[of_groups] = 1;
    std::uint64_t seed = Catch::getSeed();
    for (const Levels &levels : cover_pairs(random, n_levels)) {
        check_road(levels, ++seed, true);
    }
}

// Those that have records have no scale, and no other dtype where these are.
TEST_CASE("road: every pair of stages and records, on every target", "[road][groups]") {
    oracle::Random random(Catch::getSeed());
    Levels n_levels = of_roads;
    n_levels[of_head_dim] = 10;
    n_levels[of_scale] = 1;
    std::uint64_t seed = Catch::getSeed();
    for (const Levels &levels : cover_pairs(random, n_levels)) {
        check_road(levels, ++seed);
    }
}

TEST_CASE("moves: every pair of what they are put together from and records, on every target",
          "[road][moves][groups]") {
    oracle::Random random(Catch::getSeed());
    Levels n_levels = of_moves;
    n_levels[of_head_dim] = 10;
    n_levels[of_dtype] = n_levels[of_scale] = 1;
    std::uint64_t seed = Catch::getSeed();
    for (const Levels &levels : cover_pairs(random, n_levels)) {
        check_road(levels, ++seed, true);
    }
}

// Scenes of f32 are judged to the bit.
TEST_CASE("road: a scale by position is one product, before any other scale", "[road]") {
    oracle::Random random(Catch::getSeed());
    for (int round = 0; round < 2 * 2 * 2; round++) {
        Choice choice = Choice::of_rotations();
        choice.level[of_dtype] = 0;
        choice.level[of_turn] = round % 2 == 0 ? 1 : 4;
        choice.level[of_scale] = round / 2 % 2;
        choice.level[of_position_scales] = 3;  // of tokens and heads
        choice.n_tensors = 1;
        choice.shape = {2, 5, 131};  // more heads than fit in a block
        choice.rotary_dim = 64;
        choice.rotary_offset = 3;
        choice.head_dim = 70;
        Draw draw(random);
        Scene scene(draw, choice);
        REQUIRE(scene.call.is_plain(0));
        REQUIRE(fault_of_ways(scene) == "");
    }
}

// A norm of whole heads, their rotation in half pairing and the store are one kernel, where a cache lets it.
TEST_CASE("road: norm and rotation at once, into every cache", "[road]") {
    oracle::Random random(Catch::getSeed());
    constexpr int norms[] = {1, 2, 3, 6, 8, 10};  // the last three have no such kernel
    Levels n_levels;
    n_levels.fill(1);
    n_levels[of_dtype] = 3;
    n_levels[of_layout] = n_layouts_of_caches;
    n_levels[of_norm] = std::size(norms);
    n_levels[of_head_dim] = 7;
    n_levels[of_rounding] = 2;
    for (const Levels &drawn : cover_pairs(random, n_levels)) {
        const int norm = norms[drawn[of_norm]];
        Levels levels = Choice::all_drawn();
        levels[of_dtype] = drawn[of_dtype];
        levels[of_layout] = drawn[of_layout];
        levels[of_norm] = norm;
        levels[of_head_dim] = drawn[of_head_dim];
        levels[of_out_dtype] = levels[of_turn] = levels[of_order] = levels[of_scale] = levels[of_window] =
            levels[of_values] = 0;
        levels[of_rounding] = drawn[of_rounding] == 0 ? 0 : 1 + norm % 3;  // by which it takes more than one kernel
        check_road(levels, random.bits());
        if (norm == 1) {
            levels[of_rounding] = 0;
            levels[of_order] = 1;  // nor have norms after the rotation
            check_road(levels, random.bits());
            levels[of_order] = levels[of_position_scales] = levels[of_hadamard] = 0;
            levels[of_groups] = levels[of_from_groups] = 1;  // nor bytes of records that become others
            check_road(levels, random.bits());
        }
    }
}

// Weights and biases of all heads are more than fits beside a block of them; and rows are as long as a block, or
// longer.
TEST_CASE("road: norms of many heads, with weights of their own or of the row", "[road]") {
    oracle::Random random(Catch::getSeed());
    for (int round = 0; round < 24; round++) {
        const bool is_row = round % 3 == 0;
        Choice choice;
        const bool is_layer = round % 2 == 0;
        choice.level[of_norm] = !is_row ? 10 : is_layer ? 9 : 6;
        choice.level[of_values] = 0;
        choice.head_dim = 512;
        choice.rotary_dim = 64;
        choice.shape = {1, 3, is_row ? (is_layer ? 8 : 16) + round % 4 : 12};
        choice.n_tensors = 1;
        Draw draw(random);
        Scene scene(draw, choice);
        REQUIRE(fault_of_ways(scene) == "");
    }
}

// The pairs of very wide heads are rotated some at a time.
TEST_CASE("road: heads beside those whose pairs are rotated in turn are normed once", "[road]") {
    constexpr std::int64_t wide = 16384, narrow = 64;
    auto norm = halyard::make_struct<halyard_norm_desc>();
    norm.eps = 1.0;
    auto v = halyard::describe_tensor(halyard::dtype::f32, narrow);
    auto kv = sized<halyard_kv_desc>();
    kv.no_rotation = 1;
    kv.norm = &norm;
    v.kv = &kv;
    const auto angles = halyard::angle_source::phase(halyard::frequencies::from_base(10000.0, wide));
    std::vector<float> q(wide, 1.0f), beside(narrow), alone;
    std::iota(beside.begin(), beside.end(), 1.0f);
    alone = beside;
    const auto view = [](std::vector<float> &head) {
        return halyard::tensor(head.data(), halyard::dtype::f32, {1, 1, 1, static_cast<std::int64_t>(head.size())});
    };
    const halyard_tensor both[] = {view(q), view(beside)};
    halyard::run(
        halyard::plan({wide, {halyard::describe_tensor(halyard::dtype::f32, wide, halyard::pairing::half), v}}), angles,
        both, both);
    halyard::run(halyard::plan({0, {v}}), halyard::angle_source(), view(alone), view(alone));
    CHECK(beside == alone);
}

namespace {

/// One head of one token by way of a norm, a scale and a dtype. Returns the bits of each element.
std::vector<std::uint32_t> take(const halyard_norm_desc *norm, const halyard_scale_desc *scale, std::int32_t out_dtype,
                                const std::vector<float> &x, const char *target, float *scale_out = nullptr) {
    auto desc = halyard::describe_tensor(halyard::dtype::f32, static_cast<std::int64_t>(x.size()));
    auto kv = sized<halyard_kv_desc>();
    kv.no_rotation = 1;
    kv.out_dtype = out_dtype;
    kv.norm = norm;
    kv.scale = scale;
    desc.kv = &kv;
    halyard::plan_desc plan_desc(0, {desc});
    plan_desc.target = target;
    const halyard::plan plan(plan_desc);
    const std::int64_t bytes = oracle::element_bytes(out_dtype), n = desc.head_dim;
    std::vector<char> y(x.size() * static_cast<std::size_t>(bytes));
    auto stages = halyard::stages();
    stages.scales_out = scale_out;
    const auto brought = halyard::kv_args(&stages);
    halyard::run(plan, halyard::angle_source(), halyard::input_tensor(x.data(), halyard::dtype::f32, {1, 1, 1, n}),
                 halyard::tensor(y.data(), static_cast<halyard::dtype>(out_dtype), {1, 1, 1, n}),
                 halyard::run_options().with(brought));
    std::vector<std::uint32_t> words;
    for (std::int64_t i = 0; i < n; i++) {
        std::uint32_t word = 0;
        std::memcpy(&word, y.data() + i * bytes, static_cast<std::size_t>(bytes));
        words.push_back(word);
    }
    return words;
}

using Bits = std::vector<std::uint32_t>;

}  // namespace

TEST_CASE("road: the ends of the numbers", "[road]") {
    const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
    for (const char *target : stage_targets_here()) {
        CAPTURE(target);
        CHECK((take(nullptr, nullptr, HALYARD_INT8, {nan, inf, -inf, 127.5f, -200.0f, 2.5f, -3.5f, -0.0f}, target) ==
               Bits{0, 127, 128, 127, 128, 2, 252, 0}));
        CHECK((take(nullptr, nullptr, HALYARD_E4M3, {nan, inf, -1e9f, 448.0f, 0x1p-9f, 0x1p-10f, 0x1.8p-9f, -0.0f},
                    target) == Bits{0x7f, 0x7e, 0xfe, 0x7e, 0x01, 0x00, 0x02, 0x80}));
        CHECK((take(nullptr, nullptr, HALYARD_E5M2, {inf, -1e9f, 57344.0f, 61440.0f, 0x1p-16f, 0x1p-17f}, target) ==
               Bits{0x7b, 0xfb, 0x7b, 0x7b, 0x01, 0x00}));
        CHECK((take(nullptr, nullptr, HALYARD_F16, {65504.0f, 65520.0f, -inf, 0x1p-25f, 0x1.8p-24f, 1.0f}, target) ==
               Bits{0x7bff, 0x7c00, 0xfc00, 0x0000, 0x0002, 0x3c00}));
        // A sum of squares that overflows gives r = 0.
        auto norm = sized<halyard_norm_desc>();
        CHECK((take(&norm, nullptr, HALYARD_F32, {1e30f, -1.0f, 0.0f, 5.0f}, target) == Bits{0, 0x80000000u, 0, 0}));
        CHECK((take(&norm, nullptr, HALYARD_F32, {0.0f, -0.0f, 0.0f, 0.0f}, target) == Bits{0, 0x80000000u, 0, 0}));
        // The default of eps is 1e-6: r = 1 / sqrt(1 + 1e-6), and half of that.
        const float r = 1.0f / std::sqrt(1.0f + 1e-6f);
        CHECK((take(&norm, nullptr, HALYARD_F32, {1.0f, -1.0f, 1.0f, 1.0f}, target)[1] ==
               std::bit_cast<std::uint32_t>(-r)));
        norm.no_eps = 1;
        CHECK((take(&norm, nullptr, HALYARD_F32, {1.0f, -1.0f, 1.0f, 1.0f}, target)[1] == 0xbf800000u));
        for (const std::uint32_t word : take(&norm, nullptr, HALYARD_F32, {0.0f, 0.0f}, target)) {
            CHECK(std::isnan(std::bit_cast<float>(word)));
        }
        // Dynamic scales look at finite values, and are 1 where there is nothing, or too little, to scale by.
        const auto dynamic = halyard::describe_dynamic_scales();
        float scale = 0;
        CHECK((take(nullptr, &dynamic, HALYARD_INT8, {2.0f, -254.0f, inf, nan, -inf}, target, &scale) ==
               Bits{1, 129, 127, 0, 128}));
        CHECK(scale == 2.0f);
        CHECK((take(nullptr, &dynamic, HALYARD_INT8, {0.0f, -0.0f, nan}, target, &scale) == Bits{0, 0, 0}));
        CHECK(scale == 1.0f);
        take(nullptr, &dynamic, HALYARD_E4M3, {0x1p-120f, 0.0f}, target, &scale);
        CHECK(scale == 1.0f);
        CHECK((take(nullptr, &dynamic, HALYARD_E4M3, {448 * 0x1p-126f, 0.0f}, target, &scale) == Bits{0x7e, 0}));
        CHECK(scale == 0x1p-126f);
    }
}

TEST_CASE("road: layer norms of equal numbers, of zeros, and of too large ones", "[road]") {
    const float most = std::numeric_limits<float>::max();
    for (const char *target : stage_targets_here()) {
        CAPTURE(target);
        auto norm = sized<halyard_norm_desc>();
        norm.kind = HALYARD_NORM_LAYER;
        const auto normed = [&](const std::vector<float> &x) { return take(&norm, nullptr, HALYARD_F32, x, target); };
        // Without a bias nothing is added, not even +0 to -0.
        CHECK((normed({-0.0f, -0.0f, -0.0f}) == Bits{0x80000000u, 0x80000000u, 0x80000000u}));
        CHECK((normed({3.0f, 3.0f, 3.0f, 3.0f}) == Bits{0, 0, 0, 0}));
        CHECK((normed({7.0f}) == Bits{0}));
        const float r = 1.0f / std::sqrt(1.0f + 1e-6f);
        CHECK((normed({5.0f, 3.0f}) == Bits{std::bit_cast<std::uint32_t>(r), std::bit_cast<std::uint32_t>(-r)}));
        // A sum of squares that overflows gives r = 0; a sum that does, NaN.
        CHECK((normed({1e30f, -1.0f, 0.0f, 5.0f}) == Bits{0, 0x80000000u, 0x80000000u, 0x80000000u}));
        CHECK(std::isnan(std::bit_cast<float>(normed({most, most})[0])));
        norm.no_eps = 1;
        CHECK(std::isnan(std::bit_cast<float>(normed({3.0f, 3.0f})[1])));
        CHECK((normed({5.0f, 3.0f}) == Bits{0x3f800000u, 0xbf800000u}));
    }
}

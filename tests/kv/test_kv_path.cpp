// The KV path from projection to cache, and re-rotations of stored keys: random cases of all stages are compared with
// the oracle, on every target and in every run mode.
#include "checks/cases/run_modes.h"

#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <numeric>

namespace {

using namespace cases;
using oracle::Random;

Random seeded() { return Random(Catch::getSeed()); }

void check(const Choice &choice, Random &random) {
    const std::uint64_t seed = random.bits();
    CAPTURE(choice.level, seed);
    Random contents(seed);
    Draw draw(contents);
    Case drawn(draw, choice);
    CAPTURE(drawn.text());  // shown if a run crashes
    REQUIRE(fault_in_run_modes(drawn) == "");
}

/// Checks cases, among which any two levels of two factors occur together. `max_levels` limits those of some factors.
void check_level_pairs(bool rerotates, const std::vector<std::pair<Factor, int>> &max_levels) {
    Random random = seeded();
    Levels n_levels = rerotates ? of_rerotation : of_kv_path;
    for (const auto &[factor, n] : max_levels) {
        n_levels[factor] = n;
    }
    for (const Levels &levels : cover_level_pairs(random, n_levels)) {
        Choice choice;
        choice.level = levels;
        choice.rerotates = rerotates;
        check(choice, random);
    }
}

}  // namespace

TEST_CASE("kv path: every pair of stages on every target", "[kv]") {
    check_level_pairs(false, {{of_head_dim, 7}, {of_values, 1}, {of_groups, 1}, {of_from_groups, 1}});
}

TEST_CASE("moves: every pair of what they are put together from, on every target", "[kv][moves]") {
    check_level_pairs(true, {{of_head_dim, 5}, {of_groups, 1}});
}

// Cases with quantised records have no scale.
TEST_CASE("kv path: every pair of stages and records, on every target", "[kv][groups]") {
    check_level_pairs(false, {{of_head_dim, 10}, {of_scale, 1}});
}

TEST_CASE("moves: every pair of what they are put together from and records, on every target", "[kv][moves][groups]") {
    check_level_pairs(true, {{of_head_dim, 10}, {of_dtype, 1}, {of_scale, 1}});
}

// Values that are hard to quantise: ties, extremes, subnormal and non-finite numbers.
TEST_CASE("groups: hard groups of every preset, on every target", "[kv][groups]") {
    static constexpr std::int64_t head_dims[] = {96, 96, 96, 96, 96, 96, 96, 96, 576, 512, 512, 96};
    Random random = seeded();
    for (int i = 0; i < 12 * 8; i++) {
        Choice choice = Choice::of_rotations();
        choice.level[of_groups] = choice.level[of_values] = 1;
        choice.level[of_from_groups] = i / 12 % 4 == 3 ? 1 : 0;
        choice.level[of_dtype] = 0;
        choice.level[of_pairing] = 4;
        choice.preset = HALYARD_GROUPS_GGML_Q8_0 + i % 12;
        choice.head_dim = head_dims[i % 12];
        choice.rotary_dim = 32;
        choice.shape = {1, 4, 20};
        choice.n_tensors = 1;
        check(choice, random);
    }
}

// One kernel norms whole heads, rotates them in half pairing and stores them, if the cache's layout permits.
TEST_CASE("kv path: norm and rotation at once, into every cache", "[kv]") {
    Random random = seeded();
    constexpr int norms[] = {1, 2, 3, 4, 6, 8, 10, 10, 10};  // the last six have no such kernel
    Levels n_levels;
    n_levels.fill(1);
    n_levels[of_dtype] = 3;
    n_levels[of_layout] = n_layouts_of_caches;
    n_levels[of_norm] = std::size(norms);
    n_levels[of_head_dim] = 7;
    n_levels[of_rounding] = 2;
    int n_others = 0;
    for (const Levels &drawn : cover_level_pairs(random, n_levels)) {
        Choice choice = Choice::of_rotations();
        choice.level[of_pairing] = choice.level[of_order] = choice.level[of_window] = choice.level[of_values] = 0;
        for (const Factor factor : {of_dtype, of_layout, of_head_dim}) {
            choice.level[factor] = drawn[factor];
        }
        const int norm = choice.level[of_norm] = norms[drawn[of_norm]];
        choice.level[of_rounding] = drawn[of_rounding] == 0 ? 0 : 1 + norm % 3;  // roundings need several kernels
        check(choice, random);
        if (norm == 1) {  // each of these levels needs several kernels, too
            static constexpr std::pair<Factor, int> others[] = {{of_order, 1},   {of_pairing, 1}, {of_pairing, 2},
                                                                {of_pairing, 3}, {of_window, 1},  {of_groups, 1}};
            const auto [factor, level] = others[static_cast<std::size_t>(n_others++) % std::size(others)];
            choice.level[factor] = level;
            choice.level[of_from_groups] = factor == of_groups ? 1 : 0;
            choice.level[of_rounding] = 0;
            check(choice, random);
        }
    }
}

// With many heads, weights or scales by position do not fit beside a block of heads, and a row of all heads is as long
// as a block or longer.
TEST_CASE("kv path: many heads, with weights of their own or of the row, or scales by position", "[kv]") {
    Random random = seeded();
    for (int round = 0; round < 4 * 8; round++) {
        const bool is_even = round / 4 % 2 == 0;
        Choice choice = round % 4 == 0 ? Choice::of_rotations() : Choice();
        choice.level[of_values] = 0;
        choice.n_tensors = 1;
        choice.rotary_dim = 64;
        if (round % 4 == 0) {
            choice.level[of_dtype] = 0;
            choice.level[of_pairing] = is_even ? 1 : 4;
            choice.level[of_scale] = round / 8 % 2;
            choice.level[of_position_scales] = 3;  // per token and head
            choice.shape = {2, 5, 131};
            choice.head_dim = 70;
            choice.rotary_offset = 3;
        } else {
            const bool is_row = round % 4 == 1;
            choice.level[of_norm] = !is_row ? 10 : is_even ? 9 : 6;
            choice.shape = {1, 3, is_row ? (is_even ? 8 : 16) + round / 8 : 12};
            choice.head_dim = 512;
        }
        check(choice, random);
    }
}

// Error bounds cannot show whether a norm rounds, because they hold in either case. So the bits are compared.
TEST_CASE("kv path: each rounding of a norm is seen in the bits", "[kv]") {
    struct Form {
        int norm, window;
        std::int64_t n_tokens, n_heads, head_dim;
    };
    const Form form = GENERATE(Form{1, 0, 37, 8, 0},     // without roundings, such heads have a kernel of their own
                               Form{1, 1, 37, 8, 0},     // normed while they are loaded
                               Form{4, 1, 37, 8, 0},     // a window of each head, which is normed after it was loaded
                               Form{8, 1, 37, 8, 0},     // layer norms
                               Form{6, 1, 3, 17, 512});  // rows that are longer than a block
    std::vector<std::vector<Images>> results;
    for (int rounding = 0; rounding < 4; rounding++) {
        Choice choice = Choice::of_rotations();
        choice.level[of_norm] = form.norm;
        choice.level[of_dtype] = 2;  // bf16
        choice.level[of_rounding] = rounding;
        choice.level[of_window] = form.window;
        for (const Factor factor : {of_order, of_pairing, of_values, of_head_dim, of_strides}) {  // norm first, finite
            choice.level[factor] = 0;
        }
        choice.shape = {1, form.n_tokens, form.n_heads};
        choice.head_dim = form.head_dim;
        choice.rotary_dim = form.head_dim / 8;
        Random random = seeded();
        results.emplace_back();
        for (int i = 0; i < 8; i++) {  // some weights or rows hide a rounding
            Draw draw(random);
            Case drawn(draw, choice);
            results.back().push_back(run_kernel_model(drawn));
        }
        CHECK(std::count(results.begin(), results.end(), results.back()) == 1);
    }
}

// The longest heads have more pairs than the rows that are made at once.
TEST_CASE("moves: from one source to another or within it, of many tokens and of long heads",
          "[kv][moves][sources][axes]") {
    Random random = seeded();
    static constexpr std::int64_t shapes[][3] = {{1, 300, 29}, {40, 11, 29}, {3, 7, 29}, {1, 5, 10000}};
    for (int round = 0; round < 4 * 2 * 3; round++) {
        const auto &[n_batch, n_tokens, head_dim] = shapes[round % 4];
        Choice choice = Choice::of_rotations();
        choice.rerotates = true;
        choice.level[of_from] = random.one_in(4) ? Angles::same : Angles::other;
        choice.level[of_dtype] = round / 4 % 2 * 2;  // f32, bf16
        choice.shape = {n_batch, n_tokens, 2};
        choice.head_dim = head_dim;
        choice.rotary_dim = head_dim == 29 ? 24 : head_dim;
        choice.n_tensors = head_dim == 29 ? 0 : 1;  // a second tensor's dtype might not allow such heads
        check(choice, random);
    }
}

// Very wide heads are rotated in several blocks of pairs; the tensors beside them must still be normed only once.
TEST_CASE("kv path: heads beside those whose pairs are rotated in turn are normed once", "[kv]") {
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
        return halyard::tensor(head.data(), halyard::dtype::f32, {1, 1, 1, std::ssize(head)});
    };
    const halyard_tensor both[] = {view(q), view(beside)};
    const auto described = halyard::describe_tensor(halyard::dtype::f32, wide, halyard::pairing::half);
    halyard::run(halyard::plan({wide, {described, v}}), angles, both, both);
    halyard::run(halyard::plan({0, {v}}), halyard::angle_source(), view(alone), view(alone));
    CHECK(beside == alone);
}

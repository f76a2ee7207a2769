// What holds for every rotation, whatever the numbers: on every target that this machine can run.
#include "checks/rotate.h"
#include "checks/scene/ways.h"
#include "data/golden.h"

#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_all.hpp>

#include <cmath>

namespace {

using namespace scenes;
using oracle::Random;

constexpr std::int32_t pairings[] = {HALYARD_PAIRING_HALF, HALYARD_PAIRING_INTERLEAVED};
constexpr std::int32_t last_position = 300;

halyard::angle_source table(std::int64_t rotary_dim, std::int32_t last = last_position) {
    return halyard::angle_source::table(halyard::frequencies::from_base(10000, rotary_dim), 0, last + 1);
}

Random seeded() { return Random(Catch::getSeed()); }

/// How far one rotation may take a member of a pair of this length from where it belongs.
long double bound_of(const Rotation &rotation, long double x0, long double x1) {
    return oracle::promised_bound(rotation.dtype, {x0, x1}, 1, std::hypot(x0, x1));
}

}  // namespace

// ---- Properties of the rotation ------------------------------------------------------------------------------------

TEST_CASE("golden decay: the score of equal vectors by distance", "[property][golden]") {
    const golden::Section section("decay");
    const auto entry = section.cases().at(0);
    const auto want = section.array<double>(entry.at("dot_f64").get<std::string>());
    Rotation rotation;
    rotation.rotary_dim = entry.at("d");
    rotation.target = GENERATE(from_range(targets_here()));
    rotation.pairing = GENERATE(from_range(pairings));
    const auto n = static_cast<std::int64_t>(want.values.size());
    const auto start = static_cast<std::int32_t>(GENERATE(0, 44));
    const Elements ones(HALYARD_F32, {1, n, 1, rotation.rotary_dim},
                        std::vector<float>(static_cast<std::size_t>(n * rotation.rotary_dim), 1.0f));
    const auto positions = halyard::consecutive_positions(&start, 1);
    const Elements y = rotate(rotation, table(rotation.rotary_dim), &positions, ones);
    // Each pair has length sqrt(2) and is off by sqrt(2) bounds, and so is the pair that it is multiplied by.
    const long double bound = rotation.rotary_dim / 2 * 4 * 1.01L * bound_of(rotation, 1, 1);
    int n_wrong = 0;
    for (std::int64_t token = 0; token < n; token++) {
        long double dot = 0;
        for (std::int64_t i = 0; i < rotation.rotary_dim; i++) {
            dot += static_cast<long double>(y[i]) * y[token * rotation.rotary_dim + i];
        }
        n_wrong += std::fabs(dot - want.values[static_cast<std::size_t>(token)]) <= bound ? 0 : 1;
    }
    CHECK(n_wrong == 0);
}

// ---- The same bits -------------------------------------------------------------------------------------------------

namespace {

void check_everywhere(Choice choice, std::uint64_t seed) {
    CAPTURE(choice.level, seed);
    Random random(seed);
    choice.has_bad = random.one_in(4);
    Draw draw(random);
    Scene scene(draw, choice);
    if (scene.is_refused()) {
        scene.call.args.bad_position = random.one_in(2) ? HALYARD_BAD_POSITION_CLAMP : HALYARD_BAD_POSITION_IDENTITY;
    }
    REQUIRE(fault_of_ways(scene) == "");
}

}  // namespace

// Whole, in parts, on a pool, bound and bound in parts, on every target: in place or not, from any pairing and layout
// to any other, by positions and angles of every kind, each by itself or several tensors at once.
TEST_CASE("rotations: every way on every target gives the bits of the formula", "[property]") {
    Random random = seeded();
    Levels n_levels = of_roads;
    n_levels[of_out_dtype] = n_levels[of_norm] = n_levels[of_scale] = n_levels[of_layout] = 1;
    n_levels[of_order] = n_levels[of_rounding] = n_levels[of_slots] = n_levels[of_policy] = 1;
    std::uint64_t seed = Catch::getSeed();
    for (const Levels &levels : cover_pairs(random, n_levels)) {
        Choice choice;
        choice.level = levels;
        check_everywhere(choice, ++seed);
    }
}

// Kernels that read words of two serve steps that are even, from head to head and from token to token.
TEST_CASE("rotations: of bf16, with steps of any parity", "[property]") {
    for (int round = 0; round < 24; round++) {
        Choice choice = Choice::of_rotations();
        choice.level[of_dtype] = 2;
        choice.level[of_turn] = round % 2;
        choice.level[of_strides] = 3;  // with gaps
        choice.shape = {1, 5, 3};
        choice.n_tensors = 1;
        check_everywhere(choice, Catch::getSeed() + static_cast<std::uint64_t>(round));
    }
}

TEST_CASE("rotations: large enough to be shared, by tokens or by heads", "[property][threads]") {
    for (int dtype = 0; dtype < 3; dtype++) {
        for (const auto &shape : {std::array<std::int64_t, 3>{1, 130, 31}, {1, 3, 1024}}) {
            Choice choice = Choice::of_rotations();
            choice.level[of_dtype] = dtype;
            choice.n_tensors = 1;
            choice.shape = shape;
            choice.rotary_dim = 128;
            choice.rotary_offset = 1;
            choice.head_dim = 130;
            check_everywhere(choice, Catch::getSeed() + static_cast<std::uint64_t>(dtype));
        }
    }
}

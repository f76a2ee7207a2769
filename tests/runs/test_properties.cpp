// Properties of every rotation, on every target that this machine can run.
#include "checks/cases/run_modes.h"

#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>

namespace {

using namespace cases;

void check_everywhere(Choice choice, std::uint64_t seed) {
    CAPTURE(choice.level, seed);
    oracle::Random random(seed);
    choice.has_bad = random.one_in(4);
    Draw draw(random);
    Case drawn(draw, choice);
    if (drawn.is_refused()) {
        drawn.call.args.bad_position = random.one_in(2) ? HALYARD_BAD_POSITION_CLAMP : HALYARD_BAD_POSITION_IDENTITY;
    }
    REQUIRE(fault_in_run_modes(drawn) == "");
}

}  // namespace

// The run modes are: whole, in parts, on a pool, bound, bound in parts. Random cases are in place or out of place. They
// change any pairing and layout to any other, and have every kind of positions and angles, and one or several tensors.
TEST_CASE("rotations: every way on every target gives the same bits, within their bound", "[property]") {
    oracle::Random random(Catch::getSeed());
    Levels n_levels = of_kv_path;
    n_levels[of_out_dtype] = n_levels[of_norm] = n_levels[of_scale] = n_levels[of_layout] = 1;
    n_levels[of_order] = n_levels[of_rounding] = n_levels[of_slots] = n_levels[of_policy] = 1;
    std::uint64_t seed = Catch::getSeed();
    for (const Levels &levels : cover_level_pairs(random, n_levels)) {
        Choice choice;
        choice.level = levels;
        check_everywhere(choice, ++seed);
    }
}

// Packed kernels read two bf16 elements as one word, which needs even strides from head to head and token to token.
TEST_CASE("rotations: of bf16, with steps of any parity", "[property]") {
    for (int round = 0; round < 96; round++) {
        Choice choice = Choice::of_rotations();
        choice.level[of_dtype] = 2;
        choice.level[of_pairing] = round % 2;
        choice.level[of_strides] = 3;  // with gaps
        choice.shape = {1, 5, 3};
        choice.n_tensors = 1;
        check_everywhere(choice, Catch::getSeed() + static_cast<std::uint64_t>(round));
    }
}

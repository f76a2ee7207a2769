// Re-rotation: cached keys that move to other positions, to the bits of one rotation. Scenes of roads and records move
// keys of every dtype and layout, against the oracle (test_road.cpp).
#include "checks/make_sources.h"
#include "checks/rotate.h"
#include "checks/scene/ways.h"

#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>

TEST_CASE("moves: the bits of phases at the difference", "[road][moves]") {
    oracle::Random random(Catch::getSeed());
    // The longer heads have more pairs than rows are made at once.
    for (const auto &[n, head_dim] : {std::array<std::int64_t, 2>{300, 128}, {5, 10000}}) {
        const auto frequencies = halyard::frequencies::from_base(10000.0, head_dim);
        const auto angles = halyard::angle_source::table(frequencies, 0, 1);
        const auto phases = halyard::angle_source::phase(frequencies);
        for (const char *target : stage_targets_here()) {
            for (const std::int32_t dtype : {HALYARD_F32, HALYARD_F16, HALYARD_BF16}) {
                CAPTURE(head_dim, target, dtype);
                std::vector<std::int32_t> from, to, difference;
                for (std::int64_t i = 0; i < n; i++) {
                    if (i > 0 && random.one_in(3)) {  // as far as the one before
                        const std::int32_t before = std::min(from.back(), to.back()) / 2;
                        from.push_back(from.back() - before);
                        to.push_back(to.back() - before);
                    } else {
                        from.push_back(static_cast<std::int32_t>(random.bits() >> 33));
                        to.push_back(static_cast<std::int32_t>(random.bits() >> 33));
                    }
                    difference.push_back(to.back() - from.back());
                }
                const auto to_view = positions_of(to), from_view = positions_of(from), at = positions_of(difference);
                Rotation rotation;
                rotation.dtype = dtype;
                rotation.rotary_dim = rotation.head_dim = head_dim;
                rotation.target = target;
                const Elements keys = Elements::random(dtype, {1, n, 2, head_dim}, random);
                Elements moved = keys;
                halyard::plan_desc desc(head_dim, {halyard::describe_tensor(static_cast<halyard::dtype>(dtype),
                                                                            head_dim, halyard::pairing::half)});
                desc.rerotates = true;
                desc.target = target;
                const auto kv = halyard::moved_from(from_view);
                halyard::run(halyard::plan(desc), angles, moved.tensor(), moved.tensor(),
                             halyard::run_options().at(to_view).with(kv));
                CHECK((moved == rotate(rotation, phases, &at, keys)));
            }
        }
    }
}

// Of few tokens, with stages and in caches they are among the scenes of moves (test_road.cpp). The longest heads have
// more pairs than rows are made at once.
TEST_CASE("moves: from one source to another, of many tokens and of long heads", "[road][moves][sources][axes]") {
    using namespace scenes;
    oracle::Random random(Catch::getSeed());
    for (const auto &[n_batch, n_tokens, head_dim] :
         std::vector<std::array<std::int64_t, 3>>{{1, 300, 29}, {40, 11, 29}, {3, 7, 29}, {1, 5, 10000}}) {
        for (const int dtype : {0, 2}) {  // f32, bf16
            for (int round = 0; round < 3; round++) {
                Choice choice = Choice::of_rotations();
                choice.moves = true;
                choice.level[of_from] = Angles::other;
                choice.level[of_dtype] = dtype;
                choice.shape = {n_batch, n_tokens, 2};
                choice.head_dim = head_dim;
                choice.rotary_dim = head_dim == 29 ? 24 : head_dim;
                choice.n_tensors = head_dim == 29 ? 0 : 1;  // others could have too long heads for their dtype
                Draw draw(random);
                Scene scene(draw, choice);
                REQUIRE(fault_of_ways(scene) == "");
            }
        }
    }
}

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

constexpr std::int32_t dtypes[] = {HALYARD_F32, HALYARD_F16, HALYARD_BF16};
constexpr std::int32_t pairings[] = {HALYARD_PAIRING_HALF, HALYARD_PAIRING_INTERLEAVED};
constexpr std::int32_t last_position = 300;

/// A dtype, pairing, window and target; Catch2 goes through all of them.
Rotation any_rotation() {
    Rotation rotation;
    rotation.target = GENERATE(from_range(targets_here()));
    rotation.dtype = GENERATE(from_range(dtypes));
    rotation.pairing = GENERATE(from_range(pairings));
    struct Window {
        std::int64_t rotary_dim, head_dim, offset;
    };
    const Window window = GENERATE(Window{128, 128, 0}, Window{80, 96, 7}, Window{34, 34, 0});
    rotation.rotary_dim = window.rotary_dim;
    rotation.head_dim = window.head_dim;
    rotation.offset = window.offset;
    return rotation;
}

std::string describe(const Rotation &rotation) {
    return std::string(rotation.target) + ", dtype " + std::to_string(rotation.dtype) + ", pairing " +
           std::to_string(rotation.pairing) + ", rotary_dim " + std::to_string(rotation.rotary_dim);
}

halyard::angle_source table(std::int64_t rotary_dim, std::int32_t last = last_position) {
    return halyard::angle_source::table(halyard::frequencies::from_base(10000, rotary_dim), 0, last + 1);
}

Random seeded() { return Random(Catch::getSeed()); }

Elements random_elements(const Rotation &rotation, std::int64_t batch, std::int64_t tokens, std::int64_t heads,
                         Random &random) {
    return Elements::random(rotation.dtype, {batch, tokens, heads, rotation.full_head()}, random);
}

Elements turn(Rotation rotation, std::int32_t position, const Elements &x, bool inverse = false) {
    rotation.inverse = inverse;
    const std::vector<std::int32_t> positions(static_cast<std::size_t>(x.shape[1]), position);
    const auto given = halyard::positions(positions.data(), {1, x.shape[1]});
    return rotate(rotation, table(rotation.rotary_dim), &given, x);
}

/// Calls function(x0, x1, i0, i1) for each pair of the window: its values in x and the indices of its members.
template <typename Function>
void for_each_pair(const Rotation &rotation, const Elements &x, Function function) {
    for (std::int64_t at = 0; at < x.count(); at += x.shape[3]) {
        for (std::int64_t k = 0; k < rotation.rotary_dim / 2; k++) {
            const std::int64_t i0 = at + rotation.index(rotation.pairing, k, 0);
            const std::int64_t i1 = at + rotation.index(rotation.pairing, k, 1);
            function(x[i0], x[i1], i0, i1);
        }
    }
}

/// How far one rotation may take a member of a pair of this length from where it belongs.
long double bound_of(const Rotation &rotation, long double x0, long double x1) {
    return oracle::promised_bound(rotation.dtype, {x0, x1}, 1, std::hypot(x0, x1));
}

/// How many members are farther apart than this many bounds. Each rotation adds a bound of its own to what both members
/// were off by before.
int count_apart(const Rotation &rotation, const Elements &x, const Elements &a, const Elements &b, double bounds) {
    int n = 0;
    for_each_pair(rotation, x, [&](float x0, float x1, std::int64_t i0, std::int64_t i1) {
        const long double bound = bounds * bound_of(rotation, x0, x1);
        n += std::fabs(a[i0] - b[i0]) <= bound && std::fabs(a[i1] - b[i1]) <= bound ? 0 : 1;
    });
    return n;
}

}  // namespace

// ---- Properties of the rotation ------------------------------------------------------------------------------------

TEST_CASE("position 0 is the identity, the inverse undoes, rotations add up, and norms are kept", "[property]") {
    const Rotation rotation = any_rotation();
    INFO(describe(rotation));
    Random random = seeded();
    const Elements x = random_elements(rotation, 1, 5, 3, random), still = turn(rotation, 0, x);
    int n_different = 0;
    for (std::int64_t i = 0; i < x.count(); i++) {
        n_different += x[i] == still[i] ? 0 : 1;  // by value: a zero may change its sign
    }
    CHECK(n_different == 0);

    const auto position = static_cast<std::int32_t>(random.in(1, last_position));
    const Elements there = turn(rotation, position, x), back = turn(rotation, position, there, true);
    CHECK(count_apart(rotation, x, x, back, (1 + std::sqrt(2)) * 1.01) == 0);
    CHECK(!(there == x));

    const auto rest = static_cast<std::int32_t>(random.in(0, last_position - position));
    const Elements twice = turn(rotation, rest, there), once = turn(rotation, position + rest, x);
    CHECK(count_apart(rotation, x, twice, once, (2 + std::sqrt(2)) * 1.01) == 0);

    int n_wrong = 0;
    for_each_pair(rotation, x, [&](long double x0, long double x1, std::int64_t i0, std::int64_t i1) {
        const long double difference =
            std::hypot(static_cast<long double>(there[i0]), static_cast<long double>(there[i1])) - std::hypot(x0, x1);
        n_wrong += std::fabs(difference) <= std::sqrt(2.0L) * bound_of(rotation, x0, x1) ? 0 : 1;
    });
    CHECK(n_wrong == 0);
}

TEST_CASE("q . k depends on the difference of positions only", "[property]") {
    Rotation rotation = any_rotation();
    INFO(describe(rotation));
    Random random = seeded();
    const Elements q = random_elements(rotation, 1, 1, 1, random), k = random_elements(rotation, 1, 1, 1, random);
    const auto m = static_cast<std::int32_t>(random.in(0, 99)), n = static_cast<std::int32_t>(random.in(0, 99));
    const auto dot = [&](std::int32_t shift) {
        const Elements turned_q = turn(rotation, m + shift, q), turned_k = turn(rotation, n + shift, k);
        long double sum = 0;
        for_each_pair(rotation, turned_q, [&](long double q0, long double q1, std::int64_t i0, std::int64_t i1) {
            sum += q0 * turned_k[i0] + q1 * turned_k[i1];
        });
        return sum;
    };
    // In each pair both vectors are off by sqrt(2) bounds, which counts times the length of the other.
    long double bound = 0;
    for_each_pair(rotation, q, [&](long double q0, long double q1, std::int64_t i0, std::int64_t i1) {
        const long double k0 = k[i0], k1 = k[i1];
        bound += std::sqrt(2.0L) * 1.01L *
                 (bound_of(rotation, q0, q1) * std::hypot(k0, k1) + bound_of(rotation, k0, k1) * std::hypot(q0, q1));
    });
    const long double here = dot(0);
    for (const std::int32_t shift : {1, 17, 200}) {
        CHECK(std::fabs(dot(shift) - here) <= 2 * bound);
    }
}

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

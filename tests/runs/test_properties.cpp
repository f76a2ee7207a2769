// What holds for every rotation, whatever the numbers: on every target that this machine can run.
#include "checks/element_at.h"
#include "checks/rotate.h"
#include "data/golden.h"

#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_all.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace {

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
    return halyard::angle_source::table(halyard::frequencies::from_base(10000, rotary_dim), 0, last);
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

/// A tensor's strides, and where its element 0 lies in a buffer of so many elements.
struct Layout {
    const char *name;
    std::array<std::int64_t, 4> strides;
    std::int64_t start, n_elements;
};

std::vector<Layout> layouts_of(const std::array<std::int64_t, 4> &shape) {
    const auto [b, t, h, d] = shape;
    const std::int64_t qkv = 3 * h * d, all = b * t * h * d;
    return {{"BSHD", {t * h * d, h * d, d, 1}, 0, all},
            {"BHSD", {t * h * d, d, t * d, 1}, 0, all},
            {"SBHD", {h * d, b * h * d, d, 1}, 0, all},
            {"k of packed QKV", {t * qkv, qkv, d, 1}, h * d, 3 * all},
            {"heads of packed QKV", {t * qkv, qkv, 3 * d, 1}, d, 3 * all},
            {"odd strides", {t * (h * (d + 1) + 2), h * (d + 1) + 2, d + 1, 1}, 3, b * t * (h * (d + 1) + 2) + 3},
            {"backwards", {-t * h * d, -h * d, -d, 1}, all - d, all},
            {"every other element", {2 * t * h * d, 2 * h * d, 2 * d, 2}, 1, 2 * all},
            {"elements backwards", {t * h * d, h * d, d, -1}, d - 1, all},
            {"elements outermost", {t * h, h, 1, b * t * h}, 0, all}};
}

/// Memory of a layout that holds the elements of a dense array.
struct Placed {
    Elements memory;
    halyard_tensor tensor;

    Placed(const Elements &dense, const Layout &layout) : memory(dense.dtype, {1, 1, 1, layout.n_elements}) {
        tensor = halyard::tensor(memory.at(layout.start), static_cast<halyard::dtype>(dense.dtype), dense.shape,
                                 layout.strides);
        for (std::int64_t i = 0; i < dense.count(); i++) {
            oracle::write_word(dense.dtype, element_at(tensor, i), dense.word(i));
        }
    }

    Elements dense() const {
        Elements result(memory.dtype, {tensor.shape[0], tensor.shape[1], tensor.shape[2], tensor.shape[3]});
        for (std::int64_t i = 0; i < result.count(); i++) {
            result.set_word(i, oracle::read_word(memory.dtype, element_at(tensor, i)));
        }
        return result;
    }
};

}  // namespace

// ---- Properties of the rotation ------------------------------------------------------------------------------------

TEST_CASE("position 0 is the identity", "[property]") {
    const Rotation rotation = any_rotation();
    INFO(describe(rotation));
    Random random = seeded();
    const Elements x = random_elements(rotation, 1, 3, 2, random), y = turn(rotation, 0, x);
    int n_different = 0;
    for (std::int64_t i = 0; i < x.count(); i++) {
        n_different += x[i] == y[i] ? 0 : 1;  // by value: a zero may change its sign
    }
    CHECK(n_different == 0);
}

TEST_CASE("the inverse undoes a rotation", "[property]") {
    const Rotation rotation = any_rotation();
    INFO(describe(rotation));
    Random random = seeded();
    const Elements x = random_elements(rotation, 1, 5, 3, random);
    const auto position = static_cast<std::int32_t>(random.in(1, last_position));
    const Elements there = turn(rotation, position, x), back = turn(rotation, position, there, true);
    CHECK(count_apart(rotation, x, x, back, (1 + std::sqrt(2)) * 1.01) == 0);
    CHECK(!(there == x));
}

TEST_CASE("rotations add up", "[property]") {
    const Rotation rotation = any_rotation();
    INFO(describe(rotation));
    Random random = seeded();
    const Elements x = random_elements(rotation, 1, 5, 3, random);
    const auto a = static_cast<std::int32_t>(random.in(0, last_position));
    const auto b = static_cast<std::int32_t>(random.in(0, last_position - a));
    const Elements twice = turn(rotation, a, turn(rotation, b, x)), once = turn(rotation, a + b, x);
    CHECK(count_apart(rotation, x, twice, once, (2 + std::sqrt(2)) * 1.01) == 0);
}

TEST_CASE("the norm of each pair is kept", "[property]") {
    const Rotation rotation = any_rotation();
    INFO(describe(rotation));
    Random random = seeded();
    const Elements x = random_elements(rotation, 1, 5, 3, random);
    const Elements y = turn(rotation, static_cast<std::int32_t>(random.in(1, last_position)), x);
    int n_wrong = 0;
    for_each_pair(rotation, x, [&](long double x0, long double x1, std::int64_t i0, std::int64_t i1) {
        const long double difference =
            std::hypot(static_cast<long double>(y[i0]), static_cast<long double>(y[i1])) - std::hypot(x0, x1);
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

TEST_CASE("in place, out of place and once more give the same bits", "[property]") {
    const Rotation rotation = any_rotation();
    INFO(describe(rotation));
    Random random = seeded();
    const Elements x = random_elements(rotation, 2, 7, 3, random);
    const auto angles = table(rotation.rotary_dim);
    const Elements y = rotate(rotation, angles, nullptr, x);
    CHECK(rotate(rotation, angles, nullptr, x, true) == y);
    CHECK(rotate(rotation, angles, nullptr, x) == y);
}

TEST_CASE("every target with fused multiply-add gives the bits of the reference", "[property]") {
    Rotation rotation = any_rotation();
    if (rotation.target == std::string("x86_sse41")) {
        SUCCEED("x86_sse41 has no fused multiply-add");
        return;
    }
    INFO(describe(rotation));
    Random random = seeded();
    const Elements x = random_elements(rotation, 2, 7, 3, random);
    const auto angles = table(rotation.rotary_dim);
    const Elements y = rotate(rotation, angles, nullptr, x);
    rotation.target = "reference";
    CHECK(rotate(rotation, angles, nullptr, x) == y);
}

TEST_CASE("any split of the tokens gives the same bits", "[property]") {
    const Rotation rotation = any_rotation();
    INFO(describe(rotation));
    Random random = seeded();
    const std::int64_t n_tokens = 23;
    const Elements x = random_elements(rotation, 1, n_tokens, 3, random);
    const auto angles = table(rotation.rotary_dim);
    const Elements whole = rotate(rotation, angles, nullptr, x);
    const halyard::plan plan = rotation.plan();
    Elements parts = x;
    for (std::int64_t first = 0; first < n_tokens;) {
        const std::int64_t n = random.in(1, n_tokens - first);
        halyard_tensor part = parts.tensor();
        part.data = parts.at(first * part.strides[1]);
        part.shape[1] = n;
        const auto start = halyard::consecutive_positions(&first, 1);
        halyard::run_options options;
        options.positions = &start;
        halyard::run(plan, angles, part, part, options);
        first += n;
    }
    CHECK(parts == whole);
}

TEST_CASE("any pairing of layouts gives the same bits", "[property]") {
    const Rotation rotation = any_rotation();
    INFO(describe(rotation));
    Random random = seeded();
    const Elements x = random_elements(rotation, 2, 5, 3, random);
    const auto angles = table(rotation.rotary_dim);
    const Elements y = rotate(rotation, angles, nullptr, x);
    const halyard::plan plan = rotation.plan();
    const std::vector<Layout> layouts = layouts_of(x.shape);
    for (const Layout &in : layouts) {
        for (const Layout &out : layouts) {
            const Placed from(x, in);
            const Placed to(Elements(x.dtype, x.shape), out);
            halyard::run(plan, angles, from.tensor, to.tensor);
            INFO(in.name << " -> " << out.name);
            CHECK(to.dense() == y);
        }
        const Placed both(x, in);
        halyard::run(plan, angles, both.tensor, both.tensor);
        INFO(in.name << ", in place");
        CHECK(both.dense() == y);
    }
}

TEST_CASE("another output pairing moves the outputs and keeps their bits", "[property]") {
    Rotation rotation = any_rotation();
    INFO(describe(rotation));
    Random random = seeded();
    const Elements x = random_elements(rotation, 2, 5, 3, random);
    const auto angles = table(rotation.rotary_dim);
    Elements want = rotate(rotation, angles, nullptr, x);
    const Elements same = want;
    rotation.out_pairing = HALYARD_PAIRING_HALF + HALYARD_PAIRING_INTERLEAVED - rotation.pairing;
    for (std::int64_t at = 0; at < want.count(); at += want.shape[3]) {
        for (std::int64_t k = 0; k < rotation.rotary_dim / 2; k++) {
            for (const int member : {0, 1}) {
                want.set_word(at + rotation.index(rotation.out_pairing, k, member),
                              same.word(at + rotation.index(rotation.pairing, k, member)));
            }
        }
    }
    for (const Layout &layout : layouts_of(x.shape)) {
        const Placed from(x, layout);
        const Placed to(Elements(x.dtype, x.shape), layout);
        halyard::run(rotation.plan(), angles, from.tensor, to.tensor);
        INFO(layout.name);
        CHECK(to.dense() == want);
    }
}

TEST_CASE("any number of threads gives the same bits", "[property]") {
    Rotation rotation;
    rotation.target = GENERATE(from_range(targets_here()));
    rotation.dtype = GENERATE(from_range(dtypes));
    rotation.pairing = GENERATE(from_range(pairings));
    rotation.rotary_dim = 128;
    rotation.head_dim = 130;
    rotation.offset = 1;
    // Enough to be shared by five: by tokens, and where there are few of those by heads.
    const auto [n_tokens, n_heads] = GENERATE(table<std::int64_t, std::int64_t>({{130, 31}, {3, 1024}}));
    INFO(describe(rotation) << ", " << n_tokens << " tokens");
    Random random = seeded();
    const Elements x = random_elements(rotation, 1, n_tokens, n_heads, random);
    const auto angles = ::table(rotation.rotary_dim);
    const Elements y = rotate(rotation, angles, nullptr, x);
    for (const std::int32_t n_threads : {2, 3, 5}) {
        const halyard::pool pool(n_threads);
        INFO(n_threads << " threads");
        CHECK(rotate(rotation, angles, nullptr, x, false, pool.executor()) == y);
        CHECK(rotate(rotation, angles, nullptr, x, true, pool.executor()) == y);
    }
}

TEST_CASE("q and k in one call are two calls", "[property]") {
    Rotation of_q;
    of_q.target = GENERATE(from_range(targets_here()));
    of_q.rotary_dim = 64;
    of_q.head_dim = 96;
    of_q.offset = 16;
    Rotation of_k = of_q;
    of_k.dtype = GENERATE(from_range(dtypes));
    of_k.pairing = HALYARD_PAIRING_INTERLEAVED;
    of_k.out_pairing = GENERATE(as<std::int32_t>(), HALYARD_PAIRING_HALF, HALYARD_PAIRING_INTERLEAVED);
    of_k.head_dim = 64;
    of_k.offset = 0;
    Random random = seeded();
    Elements x[] = {random_elements(of_q, 2, 9, 8, random), random_elements(of_k, 2, 9, 2, random)};
    Elements y[] = {Elements(x[0].dtype, x[0].shape), Elements(x[1].dtype, x[1].shape)};
    const auto angles = table(64);

    halyard::plan_desc desc(64, {});
    desc.target = of_q.target;
    for (const Rotation *rotation : {&of_q, &of_k}) {
        desc.tensors.push_back(
            halyard::describe_tensor(static_cast<halyard::dtype>(rotation->dtype), rotation->head_dim,
                                     static_cast<halyard::pairing>(rotation->pairing),
                                     static_cast<halyard::pairing>(rotation->pairing_of_output()), rotation->offset));
    }
    const halyard_tensor in[] = {x[0].tensor(), x[1].tensor()}, out[] = {y[0].tensor(), y[1].tensor()};
    halyard::run(halyard::plan(desc), angles, in, out);
    CHECK(y[0] == rotate(of_q, angles, nullptr, x[0]));
    CHECK(y[1] == rotate(of_k, angles, nullptr, x[1]));
}

TEST_CASE("positions mean the same however they are given", "[property]") {
    Rotation rotation;
    rotation.target = GENERATE(from_range(targets_here()));
    rotation.rotary_dim = 64;
    Random random = seeded();
    const std::int64_t n_batch = 3, n_tokens = 11;
    const Elements x = random_elements(rotation, n_batch, n_tokens, 2, random);
    const auto angles = table(64);

    // A position for each token: as int32, as int64, and backwards in memory.
    std::vector<std::int32_t> narrow;
    for (std::int64_t i = 0; i < n_batch * n_tokens; i++) {
        narrow.push_back(static_cast<std::int32_t>(random.in(0, last_position)));
    }
    const std::vector<std::int64_t> wide(narrow.begin(), narrow.end());
    const std::vector<std::int64_t> backwards(wide.rbegin(), wide.rend());
    const auto as_int32 = halyard::positions(narrow.data(), {n_batch, n_tokens});
    const auto as_int64 = halyard::positions(wide.data(), {n_batch, n_tokens});
    auto reversed = halyard::positions(backwards.data() + backwards.size() - 1, {n_batch, n_tokens});
    reversed.strides[0] = -n_tokens;
    reversed.strides[1] = -1;
    const Elements y = rotate(rotation, angles, &as_int32, x);
    CHECK(rotate(rotation, angles, &as_int64, x) == y);
    CHECK(rotate(rotation, angles, &reversed, x) == y);

    // Each batch row is what it would be alone.
    for (std::int64_t batch = 0; batch < n_batch; batch++) {
        Elements row(x.dtype, {1, n_tokens, 2, 64}), want = row;
        const std::size_t n_bytes = row.bytes.size();
        std::memcpy(row.bytes.data(), x.at(batch * row.count()), n_bytes);
        std::memcpy(want.bytes.data(), y.at(batch * row.count()), n_bytes);
        const auto of_row = halyard::positions(narrow.data() + batch * n_tokens, {1, n_tokens});
        CHECK(rotate(rotation, angles, &of_row, row) == want);
    }

    // One row of positions for all batch rows; no positions; and a start for each batch row.
    std::vector<std::int64_t> counted(static_cast<std::size_t>(n_tokens));
    std::iota(counted.begin(), counted.end(), 0);
    const auto shared = halyard::positions(counted.data(), {1, n_tokens});
    CHECK(rotate(rotation, angles, &shared, x) == rotate(rotation, angles, nullptr, x));
    const std::int32_t starts[] = {5, 0, 200};
    std::vector<std::int64_t> all;
    for (const std::int32_t start : starts) {
        for (std::int64_t token = 0; token < n_tokens; token++) {
            all.push_back(start + token);
        }
    }
    const auto consecutive = halyard::consecutive_positions(starts, n_batch);
    const auto spelled_out = halyard::positions(all.data(), {n_batch, n_tokens});
    CHECK(rotate(rotation, angles, &consecutive, x) == rotate(rotation, angles, &spelled_out, x));
}

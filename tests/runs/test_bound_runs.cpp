// Bound runs and parts: the bits of a whole run, and its refusals.
#include "checks/make_sources.h"
#include "checks/rotate.h"
#include "checks/scene/bound_pointers.h"
#include "checks/scene/ways.h"
#include "scene.h"
#include "walk/bound_run.h"

#include <catch2/catch_get_random_seed.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <numeric>
#include <thread>

namespace {

using oracle::Random;

struct DestroyBound {
    void operator()(halyard_bound_run *bound) const { halyard_destroy_bound_run(bound); }
};
using Bound = std::unique_ptr<halyard_bound_run, DestroyBound>;

Bound bind(const halyard::plan &plan, const halyard_run_args &args) {
    halyard_bound_run *bound = nullptr;
    auto error = sized<halyard_error>();
    const auto status = halyard_bind_run(plan.get(), &args, &bound, &error);
    CAPTURE(error.message);
    REQUIRE(status == HALYARD_OK);
    return Bound(bound);
}

}  // namespace

TEST_CASE("bound runs and parts give the bits of a whole run", "[bound]") {
    Random random(Catch::getSeed());
    int n_prepared = 0, n_others = 0;
    for (int round = 0; round < 300; round++) {
        CAPTURE(round);
        using namespace scenes;
        Draw draw(random);
        Choice choice = Choice::of_rotations();
        choice.level[of_head_dim] = 11;
        choice.level[of_shape] = 8;
        if (random.one_in(4)) {  // one token, dense heads without a rest, and of a table: these are prepared
            choice.n_tensors = random.in(1, 2);
            for (const Factor factor : {of_shape, of_strides, of_source, of_axes, of_window}) {
                choice.level[factor] = 0;
            }
            choice.level[of_head_dim] = static_cast<int>(random.in(0, 10));
        }
        scenes::Scene scene(draw, choice);
        scene.call.plan.target = random.one_in(4) ? "reference" : nullptr;
        const char *const target = scene.call.plan.target;
        const halyard::plan plan(scene.call.plan);
        const Bound bound = bind(plan, scene.call.args);
        CHECK(scene.memory.image() == scene.before);
        n_prepared += bound->is_prepared ? 1 : 0;
        n_others += bound->is_prepared ? 0 : 1;
        const Images expected = run(scene, target, Way::whole);
        REQUIRE(scene.fault(expected) == "");
        const auto n_parts = static_cast<std::int32_t>(random.one_in(6) ? 50 : random.in(2, 7));  // than tokens, too
        for (const Way way : {Way::bound, Way::parts, Way::bound_parts}) {
            REQUIRE(scene.difference(expected, run(scene, target, way, n_parts)) == "");
        }
    }
    CHECK(n_prepared > 20);
    CHECK(n_others > 100);
}

TEST_CASE("bound runs: the same one at other addresses, on several threads at once", "[bound][threads]") {
    constexpr std::int64_t head_dim = 64, n_heads = 3;
    const auto frequencies = halyard::frequencies::from_base(10000.0, head_dim);
    const auto angles = halyard::angle_source::table(frequencies, 0, 99);
    const auto head = halyard::describe_tensor(halyard::dtype::f32, head_dim, halyard::pairing::half);
    const halyard::plan plan(halyard::plan_desc(frequencies, {head}));
    std::vector<float> example(n_heads * head_dim + 1);
    const std::int32_t start = 0;
    const auto positions = halyard::consecutive_positions(&start, 1);
    halyard::run_options options;
    options.positions = positions;
    const auto view = [](float *data) { return halyard::tensor(data, halyard::dtype::f32, {1, 1, n_heads, head_dim}); };
    const halyard::bound_run bound(plan, angles, view(example.data()), view(example.data()), options);
    std::atomic<int> n_wrong{0};
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < 4; thread++) {
        threads.emplace_back([&, thread] {
            std::vector<float> mine(example.size()), other(example.size());
            for (std::int32_t at = 0; at < 100; at++) {
                for (std::size_t i = 0; i < mine.size(); i++) {
                    mine[i] = other[i] = static_cast<float>((i * 7 + static_cast<std::size_t>(thread)) % 31) - 15.0f;
                }
                float *const data = mine.data() + at % 2;  // of any alignment
                bound({data}, {data}, &at);
                const auto where = halyard::consecutive_positions(&at, 1);
                halyard::run_options how;
                how.positions = where;
                halyard::run(plan, angles, view(other.data() + at % 2), view(other.data() + at % 2), how);
                n_wrong += mine == other ? 0 : 1;
            }
        });
    }
    threads.clear();
    CHECK(n_wrong == 0);
}

TEST_CASE("bound runs: large outputs take the kernels that their addresses allow", "[bound]") {
    constexpr std::int64_t n_tokens = 1100, n_heads = 64, head_dim = 128;  // 34 MiB
    const auto frequencies = halyard::frequencies::from_base(10000.0, head_dim);
    const auto angles = halyard::angle_source::table(frequencies, 0, n_tokens);
    const halyard::plan plan(halyard::plan_desc(
        frequencies, {halyard::describe_tensor(halyard::dtype::f32, head_dim, halyard::pairing::half)}));
    const std::size_t n = n_tokens * n_heads * head_dim;
    std::vector<float> x(n), memory(n + 32), expected(n);
    for (std::size_t i = 0; i < n; i++) {
        x[i] = static_cast<float>(i % 251) - 125.0f;
    }
    const auto view = [](float *data) {
        return halyard::tensor(data, halyard::dtype::f32, {1, n_tokens, n_heads, head_dim});
    };
    halyard::run(plan, angles, view(x.data()), view(expected.data()));
    float *const on_line = memory.data() + (64 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64) % 64 / 4;
    const halyard::bound_run bound(plan, angles, view(x.data()), view(on_line));
    for (const std::ptrdiff_t off : {0, 1, 16}) {
        std::fill(memory.begin(), memory.end(), -1.0f);
        bound({x.data()}, {on_line + off});
        CHECK(std::memcmp(on_line + off, expected.data(), n * sizeof(float)) == 0);
    }
}

namespace {

/// A run of given rows, by positions or by tokens, and memory for two sets of such rows.
struct GivenRows {
    static constexpr std::int64_t n_batch = 2, n_tokens = 3, D = 32, n_rows = n_batch * n_tokens;
    static constexpr std::int32_t places[n_rows] = {3, 0, 5, 1, 1, 4};

    std::int32_t rows_dtype, by_token;
    std::vector<std::uint32_t> words = std::vector<std::uint32_t>(4 * n_rows * D);  // of two or four bytes
    std::vector<float> x = std::vector<float>(n_rows * D), y = x;
    halyard::plan plan{
        halyard::plan_desc(D, {halyard::describe_tensor(halyard::dtype::f32, D, halyard::pairing::half)})};
    halyard_angle_source_desc desc = describe(2 * n_rows * D);  // of the second set
    halyard::angle_source first = make(describe(0));
    halyard_positions positions = halyard::positions(places, {n_batch, n_tokens});
    halyard::run_options options;

    GivenRows(std::int32_t dtype, std::int32_t how) : rows_dtype(dtype), by_token(how) {
        Random random(Catch::getSeed());
        for (auto &word : words) {  // numbers below 1 in each of the dtypes
            word = static_cast<std::uint32_t>(random.in(0, 0x3bff) << 16 | random.in(0, 0x3bff));
        }
        std::iota(x.begin(), x.end(), 1.0f);
        if (by_token == 0) {
            options.positions = positions;
        }
    }
    GivenRows(const GivenRows &) = delete;

    const std::int32_t *given_positions() const { return by_token == 0 ? places : nullptr; }
    static halyard_tensor view(std::vector<float> &data) {
        return halyard::tensor(data.data(), halyard::dtype::f32, {n_batch, n_tokens, 1, D});
    }
    halyard_angle_source_desc describe(std::size_t at) const {
        auto result = sized<halyard_angle_source_desc>();
        result.kind = HALYARD_ANGLES_GIVEN;
        result.cos_rows = &words[at];
        result.sin_rows = &words[at + n_rows * D];
        result.n_rows = by_token == 2 ? n_tokens : n_rows;
        result.stride_row = result.rotary_dim = D;
        result.rows_dtype = rows_dtype;
        result.by_token = by_token;
        return result;
    }
    static halyard::angle_source make(const halyard_angle_source_desc &desc) {
        halyard_angle_source *made = nullptr;
        REQUIRE(halyard_create_angle_source(nullptr, &desc, &made, nullptr) == HALYARD_OK);
        return halyard::angle_source(made);
    }
    halyard::bound_run bind(const halyard::angle_source &angles) {
        return halyard::bound_run(plan, angles, view(x), view(y), options);
    }
};

}  // namespace

TEST_CASE("bound runs: given rows that lie elsewhere", "[bound]") {
    GivenRows s(GENERATE(as<std::int32_t>{}, HALYARD_F32, HALYARD_F16, HALYARD_BF16), GENERATE(0, 1, 2));
    const auto second = GivenRows::make(s.desc);
    const auto bound = s.bind(s.first);
    std::vector<float> expected(s.x.size());
    halyard::run(s.plan, second, GivenRows::view(s.x), GivenRows::view(expected), s.options);
    halyard::bound_stages elsewhere;
    elsewhere.angles = second.get();
    for (const std::int32_t n_parts : {1, 3}) {
        std::fill(s.y.begin(), s.y.end(), 0.0f);
        for (std::int32_t part = 0; part < n_parts; part++) {
            bound({s.x.data()}, {s.y.data()}, s.given_positions(), elsewhere, {part, n_parts});
        }
        CHECK(s.y == expected);
    }
}

TEST_CASE("errors: bound runs, rows that cannot take the place of others", "[errors][bound]") {
    GivenRows s(GENERATE(as<std::int32_t>{}, HALYARD_F32, HALYARD_F16, HALYARD_BF16), GENERATE(0, 1, 2));
    const auto in = GivenRows::view(s.x), out = GivenRows::view(s.y);
    BoundPointers pointers(&in, &out, 1);
    pointers.args.positions = s.given_positions();
    const auto bound = s.bind(s.first);
    const halyard_bound_run *called = bound.get();
    const halyard_angle_source *other = nullptr;  // than one of the second set of rows
    const Table calls([&](halyard_status status, const Words &words) {
        const auto second = GivenRows::make(s.desc);
        pointers.args.angles = other == nullptr ? second.get() : other;
        const auto rows_before = s.words;
        check_refused(status, words, [&](auto *error) { return halyard_run_bound(called, &pointers.args, error); });
        CHECK(s.y == std::vector<float>(s.y.size()));
        CHECK(s.words == rows_before);
    });
    const auto table = halyard::angle_source::table(halyard::frequencies::from_base(100.0, s.D), 0, s.n_rows - 1);
    calls.refuse({
        {HALYARD_ERROR_MISMATCH, {"args.angles has another n_rows"}, {{s.desc.n_rows, s.desc.n_rows - 1}}},
        {HALYARD_ERROR_MISMATCH, {"args.angles has another rows_dtype"}, {{s.desc.rows_dtype, s.rows_dtype % 3 + 1}}},
        {HALYARD_ERROR_MISMATCH, {"args.angles has another stride_row"}, {{s.desc.stride_row, s.D - 1}}},
        {HALYARD_ERROR_MISMATCH, {"args.angles has another by_token"}, {{s.desc.by_token, (s.by_token + 1) % 3}}},
        {HALYARD_ERROR_MISMATCH, {"args.angles has another rotary_dim"}, {{s.desc.rotary_dim, s.D - 2}}},
        {HALYARD_ERROR_MISMATCH, {"args.angles has another kind"}, {{other, table.get()}}},
        {HALYARD_ERROR_OVERLAP, {"y[0]", "angle source"}, {{pointers.y[0], &s.words[2 * s.n_rows * s.D]}}},
    });
    if (s.by_token == 0) {
        const auto of_table = s.bind(table);
        calls.refuse({{HALYARD_ERROR_MISMATCH, {"args.angles has another kind"}, {{called, of_table.get()}}}});
    }
}

TEST_CASE("errors: binding a run", "[errors][bound]") {
    Scene scene;
    const halyard::plan plan(scene.desc);
    auto *const untouched = reinterpret_cast<halyard_bound_run *>(16);
    halyard_bound_run *bound = untouched;
    const auto refuse = [&](halyard_status status, const Words &words, const halyard_run_args &args) {
        check_refused(status, words, [&](auto *error) { return halyard_bind_run(plan.get(), &args, &bound, error); });
        CHECK(bound == untouched);
    };
    // It takes the checks of halyard_run, whose tests have them all.
    auto args = scene.args;
    args.x = nullptr;
    refuse(HALYARD_ERROR_NULL_POINTER, {"args.x is NULL"}, args);
    args = scene.args;
    args.size = 4;
    refuse(HALYARD_ERROR_STRUCT_SIZE, {"args.size is 4"}, args);
    args = scene.args;
    args.y = scene.x;
    scene.x[1].strides[0] = 0;
    refuse(HALYARD_ERROR_STRIDE, {"y[1]"}, args);
    scene.x[1].strides[0] = Scene::tokens * Scene::head_dim;
    args.n_parts = 2;
    refuse(HALYARD_ERROR_MISMATCH, {"args.n_parts is 2"}, args);
    check_refused(HALYARD_ERROR_NULL_POINTER, {"out is NULL"},
                  [&](auto *error) { return halyard_bind_run(plan.get(), &scene.args, nullptr, error); });
    check_refused(HALYARD_ERROR_NULL_POINTER, {"plan is NULL"},
                  [&](auto *error) { return halyard_bind_run(nullptr, &scene.args, &bound, error); });
    // Positions are not read: they are an example.
    const std::int32_t beyond[] = {100, 100, 100, 100, 100, 100};
    const auto positions = halyard::positions(beyond, {Scene::batch, Scene::tokens});
    args = scene.args;
    args.positions = &positions;
    CHECK(bind(plan, args) != nullptr);
    halyard_destroy_bound_run(nullptr);
}

namespace {

/// A bound run of the scene, and the pointers of its next call, which is refused and writes nothing.
struct BoundCalls {
    halyard::plan plan;
    Bound owned;
    halyard_bound_run *bound;
    BoundPointers p;
    Table table;

    BoundCalls(const Scene &scene, const halyard_run_args &args)
        : plan(scene.desc), owned(bind(plan, args)), bound(owned.get()), p(args.x, args.y, 2),
          table([this, &scene](halyard_status status, const Words &words) {
              const auto before = scene.arena;
              check_refused(status, words, [&](auto *error) { return halyard_run_bound(bound, &p.args, error); });
              CHECK(std::memcmp(before.data(), scene.arena.data(), before.size() * sizeof(float)) == 0);
          }) {
        p.args.positions = args.positions == nullptr ? nullptr : args.positions->data;
    }
};

}  // namespace

TEST_CASE("errors: bound runs", "[errors][bound]") {
    Scene scene;
    scene.args.positions = &scene.positions;
    BoundCalls calls(scene, scene.args);
    auto &p = calls.p;
    calls.table.refuse_each(HALYARD_ERROR_STRUCT_SIZE, bad_sizes<halyard_bound_run_args>(),
                            {{"args.size", p.args.size}});
    calls.table.refuse_each(HALYARD_ERROR_SHAPE, {0, 1, 3, -1}, {{"args.n_tensors", p.args.n_tensors}},
                            {", but the plan's is 2"});
    calls.table.refuse_each(HALYARD_ERROR_SHAPE, {-1, 1025, INT32_MIN, INT32_MAX}, {{"args.n_parts", p.args.n_parts}});
    calls.table.refuse({
        {HALYARD_ERROR_NULL_POINTER, {"args.x is NULL"}, {{p.args.x, nullptr}}},
        {HALYARD_ERROR_NULL_POINTER, {"args.y is NULL"}, {{p.args.y, nullptr}}},
        {HALYARD_ERROR_NULL_POINTER, {"args.x[1] is NULL"}, {{p.x[1], nullptr}}},
        {HALYARD_ERROR_NULL_POINTER, {"args.y[0] is NULL"}, {{p.y[0], nullptr}}},
        {HALYARD_ERROR_OVERLAP, {"y[0]", "x[0]"}, {{p.y[0], scene.x[0].data}}},
        {HALYARD_ERROR_OVERLAP, {"y[1]", "x[0]"}, {{p.y[1], scene.at(1)}}},
        {HALYARD_ERROR_OVERLAP, {"y[0]", "x[1]"}, {{p.y[0], scene.x[1].data}}},
        {HALYARD_ERROR_OVERLAP, {"y[1]", "y[0]"}, {{p.y[1], p.y[0]}}},
        {HALYARD_ERROR_OVERLAP, {"y[1]", "positions"}, {{p.y[1], scene.at(2048 + 5)}}},
        {HALYARD_ERROR_OVERFLOW,
         {"args.x[0] or args.y[0] leaves the address space"},
         {{p.y[0], reinterpret_cast<void *>(UINTPTR_MAX - 100)}}},
        {HALYARD_ERROR_OVERFLOW,
         {"args.positions leaves the address space"},
         {{p.args.positions, reinterpret_cast<void *>(UINTPTR_MAX - 3)}}},
        {HALYARD_ERROR_MISMATCH, {"args.positions is NULL", "with positions"}, {{p.args.positions, nullptr}}},
        {HALYARD_ERROR_SHAPE, {"args.part is 1, but must be 0"}, {{p.args.part, 1}}},
        {HALYARD_ERROR_NULL_POINTER, {"bound is NULL"}, {{calls.bound, nullptr}}},
    });
    check_refused(HALYARD_ERROR_NULL_POINTER, {"args is NULL"},
                  [&](auto *error) { return halyard_run_bound(calls.bound, nullptr, error); });
    // Every part tells of a bad position, wherever it is.
    auto &position = reinterpret_cast<std::int32_t *>(scene.at(2048))[4];
    const Words told = {"positions[batch 1, token 1] is 10"};
    calls.table.refuse(HALYARD_ERROR_POSITION, told, {{position, 10}});
    for (const std::int32_t part : {0, 1, 2}) {
        calls.table.refuse(HALYARD_ERROR_POSITION, told, {{position, 10}, {p.args.part, part}, {p.args.n_parts, 3}});
    }
    p.args.n_parts = 3;
    calls.table.refuse_each(HALYARD_ERROR_SHAPE, {-1, 3, INT32_MIN, INT32_MAX}, {{"args.part", p.args.part}},
                            {"0 to 2"});
}

TEST_CASE("errors: bound runs that are in place, count positions or have an executor", "[errors][bound]") {
    Scene scene;
    BoundCalls counted(scene, scene.args);
    counted.table.refuse(HALYARD_ERROR_MISMATCH, {"args.positions is set", "without positions"},
                         {{counted.p.args.positions, scene.positions.data}});
    scene.args.executor = &scene.executor;
    BoundCalls with_executor(scene, scene.args);
    with_executor.table.refuse(HALYARD_ERROR_MISMATCH, {"args.n_parts is 2", "executor"},
                               {{with_executor.p.args.n_parts, 2}});
    scene.args.executor = nullptr;
    scene.args.y = scene.x;
    BoundCalls in_place(scene, scene.args);
    auto &p = in_place.p;
    in_place.table.refuse({
        {HALYARD_ERROR_MISMATCH, {"args.y[1] is not args.x[1]", "in place"}, {{p.y[1], scene.y[1].data}}},
        {HALYARD_ERROR_OVERLAP, {"y[1]", "y[0]"}, {{p.x[1], p.y[0]}, {p.y[1], p.y[0]}}},
    });
}

TEST_CASE("errors: parts of a run", "[errors][bound]") {
    Scene scene;
    auto &part = scene.args.part, &n_parts = scene.args.n_parts;
    runs_of(scene).refuse({
        {HALYARD_ERROR_SHAPE, {"args.n_parts is -1"}, {{n_parts, -1}}},
        {HALYARD_ERROR_SHAPE, {"args.n_parts is 1025"}, {{n_parts, 1025}}},
        {HALYARD_ERROR_SHAPE, {"args.part is 2, but must be 0 to 1"}, {{part, 2}, {n_parts, 2}}},
        {HALYARD_ERROR_SHAPE, {"args.part is -1"}, {{part, -1}, {n_parts, 2}}},
        {HALYARD_ERROR_SHAPE, {"args.part is 1, but must be 0"}, {{part, 1}}},
        {HALYARD_ERROR_MISMATCH,
         {"args.n_parts is 2", "executor"},
         {{n_parts, 2}, {scene.args.executor, &scene.executor}}},
    });
}

TEST_CASE(
    "bound runs: a cache makes each once, forgets the one that was asked for the longest ago, and shares the rest") {
    halyard::run_cache<int, std::unique_ptr<int>> cache(3);
    std::vector<int> made;
    const auto find = [&](int key) {
        return cache.find(key, [&] {
            made.push_back(key);
            return std::make_unique<int>(10 * key);
        });
    };
    const auto first = find(1);
    for (const int key : {2, 3, 1, 4, 1, 3, 2, 1}) {  // 2 makes room for 4, and 4 for 2
        CHECK(**find(key) == 10 * key);
    }
    CHECK(made == std::vector<int>{1, 2, 3, 4, 2});
    CHECK(find(1) == first);
    find(5), find(6), find(7);
    CHECK(**first == 10);  // which the cache has forgotten
    CHECK(find(1) != first);

    const auto refuse = [&] { return cache.find(8, [&]() -> std::unique_ptr<int> { throw halyard::error(1, "no"); }); };
    CHECK_THROWS_AS(refuse(), halyard::error);
    CHECK(**find(8) == 80);
    CHECK(made.back() == 8);

    halyard::run_cache<int, int> shared(4);
    std::atomic<int> n_made = 0, n_wrong = 0;
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; t++) {
        threads.emplace_back([&, t] {
            for (int i = 0; i < 1000; i++) {
                const int key = (i * (t + 1)) % 4;
                n_wrong += *shared.find(key, [&] { return ++n_made, key; }) != key;
            }
        });
    }
    for (auto &thread : threads) {
        thread.join();
    }
    CHECK(n_made == 4);
    CHECK(n_wrong == 0);
}

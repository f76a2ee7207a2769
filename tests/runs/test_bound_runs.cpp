// Bound runs and parts: the bits of a whole run, and its refusals.
#include "checks/make_sources.h"
#include "checks/rotate.h"
#include "checks/scene/bound_pointers.h"
#include "checks/scene/ways.h"
#include "scene.h"
#include "walk/bound_run.h"

#include <catch2/catch_get_random_seed.hpp>

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

TEST_CASE("bound runs: given rows that lie elsewhere, and rows that cannot take their place", "[errors][bound]") {
    constexpr std::int64_t n_batch = 2, n_tokens = 3, D = 32, n_rows = n_batch * n_tokens;
    const halyard::plan plan(
        halyard::plan_desc(D, {halyard::describe_tensor(halyard::dtype::f32, D, halyard::pairing::half)}));
    std::vector<std::uint32_t> words(4 * n_rows * D);  // two sets of rows, of two or four bytes
    const auto seed = Catch::getSeed();
    Random random(seed);
    CAPTURE(seed);
    const auto make = [&](std::size_t set, const std::function<void(halyard_angle_source_desc &)> &change) {
        auto desc = sized<halyard_angle_source_desc>();
        desc.kind = HALYARD_ANGLES_GIVEN;
        desc.cos_rows = &words[set * 2 * n_rows * D];
        desc.sin_rows = &words[(set * 2 + 1) * n_rows * D];
        desc.n_rows = n_rows;
        desc.stride_row = desc.rotary_dim = D;
        change(desc);
        halyard_angle_source *made = nullptr;
        REQUIRE(halyard_create_angle_source(nullptr, &desc, &made, nullptr) == HALYARD_OK);
        return halyard::angle_source(made);
    };
    const std::int32_t position_data[n_rows] = {3, 0, 5, 1, 1, 4};
    const auto positions = halyard::positions(position_data, {n_batch, n_tokens});
    for (const auto rows_dtype : {HALYARD_F32, HALYARD_F16, HALYARD_BF16}) {
        for (const std::int32_t by_token : {0, 1, 2}) {
            const auto set = [&](halyard_angle_source_desc &desc) {
                desc.rows_dtype = rows_dtype;
                desc.by_token = by_token;
                desc.n_rows = by_token == 2 ? n_tokens : n_rows;
            };
            for (auto &word : words) {  // numbers below 1 in each of the dtypes
                word = static_cast<std::uint32_t>(random.in(0, 0x3bff) << 16 | random.in(0, 0x3bff));
            }
            const auto first = make(0, set), second = make(1, set);
            std::vector<float> x(n_rows * D), y(x.size()), expected(x.size());
            std::iota(x.begin(), x.end(), 1.0f);
            const std::array<std::int64_t, 4> shape = {n_batch, n_tokens, 1, D};
            const auto in = halyard::tensor(x.data(), halyard::dtype::f32, shape);
            halyard::run_options options;
            if (by_token == 0) {
                options.positions = positions;
            }
            const halyard::bound_run bound(plan, first, in, halyard::tensor(y.data(), halyard::dtype::f32, shape),
                                           options);
            halyard::run(plan, second, in, halyard::tensor(expected.data(), halyard::dtype::f32, shape), options);
            halyard::bound_stages elsewhere;
            elsewhere.angles = second.get();
            for (const std::int32_t n_parts : {1, 3}) {
                std::fill(y.begin(), y.end(), 0.0f);
                for (std::int32_t part = 0; part < n_parts; part++) {
                    bound({x.data()}, {y.data()}, by_token == 0 ? position_data : nullptr, elsewhere, {part, n_parts});
                }
                CHECK(y == expected);
            }

            const auto refuse = [&](const halyard_bound_run *run, const halyard_angle_source *angles, void *out,
                                    halyard_status status, const Words &told) {
                CAPTURE(told);
                std::fill(y.begin(), y.end(), 0.0f);
                const auto before = words;
                const void *const inputs[] = {x.data()};
                void *const outputs[] = {out};
                auto args = sized<halyard_bound_run_args>();
                args.n_tensors = 1;
                args.x = inputs;
                args.y = outputs;
                args.positions = by_token == 0 ? position_data : nullptr;
                args.angles = angles;
                check_refused(status, told, [&](auto *error) { return halyard_run_bound(run, &args, error); });
                CHECK(y == std::vector<float>(y.size()));
                CHECK(words == before);
            };
            struct Other {
                const char *name;
                std::function<void(halyard_angle_source_desc &)> change;
            };
            for (const Other &other :
                 {Other{"n_rows", [](auto &desc) { desc.n_rows--; }},
                  Other{"rows_dtype", [](auto &desc) { desc.rows_dtype = desc.rows_dtype % 3 + 1; }},
                  Other{"stride_row", [](auto &desc) { desc.stride_row--; }},
                  Other{"by_token", [](auto &desc) { desc.by_token = (desc.by_token + 1) % 3; }},
                  Other{"rotary_dim", [](auto &desc) { desc.rotary_dim -= 2; }}}) {
                const auto source = make(1, [&](auto &desc) {
                    set(desc);
                    other.change(desc);
                });
                refuse(bound.get(), source.get(), y.data(), HALYARD_ERROR_MISMATCH,
                       {"args.angles has another " + std::string(other.name)});
            }
            const auto table = halyard::angle_source::table(halyard::frequencies::from_base(100.0, D), 0, n_rows - 1);
            refuse(bound.get(), table.get(), y.data(), HALYARD_ERROR_MISMATCH, {"args.angles has another kind"});
            refuse(bound.get(), second.get(), &words[2 * n_rows * D], HALYARD_ERROR_OVERLAP, {"y[0]", "angle source"});
            if (by_token == 0) {
                const halyard::bound_run of_table(plan, table, in,
                                                  halyard::tensor(y.data(), halyard::dtype::f32, shape), options);
                refuse(of_table.get(), second.get(), y.data(), HALYARD_ERROR_MISMATCH,
                       {"args.angles has another kind"});
            }
        }
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

TEST_CASE("errors: bound runs", "[errors][bound]") {
    Scene scene;
    scene.args.positions = &scene.positions;
    const halyard::plan plan(scene.desc);
    const Bound apart = bind(plan, scene.args);
    auto in_place_args = scene.args;
    in_place_args.y = scene.x;
    const Bound in_place = bind(plan, in_place_args);
    auto counted_args = scene.args;
    counted_args.positions = nullptr;
    const Bound counted = bind(plan, counted_args);
    const auto executor_args = [&] {
        auto result = scene.args;
        result.executor = &scene.executor;
        return result;
    }();
    const Bound with_executor = bind(plan, executor_args);

    using Change = std::function<void(BoundPointers &)>;
    const auto refuse = [&](const Bound &bound, halyard_status status, const Words &words, const Change &change) {
        BoundPointers pointers(scene.x, bound == in_place ? scene.x : scene.y, 2);
        pointers.args.positions = bound == counted ? nullptr : scene.positions.data;
        change(pointers);
        const auto before = scene.arena;
        CAPTURE(words);
        check_refused(status, words,
                      [&](auto *error) { return halyard_run_bound(bound.get(), &pointers.args, error); });
        CHECK(std::memcmp(before.data(), scene.arena.data(), before.size() * sizeof(float)) == 0);
    };
    const auto nothing = [](BoundPointers &) {};
    refuse(Bound(), HALYARD_ERROR_NULL_POINTER, {"bound is NULL"}, nothing);
    check_refused(HALYARD_ERROR_NULL_POINTER, {"args is NULL"},
                  [&](auto *error) { return halyard_run_bound(apart.get(), nullptr, error); });
    for (const std::uint32_t size : bad_sizes<halyard_bound_run_args>()) {
        refuse(apart, HALYARD_ERROR_STRUCT_SIZE, {"args.size", text(size)},
               [=](BoundPointers &pointers) { pointers.args.size = size; });
    }
    for (const std::int32_t n_tensors : {0, 1, 3, -1}) {
        refuse(apart, HALYARD_ERROR_SHAPE, {"args.n_tensors is " + text(n_tensors) + ", but the plan's is 2"},
               [=](BoundPointers &p) { p.args.n_tensors = n_tensors; });
    }
    refuse(apart, HALYARD_ERROR_NULL_POINTER, {"args.x is NULL"}, [](BoundPointers &p) { p.args.x = nullptr; });
    refuse(apart, HALYARD_ERROR_NULL_POINTER, {"args.y is NULL"}, [](BoundPointers &p) { p.args.y = nullptr; });
    refuse(apart, HALYARD_ERROR_NULL_POINTER, {"args.x[1] is NULL"}, [](BoundPointers &p) { p.x[1] = nullptr; });
    refuse(apart, HALYARD_ERROR_NULL_POINTER, {"args.y[0] is NULL"}, [](BoundPointers &p) { p.y[0] = nullptr; });
    refuse(in_place, HALYARD_ERROR_MISMATCH, {"args.y[1] is not args.x[1]", "in place"},
           [&](BoundPointers &p) { p.y[1] = scene.y[1].data; });
    refuse(apart, HALYARD_ERROR_OVERLAP, {"y[0]", "x[0]"}, [&](BoundPointers &p) { p.y[0] = scene.x[0].data; });
    refuse(apart, HALYARD_ERROR_OVERLAP, {"y[1]", "x[0]"}, [&](BoundPointers &p) { p.y[1] = scene.at(1); });
    refuse(apart, HALYARD_ERROR_OVERLAP, {"y[0]", "x[1]"}, [&](BoundPointers &p) { p.y[0] = scene.x[1].data; });
    refuse(apart, HALYARD_ERROR_OVERLAP, {"y[1]", "y[0]"}, [&](BoundPointers &p) { p.y[1] = p.y[0]; });
    refuse(in_place, HALYARD_ERROR_OVERLAP, {"y[1]", "y[0]"}, [](BoundPointers &p) { p.x[1] = p.y[1] = p.y[0]; });
    refuse(apart, HALYARD_ERROR_OVERLAP, {"y[1]", "positions"}, [&](BoundPointers &p) { p.y[1] = scene.at(2048 + 5); });
    refuse(apart, HALYARD_ERROR_OVERFLOW, {"args.x[0] or args.y[0] leaves the address space"},
           [](BoundPointers &p) { p.y[0] = reinterpret_cast<void *>(UINTPTR_MAX - 100); });
    refuse(apart, HALYARD_ERROR_OVERFLOW, {"args.positions leaves the address space"},
           [](BoundPointers &p) { p.args.positions = reinterpret_cast<void *>(UINTPTR_MAX - 3); });
    refuse(apart, HALYARD_ERROR_MISMATCH, {"args.positions is NULL", "with positions"},
           [](BoundPointers &p) { p.args.positions = nullptr; });
    refuse(counted, HALYARD_ERROR_MISMATCH, {"args.positions is set", "without positions"},
           [&](BoundPointers &p) { p.args.positions = scene.positions.data; });
    for (const std::int32_t n_parts : {-1, 1025, INT32_MIN, INT32_MAX}) {
        refuse(apart, HALYARD_ERROR_SHAPE, {"args.n_parts is " + text(n_parts)},
               [=](BoundPointers &p) { p.args.n_parts = n_parts; });
    }
    for (const std::int32_t part : {-1, 3, INT32_MIN, INT32_MAX}) {
        refuse(apart, HALYARD_ERROR_SHAPE, {"args.part is " + text(part), "0 to 2"}, [=](BoundPointers &p) {
            p.args.part = part;
            p.args.n_parts = 3;
        });
    }
    refuse(apart, HALYARD_ERROR_SHAPE, {"args.part is 1, but must be 0"}, [](BoundPointers &p) { p.args.part = 1; });
    refuse(with_executor, HALYARD_ERROR_MISMATCH, {"args.n_parts is 2", "executor"},
           [](BoundPointers &p) { p.args.n_parts = 2; });
    // Every part tells of a bad position, wherever it is.
    const std::int32_t bad = 10;
    std::memcpy(scene.at(2048 + 4), &bad, sizeof(bad));
    refuse(apart, HALYARD_ERROR_POSITION, {"positions[batch 1, token 1] is 10"}, nothing);
    for (const std::int32_t part : {0, 1, 2}) {
        refuse(apart, HALYARD_ERROR_POSITION, {"positions[batch 1, token 1] is 10"}, [=](BoundPointers &p) {
            p.args.part = part;
            p.args.n_parts = 3;
        });
    }
}

TEST_CASE("errors: parts of a run", "[errors][bound]") {
    const auto refuse = [](halyard_status status, const Words &words, std::int32_t part, std::int32_t n_parts,
                           bool has_executor = false) {
        Scene scene;
        scene.args.part = part;
        scene.args.n_parts = n_parts;
        scene.args.executor = has_executor ? &scene.executor : nullptr;
        check_refused(scene, status, words);
    };
    refuse(HALYARD_ERROR_SHAPE, {"args.n_parts is -1"}, 0, -1);
    refuse(HALYARD_ERROR_SHAPE, {"args.n_parts is 1025"}, 0, 1025);
    refuse(HALYARD_ERROR_SHAPE, {"args.part is 2, but must be 0 to 1"}, 2, 2);
    refuse(HALYARD_ERROR_SHAPE, {"args.part is -1"}, -1, 2);
    refuse(HALYARD_ERROR_SHAPE, {"args.part is 1, but must be 0"}, 1, 0);
    refuse(HALYARD_ERROR_MISMATCH, {"args.n_parts is 2", "executor"}, 0, 2, true);
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

// Bound runs and runs in parts must give the same bits as a whole run, and refuse the same calls.
#include "checks/make_sources.h"
#include "checks/oracle.h"
#include "rotation_run.h"

#include <catch2/catch_get_random_seed.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <atomic>
#include <memory>
#include <thread>

// A bound run must not be made from a temporary plan or angle source, which it would outlive.
template <typename Plan, typename Angles>
constexpr bool can_bind = std::is_constructible_v<halyard::bound_run, Plan, Angles, halyard_tensor, halyard_tensor>;
static_assert(can_bind<halyard::plan &, const halyard::angle_source &>);
static_assert(!can_bind<halyard::plan, halyard::angle_source &> && !can_bind<halyard::plan &, halyard::angle_source>);

TEST_CASE("bound runs: given rows that lie elsewhere, if they are of the same kind", "[errors][bound]") {
    RotationRun s;
    const std::int32_t rows_dtype = GENERATE(as<std::int32_t>{}, HALYARD_F32, HALYARD_F16, HALYARD_BF16);
    const std::int32_t by_token = GENERATE(0, 1, 2);
    const std::int64_t n_rows[] = {10, s.n_batch * s.n_tokens, s.n_tokens};
    oracle::Random random(Catch::getSeed());
    for (std::int64_t i = 0; i < 200; i++) {  // bit patterns of numbers below 1, whichever the dtype
        const auto word = static_cast<std::uint32_t>(random.in(0, 0x3bff) << 16 | random.in(0, 0x3bff));
        std::memcpy(s.at(3000 + i), &word, sizeof(word));
    }
    auto desc = describe_given(s.at(3000), s.at(3050), n_rows[by_token], s.rotary_dim, s.rotary_dim, rows_dtype);
    desc.by_token = by_token;
    const halyard::angle_source first(halyard::frequencies(), desc);
    desc.cos_rows = s.at(3100);
    desc.sin_rows = s.at(3150);
    halyard::angle_source second(halyard::frequencies(), desc);
    s.args.angles = first.get();
    s.args.positions = by_token == 0 ? &s.positions : nullptr;
    BoundRun b(s);
    const auto before = s.arena;
    s.args.angles = second.get();
    s.run();
    const auto after = s.arena;
    for (const std::int32_t n_parts : {1, 3}) {
        s.arena = before;
        for (std::int32_t part = 0; part < n_parts; part++) {
            b.bound({s.x[0].data, s.x[1].data}, {s.y[0].data, s.y[1].data}, b.args.positions, {part, n_parts}, nullptr,
                    second.get());
        }
        CHECK(s.arena_equals(after));
    }

    const CallChecker calls([&](halyard_status status, const Words &words) {
        second = halyard::angle_source(halyard::frequencies(), desc);
        b.calls.refuse(status, words, {{b.args.angles, second.get()}});
    });
    const auto refuse = [&](const std::string &what, const Change &change) {
        calls.refuse(HALYARD_ERROR_MISMATCH, {"args.angles has another " + what}, {change});
    };
    refuse("n_rows", {desc.n_rows, desc.n_rows - 1});
    refuse("rows_dtype", {desc.rows_dtype, rows_dtype % 3 + 1});
    refuse("stride_row", {desc.stride_row, s.rotary_dim - 1});
    refuse("by_token", {desc.by_token, (by_token + 1) % 3});
    refuse("rotary_dim", {desc.rotary_dim, s.rotary_dim - 2});
    calls.refuse(HALYARD_ERROR_OVERLAP, {"y[0]", "angle source"}, {{b.y[0], s.at(3100)}});
    const Words kind = {"args.angles has another kind"};
    b.calls.refuse(HALYARD_ERROR_MISMATCH, kind, {{b.args.angles, s.angles.get()}});
    if (by_token == 0) {
        s.args.angles = s.angles.get();
        BoundRun of_table(s);
        of_table.calls.refuse(HALYARD_ERROR_MISMATCH, kind, {{of_table.args.angles, second.get()}});
    }
}

TEST_CASE("errors: bound runs", "[errors][bound]") {
    RotationRun s;
    s.args.positions = &s.positions;
    BoundRun b(s);
    every_field::refuse(b.calls, fields::places(fields::of<halyard_bound_run_args>(), &b.args, 2), {"positions"});
    b.calls.refuse_each(HALYARD_ERROR_SHAPE, {0, 1, 3}, {{"args.n_tensors", b.args.n_tensors}});
    b.calls.refuse_each(HALYARD_ERROR_SHAPE, {1025, INT32_MAX}, {{"args.n_parts", b.args.n_parts}});
    const Words leaves = {"args.x[0] or args.y[0] leaves the address space"};
    void *const near_the_end = before_the_end_of_memory(100);
    b.calls.refuse({
        {HALYARD_ERROR_NULL_POINTER, {"args.x[1] is NULL"}, {{b.x[1], nullptr}}},
        {HALYARD_ERROR_MISMATCH, {"args.kv is set"}, {{b.args.kv, &s.kv_args}}},
        {HALYARD_ERROR_OVERLAP, {"y[0]", "x[0]"}, {{b.y[0], s.x[0].data}}},
        {HALYARD_ERROR_OVERFLOW, leaves, {{b.y[0], near_the_end}}},
        {HALYARD_ERROR_OVERFLOW, leaves, {{b.x[0], near_the_end}}},
        {HALYARD_ERROR_OVERFLOW, {"args.positions"}, {{b.args.positions, before_the_end_of_memory(3)}}},
        {HALYARD_ERROR_MISMATCH, {"args.positions is NULL", "with positions"}, {{b.args.positions, nullptr}}},
        {HALYARD_ERROR_SHAPE, {"args.part is 1, but must be 0"}, {{b.args.part, 1}}},
    });
    // Every part reports a bad position, even in another part's tokens.
    auto &position = reinterpret_cast<std::int32_t *>(s.at(2048))[4];
    const Words told = {"positions[batch 1, token 1] is 10"};
    b.calls.refuse(HALYARD_ERROR_POSITION, told, {{position, 10}});
    b.args.n_parts = 3;
    for (const std::int32_t part : {0, 1, 2}) {
        b.calls.refuse(HALYARD_ERROR_POSITION, told, {{position, 10}, {b.args.part, part}});
    }
    b.calls.refuse_each(HALYARD_ERROR_SHAPE, {-1, 3, INT32_MAX}, {{"args.part", b.args.part}}, {"0 to 2"});

    // halyard_bind_run checks what halyard_run checks (see ValidRun::runs), except positions: it does not read them.
    CallChecker::with({{position, 100}}, [&] { CHECK_NOTHROW(BoundRun(s)); });
    const CallChecker binding([&](halyard_status status, const Words &words) {
        halyard_bound_run *bound = nullptr;
        check_refused(status, words, [&](auto *e) { return halyard_bind_run(b.plan.get(), &s.args, &bound, e); });
        CHECK(bound == nullptr);
    });
    binding.refuse({{HALYARD_ERROR_MISMATCH, {"args.n_parts is 2"}, {{s.args.n_parts, 2}}},
                    {HALYARD_ERROR_SHAPE, {"args.part is 1"}, {{s.args.part, 1}}},
                    {HALYARD_ERROR_OVERLAP, {"y[0]", "x[0]"}, {{s.y[0].data, s.at(1)}}}});
}

TEST_CASE("errors: bound runs of other kinds", "[errors][bound]") {
    RotationRun s;
    BoundRun counted(s);
    counted.calls.refuse(HALYARD_ERROR_MISMATCH, {"args.positions is set", "without positions"},
                         {{counted.args.positions, s.positions.data}});
    s.args.executor = &s.executor;
    BoundRun with_executor(s);
    with_executor.calls.refuse(HALYARD_ERROR_MISMATCH, {"args.n_parts is 2", "executor"},
                               {{with_executor.args.n_parts, 2}});
    s.args.executor = nullptr;
    s.args.y = s.x;
    BoundRun in_place(s);
    in_place.calls.refuse({
        {HALYARD_ERROR_MISMATCH, {"args.y[1] is not args.x[1]", "in place"}, {{in_place.y[1], s.y[1].data}}},
        {HALYARD_ERROR_NULL_POINTER, {"args.y[1] is NULL"}, {{in_place.y[1], nullptr}}},
        {HALYARD_ERROR_NULL_POINTER, {"args.x[1] is NULL"}, {{in_place.x[1], nullptr}}},
        {HALYARD_ERROR_OVERLAP, {"y[1]", "y[0]"}, {{in_place.x[1], in_place.y[0]}, {in_place.y[1], in_place.y[0]}}},
    });
    RotationRun backwards;
    auto &x = backwards.x[0];
    x.data = static_cast<float *>(x.data) + (x.shape[1] - 1) * x.strides[1];
    x.strides[1] = -x.strides[1];
    BoundRun from_last(backwards);
    from_last.calls.refuse(HALYARD_ERROR_OVERFLOW, {"args.x[0] or args.y[0] leaves the address space"},
                           {{from_last.x[0], reinterpret_cast<void *>(4)}});
    RotationRun none;
    for (auto *const tensor : {&none.x[0], &none.x[1], &none.y[0], &none.y[1]}) {
        tensor->shape[1] = 0;
    }
    none.positions.shape[1] = 0;
    none.args.positions = &none.positions;
    BoundRun empty(none);
    empty.args.positions = nullptr;
    CHECK(empty() == HALYARD_OK);
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
    for (const int key : {2, 3, 1, 4, 1, 3, 2, 1}) {  // 2 is evicted for 4, then 4 for 2
        CHECK(**find(key) == 10 * key);
    }
    CHECK(made == std::vector<int>{1, 2, 3, 4, 2});
    CHECK(find(1) == first);
    find(5), find(6), find(7);
    CHECK(**first == 10);  // evicted, but its owner keeps it alive
    CHECK(find(1) != first);

    const auto refuse = [&] { return cache.find(8, [&]() -> std::unique_ptr<int> { throw halyard::error(1, "no"); }); };
    CHECK_THROWS_AS(refuse(), halyard::error);
    CHECK(**find(8) == 80);
    CHECK(made.back() == 8);

    halyard::run_cache<int, int> shared(4);
    std::atomic<int> n_made = 0, n_wrong = 0;
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; t++) {
        threads.emplace_back([&, t] {
            for (int i = 0; i < 1000; i++) {
                const int key = (i * (t + 1)) % 4;
                n_wrong += *shared.find(key, [&] { return ++n_made, key; }) != key;
            }
        });
    }
    threads.clear();
    CHECK(n_made >= 4);  // threads that miss the same key at once each make a run
    CHECK(n_wrong == 0);
}

// halyard_make_rows: every form of positions, bad positions, and bad arguments.
#include "changes.h"
#include "checks/make_sources.h"
#include "checks/oracle.h"

#include <catch2/catch_get_random_seed.hpp>

#include <cmath>
#include <thread>

namespace {

/// A source of one frequency whose row for position p is (p, -p), which shows which row was read.
struct Given {
    std::vector<float> memory;
    halyard::angle_source source;

    explicit Given(std::int64_t n_rows) {
        for (std::int64_t row = 0; row < n_rows; ++row) {
            memory.push_back(static_cast<float>(row));
            memory.push_back(static_cast<float>(-row));
        }
        source = halyard::angle_source::given(memory.data(), memory.data() + 1, n_rows, 2, 2);
    }
};

/// A call for rows of two times three tokens, into memory whose numbers must stay 42.
struct ValidCall {
    Given given{10};
    halyard::plan narrow = plan_for(2);
    const halyard_plan *plan = narrow.get();
    std::vector<float> rows = std::vector<float>(64, 42.0f);
    std::vector<std::int32_t> values = {1, 2, 3, 4, 5, 6};
    halyard_positions positions = positions_of(values, 2);
    halyard_rows_args args = rows_args(given.source, &positions, 2, 3, rows.data(), 64);

    halyard_status make(halyard_error *error) const { return halyard_make_rows(plan, &args, error); }

    Table calls{[this](halyard_status status, const Words &words) {
                    check_refused(status, words, [this](auto *error) { return make(error); });
                    CHECK(rows == std::vector<float>(64, 42.0f));
                },
                [this] { CHECK(make(nullptr) == HALYARD_OK); }};
};

}  // namespace

TEST_CASE("make_rows: arguments are checked before the first write", "[angles][errors]") {
    ValidCall call;
    auto &args = call.args;
    const Table &calls = call.calls;
    check_refused(HALYARD_ERROR_NULL_POINTER, {"args is NULL"},
                  [&](auto *error) { return halyard_make_rows(call.plan, nullptr, error); });
    calls.refuse_each(HALYARD_ERROR_STRUCT_SIZE, bad_sizes<halyard_rows_args>(), {{"args.size", args.size}});
    calls.refuse_each(HALYARD_ERROR_SHAPE, {-1, 1025, INT32_MIN, INT32_MAX}, {{"args.n_parts", args.n_parts}});
    for (const std::int32_t part : {-1, 3, INT32_MIN, INT32_MAX}) {
        calls.refuse(HALYARD_ERROR_SHAPE, {"args.part is " + text(part), "0 to 2"},
                     {{args.part, part}, {args.n_parts, 3}});
    }
    for (const std::int32_t policy : {-1, 3}) {
        calls.refuse(HALYARD_ERROR_UNKNOWN_VALUE, {}, {{args.bad_position, policy}});
    }
    for (const auto &[n_batch, n_tokens] : {std::pair<std::int64_t, std::int64_t>{-1, 3}, {2, -3}, {3, 3}}) {
        calls.refuse(HALYARD_ERROR_SHAPE, {}, {{args.n_batch, n_batch}, {args.n_tokens, n_tokens}});
    }
    const auto plan_of_four = plan_for(4);
    calls.refuse({
        {HALYARD_ERROR_NULL_POINTER, {"plan is NULL"}, {{call.plan, nullptr}}},
        {HALYARD_ERROR_NULL_POINTER, {"args.angles is NULL"}, {{args.angles, nullptr}}},
        {HALYARD_ERROR_NULL_POINTER, {}, {{args.rows, nullptr}}},
        {HALYARD_ERROR_MISMATCH,
         {"angles has a rotary_dim of 2, but the plan's is 4"},
         {{call.plan, plan_of_four.get()}}},
        {HALYARD_ERROR_SHAPE, {"args.part is 1, but must be 0"}, {{args.part, 1}}},
        {HALYARD_ERROR_SHAPE,
         {"positions.shape is {2, 3}, but it must be {1 or 2, 4}, batch and tokens, on the one axis"},
         {{args.n_tokens, 4}}},
        {HALYARD_ERROR_SHAPE, {"n_floats is 11, but the rows need 12"}, {{args.n_floats, 11}}},
        {HALYARD_ERROR_SHAPE, {}, {{args.n_floats, -1}}},
    });

    args.positions = nullptr;
    calls.refuse(HALYARD_ERROR_MISMATCH, {"positions is NULL, but each of 3 sequences has one token"},
                 {{args.n_batch, 3}, {args.n_tokens, 1}});
    const auto refuse_counts = [&](halyard_status status, std::int64_t n_batch, std::int64_t n_tokens,
                                   std::int64_t n_floats) {
        calls.refuse(status, {}, {{args.n_batch, n_batch}, {args.n_tokens, n_tokens}, {args.n_floats, n_floats}});
    };
    refuse_counts(HALYARD_ERROR_OVERFLOW, INT64_MAX, INT64_MAX, INT64_MAX);
    refuse_counts(HALYARD_ERROR_OVERFLOW, 1, INT64_MAX / 4, INT64_MAX);
    for (const std::int64_t negative : Numbers{-1, INT64_MIN}) {
        refuse_counts(HALYARD_ERROR_SHAPE, negative, 1, 64);
        refuse_counts(HALYARD_ERROR_SHAPE, 1, negative, 64);
        refuse_counts(HALYARD_ERROR_SHAPE, negative, negative, 64);
    }
    // In 64 bits, their number of floats wraps around to that of one token.
    const auto four = halyard::angle_source::table(halyard::frequencies::from_base(10000, 4), 0, 10);
    call.plan = plan_of_four.get();
    args.angles = four.get();
    refuse_counts(HALYARD_ERROR_OVERFLOW, 1, (1LL << 62) + 1, 64);
    refuse_counts(HALYARD_ERROR_OVERFLOW, (1LL << 61) + 1, 2, 64);
    // Nothing to do is fine.
    args.rows = nullptr;
    args.n_floats = 0;
    calls.accept({{args.n_batch, INT64_MAX}, {args.n_tokens, 0}});
    calls.accept({{args.n_batch, 0}, {args.n_tokens, INT64_MAX}});
}

TEST_CASE("make_rows: positions are checked before the first write", "[angles][errors]") {
    ValidCall call;
    auto &positions = call.positions;
    const Table &calls = call.calls;
    call.args.bad_position = HALYARD_BAD_POSITION_CLAMP;
    const auto refuse = [&](halyard_status status, const std::vector<Set> &changes) {
        calls.refuse(status, {}, changes);
    };
    refuse(HALYARD_ERROR_NULL_POINTER, {{positions.data, nullptr}});
    for (const std::size_t size : {std::size_t{0}, std::size_t{4}, sizeof(positions) - 8, sizeof(positions) + 8}) {
        refuse(HALYARD_ERROR_STRUCT_SIZE, {{positions.size, size}});
    }
    for (const std::int32_t value : {-1, 2, 99}) {
        refuse(HALYARD_ERROR_UNKNOWN_VALUE, {{positions.type, value}});
        refuse(HALYARD_ERROR_UNKNOWN_VALUE, {{positions.consecutive, value}});
    }
    refuse(HALYARD_ERROR_SHAPE, {{positions.consecutive, 1}});
    for (const int d : {0, 1}) {
        refuse(HALYARD_ERROR_SHAPE, {{positions.shape[d], -1}});
        for (const std::int64_t stride : Numbers{INT64_MIN, INT64_MAX, INT64_MAX / 2, INT64_MIN / 8}) {
            refuse(HALYARD_ERROR_OVERFLOW, {{positions.strides[d], stride}});
        }
    }
    // Nothing to do is fine.
    const std::vector<Set> empty = {{positions.data, nullptr}, {call.args.rows, nullptr}, {call.args.n_floats, 0}};
    for (const auto &[n_batch, n_tokens] : {std::pair<std::int64_t, std::int64_t>{5, 0}, {0, 7}, {INT64_MAX, 0}}) {
        std::vector<Set> changes = {{positions.shape[0], n_batch},
                                    {positions.shape[1], n_tokens},
                                    {call.args.n_batch, n_batch},
                                    {call.args.n_tokens, n_tokens}};
        changes.insert(changes.end(), empty.begin(), empty.end());
        calls.accept(changes);
    }
    // The first position that is bad is named, by every part.
    call.args.n_parts = 3;
    for (call.args.part = 0; call.args.part < 3; call.args.part++) {
        calls.refuse(
            HALYARD_ERROR_POSITION, {"positions[batch 1, token 1] is 70000, but the angle source covers 0 to 9"},
            {{call.args.bad_position, HALYARD_BAD_POSITION_ERROR}, {call.values[4], 70000}, {call.values[5], -8}});
        const std::int32_t starts[] = {0, 8};
        const auto consecutive = halyard::consecutive_positions(starts, 2);
        calls.refuse(HALYARD_ERROR_POSITION, {"positions[batch 1, token 2] is 10, but the angle source covers 0 to 9"},
                     {{call.args.bad_position, HALYARD_BAD_POSITION_ERROR}, {call.args.positions, &consecutive}});
    }
    call.args.part = call.args.n_parts = 0;
    // There are floats in the place of positions, but none is read before the check.
    refuse(HALYARD_ERROR_OVERLAP, {{positions.data, call.rows.data() + 11}});
    positions.data = call.rows.data() + 12;
    CHECK(call.make(nullptr) == HALYARD_OK);
    CHECK(std::vector<float>(call.rows.begin() + 12, call.rows.end()) == std::vector<float>(52, 42.0f));
}

TEST_CASE("make_rows: rows over the source's are refused", "[angles]") {
    ValidCall call;
    auto &args = call.args;
    args.positions = nullptr;
    auto &memory = call.given.memory;
    const auto before = memory;
    for (const std::ptrdiff_t at : {0, 19}) {
        call.calls.refuse(HALYARD_ERROR_OVERLAP, {}, {{args.rows, memory.data() + at}, {args.n_floats, 20}});
    }
    CHECK(memory == before);
    std::vector<float> cos(4, 42.0f), sin = cos;
    const auto apart = halyard::angle_source::given(cos.data(), sin.data(), 4, 1, 2);
    args = rows_args(apart, nullptr, 1, 2, cos.data(), 4);
    for (std::vector<float> *const over : {&cos, &sin}) {
        call.calls.refuse(HALYARD_ERROR_OVERLAP, {}, {{args.rows, over->data()}});
        CHECK(*over == std::vector<float>(4, 42.0f));
    }
}

TEST_CASE("make_rows: parts are the whole to the bit, each writing rows of its own", "[angles][threads][property]") {
    oracle::Random random(Catch::getSeed());
    for (int trial = 0; trial < 40; ++trial) {
        constexpr std::int64_t dims[] = {2, 10, 128, 4102};
        const std::int64_t rotary_dim = random.one_of(dims), n_batch = random.in(1, 3), n_tokens = random.in(1, 40);
        const auto n_parts = static_cast<std::int32_t>(random.one_in(5) ? 200 : random.in(2, 6));
        CAPTURE(rotary_dim, n_batch, n_tokens, n_parts);
        const auto frequencies = halyard::frequencies::from_base(10000, rotary_dim);
        const auto angles = random.one_in(2) ? halyard::angle_source::phase(frequencies)
                                             : halyard::angle_source::table(frequencies, -100, 201);
        std::vector<std::int32_t> values(static_cast<std::size_t>(n_batch * n_tokens));
        std::ranges::generate(values, [&] { return static_cast<std::int32_t>(random.in(-100, 100)); });
        const auto at = positions_of(values, n_batch);
        const auto whole = rows_of(angles, &at, n_batch, n_tokens);
        const auto plan = plan_for(rotary_dim);
        std::vector<float> together(whole.size(), NAN), alone = together;
        std::vector<std::jthread> threads;
        std::ptrdiff_t n_written = 0;
        for (std::int32_t part = 0; part < n_parts; ++part) {
            const auto make = [&, mine = halyard::part_of_run{part, n_parts}](std::vector<float> &rows) {
                halyard::make_rows(plan, angles, &at, n_batch, n_tokens, rows.data(), std::ssize(rows),
                                   halyard::bad_position::error, mine);
            };
            threads.emplace_back([&, make] { make(together); });
            std::fill(alone.begin(), alone.end(), NAN);
            make(alone);
            n_written += std::count_if(alone.begin(), alone.end(), [](float value) { return !std::isnan(value); });
        }
        threads.clear();
        CHECK(together == whole);
        CHECK(n_written == std::ssize(whole));
    }
}

TEST_CASE("make_rows: rows by token serve only the shape that they were made for", "[angles]") {
    const auto table = halyard::angle_source::table(halyard::frequencies::from_base(10000, 8), 0, 51);
    const auto plan = plan_for(8);
    const std::vector<std::int32_t> values = {7, 0, 50, 3, 19, 4};
    std::vector<float> x(6 * 8, 1.0f), y(x.size(), 42.0f);
    const std::vector<float> untouched = y;
    const auto run = [&](const halyard::angle_source &angles, std::int64_t n_batch, std::int64_t n_tokens,
                         const halyard_positions *positions, halyard_error *error) {
        const auto from = halyard::tensor(x.data(), halyard::dtype::f32, {n_batch, n_tokens, 1, 8});
        const auto to = halyard::tensor(y.data(), halyard::dtype::f32, {n_batch, n_tokens, 1, 8});
        auto args = sized<halyard_run_args>();
        args.angles = angles.get();
        args.positions = positions;
        args.x = &from;
        args.y = &to;
        return halyard_run(plan.get(), &args, error);
    };
    const auto refuse = [&](halyard_status status, const Words &words, const halyard::angle_source &angles,
                            std::int64_t n_batch, std::int64_t n_tokens, const halyard_positions *positions = nullptr) {
        check_refused(status, words, [&](auto *error) { return run(angles, n_batch, n_tokens, positions, error); });
        CHECK(y == untouched);
    };
    const auto rows = rows_of(table, nullptr, 1, 6);
    const auto by_token = halyard::angle_source::given_by_token(rows.data(), 6, 8);
    refuse(HALYARD_ERROR_SHAPE, {"6 rows by_token", "1 x 5"}, by_token, 1, 5);
    refuse(HALYARD_ERROR_SHAPE, {"6 rows by_token", "4 x 1"}, by_token, 4, 1);
    const auto by_position = halyard::angle_source::given(rows.data(), rows.data() + 4, 6, 8, 8);
    for (const std::int64_t n_batch : {1, 2, 3, 6}) {
        CAPTURE(n_batch);
        const std::int64_t n_tokens = 6 / n_batch;
        const auto at = positions_of(values, n_batch);
        refuse(HALYARD_ERROR_MISMATCH, {"args.positions is set", "by_token"}, by_token, n_batch, n_tokens, &at);
        if (n_batch > 1) {  // without positions every batch row would read row 0 on
            refuse(HALYARD_ERROR_MISMATCH, {"args.positions is NULL", text(n_batch) + " batch rows"}, by_position,
                   n_batch, n_tokens);
        }
        CHECK(run(by_token, 0, n_tokens, nullptr, nullptr) == HALYARD_OK);  // nothing to do
    }
    for (const std::int64_t n_tokens : {1, 4}) {
        const auto shared = halyard::angle_source::given_by_token(rows.data(), n_tokens, 8, true);
        const auto at = halyard::positions(values.data(), {1, n_tokens});
        refuse(HALYARD_ERROR_SHAPE, {text(n_tokens) + " rows by_token that batch rows share", "1 x 3"}, shared, 1, 3);
        refuse(HALYARD_ERROR_MISMATCH, {"args.positions is set", "by_token"}, shared, 1, n_tokens, &at);
    }
    const auto again = rows_args(by_token, nullptr, 1, 6, y.data(), 48);
    check_refused(HALYARD_ERROR_MISMATCH, {"angles has rows by_token"},
                  [&](auto *error) { return halyard_make_rows(plan.get(), &again, error); });
    CHECK(y == untouched);
    CHECK(run(by_token, 2, 3, nullptr, nullptr) == HALYARD_OK);
    CHECK(y != untouched);
}

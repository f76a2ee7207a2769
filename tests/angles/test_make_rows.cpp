// halyard_make_rows: every form of positions, bad positions, and bad arguments.
#include "checks/make_sources.h"
#include "checks/oracle.h"
#include "refused.h"

#include <functional>
#include <utility>

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

/// Which rows of a Given source the tokens read.
std::vector<int> read_rows(const Given &given, const halyard_positions *positions, std::int64_t n_batch,
                           std::int64_t n_tokens, halyard::bad_position policy = halyard::bad_position::error) {
    const auto rows = rows_of(given.source, positions, n_batch, n_tokens, policy);
    std::vector<int> result;
    for (std::size_t i = 0; i < rows.size(); i += 2) {
        CHECK(rows[i] == -rows[i + 1]);
        result.push_back(static_cast<int>(rows[i]));
    }
    return result;
}

}  // namespace

TEST_CASE("make_rows: every form of positions", "[angles]") {
    const Given given(100);
    CHECK(read_rows(given, nullptr, 2, 3) == std::vector<int>{0, 1, 2, 0, 1, 2});

    const std::vector<std::int32_t> narrow = {5, 6, 7, 8, 9, 10};
    auto positions = positions_of(narrow, 2);
    CHECK(read_rows(given, &positions, 2, 3) == std::vector<int>{5, 6, 7, 8, 9, 10});
    positions.strides[0] = 1;
    positions.strides[1] = 2;
    CHECK(read_rows(given, &positions, 2, 3) == std::vector<int>{5, 7, 9, 6, 8, 10});
    positions.data = narrow.data() + 5;
    positions.strides[0] = -3;
    positions.strides[1] = -1;
    CHECK(read_rows(given, &positions, 2, 3) == std::vector<int>{10, 9, 8, 7, 6, 5});
    positions.strides[0] = positions.strides[1] = 0;
    CHECK(read_rows(given, &positions, 2, 3) == std::vector<int>{10, 10, 10, 10, 10, 10});

    positions = positions_of(narrow);
    positions.shape[1] = 3;
    positions.strides[0] = INT64_MIN;  // there is one row, so this is never used
    CHECK(read_rows(given, &positions, 2, 3) == std::vector<int>{5, 6, 7, 5, 6, 7});

    const std::vector<std::int64_t> wide = {50, 60, 70};
    positions = positions_of(wide);
    CHECK(read_rows(given, &positions, 1, 3) == std::vector<int>{50, 60, 70});
    positions = positions_of(wide, 3);
    CHECK(read_rows(given, &positions, 3, 1) == std::vector<int>{50, 60, 70});
    positions.consecutive = 1;
    CHECK(read_rows(given, &positions, 3, 2) == std::vector<int>{50, 51, 60, 61, 70, 71});
    positions.shape[0] = 1;
    CHECK(read_rows(given, &positions, 2, 3) == std::vector<int>{50, 51, 52, 50, 51, 52});

    // Positions may have any alignment.
    std::vector<char> bytes(64);
    std::memcpy(bytes.data() + 3, wide.data(), 24);
    positions = positions_of(wide);
    positions.data = bytes.data() + 3;
    CHECK(read_rows(given, &positions, 1, 3) == std::vector<int>{50, 60, 70});
}

TEST_CASE("make_rows: what bad positions mean", "[angles]") {
    const Given given(10);
    const std::vector<std::int64_t> values = {-1, 10, INT64_MIN, INT64_MAX, 4294967296 + 5, 3};
    auto positions = positions_of(values);
    CHECK(read_rows(given, &positions, 1, 6, halyard::bad_position::clamp) == std::vector<int>{0, 9, 0, 9, 9, 3});
    CHECK(read_rows(given, &positions, 1, 6, halyard::bad_position::identity) == std::vector<int>{0, 0, 0, 0, 0, 3});
    // Consecutive positions saturate instead of wrapping around.
    const std::vector<std::int64_t> start = {INT64_MAX - 1};
    positions = positions_of(start);
    positions.consecutive = 1;
    CHECK(read_rows(given, &positions, 1, 4, halyard::bad_position::clamp) == std::vector<int>{9, 9, 9, 9});
}

TEST_CASE("make_rows: the first bad position is named and nothing is written", "[angles]") {
    const Given given(10);
    std::vector<float> rows(64, 42.0f);
    const auto refuse = [&](const halyard::angle_source &source, const halyard_positions &positions,
                            std::int64_t n_batch, std::int64_t n_tokens, const std::string &sentence) {
        check_refused(HALYARD_ERROR_POSITION, {sentence}, [&](auto *error) {
            return halyard_make_rows(plan_for(2).get(), source.get(), &positions, HALYARD_BAD_POSITION_ERROR, n_batch,
                                     n_tokens, rows.data(), 64, error);
        });
        CHECK(rows == std::vector<float>(64, 42.0f));
    };
    const std::vector<std::int32_t> values = {1, 2, 3, 4, 5, 70000, 7, -8};
    refuse(given.source, positions_of(values, 2), 2, 4,
           "positions[batch 1, token 1] is 70000, but the angle source covers 0 to 9");
    const std::vector<std::int64_t> wide = {2, 4294967296};
    refuse(given.source, positions_of(wide), 1, 2,
           "positions[batch 0, token 1] is 4294967296, but the angle source covers 0 to 9");
    const std::int32_t starts[] = {0, 8}, one = 1;
    refuse(given.source, halyard::consecutive_positions(starts, 2), 2, 4,
           "positions[batch 1, token 2] is 10, but the angle source covers 0 to 9");
    const auto some = make_listed_table(halyard::frequencies::from_base(10000, 2), std::vector<std::int32_t>{1, 2, 5});
    const std::string not_listed =
        "positions[batch 0, token 2] is 3, which is none of the 3 positions that the angle source lists";
    refuse(some, positions_of(values), 1, 8, not_listed);
    refuse(some, halyard::consecutive_positions(&one, 1), 1, 5, not_listed);
}

TEST_CASE("make_rows: arguments are checked before the first write", "[angles]") {
    Given given(10);
    std::vector<float> rows(64, 42.0f);
    const std::vector<std::int32_t> values = {1, 2, 3, 4, 5, 6};
    const auto valid = positions_of(values, 2);
    const auto clamp = HALYARD_BAD_POSITION_CLAMP;
    using Description = halyard_positions;
    struct Call {
        const halyard_plan *plan;
        const halyard_angle_source *source;
        const halyard_positions *positions;
        std::int32_t policy;
        std::int64_t n_batch, n_tokens;
        float *to;
        std::int64_t n_floats;

        halyard_status make(halyard_error *error) const {
            return halyard_make_rows(plan, source, positions, policy, n_batch, n_tokens, to, n_floats, error);
        }
    };
    const auto plan = plan_for(2), plan_of_four = plan_for(4);
    const Call good = {plan.get(), given.source.get(), &valid, 0, 2, 3, rows.data(), 64};
    const auto refuse = [&](halyard_status status, const Words &words, const std::function<void(Call &)> &change) {
        Call call = good;
        change(call);
        check_refused(status, words, [&](auto *error) { return call.make(error); });
        CHECK(rows == std::vector<float>(64, 42.0f));
    };
    const auto refuse_positions = [&](halyard_status status, const std::function<void(Description &)> &change) {
        auto positions = valid;
        change(positions);
        refuse(status, {}, [&](Call &call) {
            call.positions = &positions;
            call.policy = clamp;
        });
    };

    refuse(HALYARD_ERROR_NULL_POINTER, {"plan is NULL"}, [](Call &call) { call.plan = nullptr; });
    refuse(HALYARD_ERROR_NULL_POINTER, {"source is NULL"}, [](Call &call) { call.source = nullptr; });
    refuse(HALYARD_ERROR_MISMATCH, {"source has a rotary_dim of 2, but the plan's is 4"},
           [&](Call &call) { call.plan = plan_of_four.get(); });
    refuse(HALYARD_ERROR_NULL_POINTER, {}, [](Call &call) { call.to = nullptr; });
    refuse_positions(HALYARD_ERROR_NULL_POINTER, [](Description &positions) { positions.data = nullptr; });
    for (const std::uint32_t size : {0u, 4u, unsigned(sizeof(valid)) - 8, unsigned(sizeof(valid)) + 8}) {
        refuse_positions(HALYARD_ERROR_STRUCT_SIZE, [&](Description &positions) { positions.size = size; });
    }
    for (const std::int32_t value : {-1, 2, 99}) {
        refuse_positions(HALYARD_ERROR_UNKNOWN_VALUE, [&](Description &positions) { positions.type = value; });
        refuse_positions(HALYARD_ERROR_UNKNOWN_VALUE, [&](Description &positions) { positions.consecutive = value; });
    }
    for (const std::int32_t policy : {-1, 3}) {
        refuse(HALYARD_ERROR_UNKNOWN_VALUE, {}, [&](Call &call) { call.policy = policy; });
    }
    for (const auto &[n_batch, n_tokens] : {std::pair<std::int64_t, std::int64_t>{-1, 3}, {2, -3}, {3, 3}}) {
        refuse(HALYARD_ERROR_SHAPE, {}, [&, b = n_batch, t = n_tokens](Call &call) {
            call.n_batch = b;
            call.n_tokens = t;
        });
    }
    refuse(HALYARD_ERROR_SHAPE, {"positions.shape is {2, 3}, but it must be {1 or 2, 4}"},
           [](Call &call) { call.n_tokens = 4; });
    for (const int d : {0, 1}) {
        refuse_positions(HALYARD_ERROR_SHAPE, [=](Description &positions) { positions.shape[d] = -1; });
    }
    refuse_positions(HALYARD_ERROR_SHAPE, [](Description &positions) { positions.consecutive = 1; });
    refuse(HALYARD_ERROR_SHAPE, {"n_floats is 11, but the rows need 12"}, [](Call &call) { call.n_floats = 11; });
    refuse(HALYARD_ERROR_SHAPE, {}, [](Call &call) { call.n_floats = -1; });

    for (const std::int64_t stride : Numbers{INT64_MIN, INT64_MAX, INT64_MAX / 2, INT64_MIN / 8}) {
        for (const int d : {0, 1}) {
            refuse_positions(HALYARD_ERROR_OVERFLOW, [&](Description &positions) { positions.strides[d] = stride; });
        }
    }
    const auto refuse_counts = [&](halyard_status status, Call call) {
        call.positions = nullptr;
        refuse(status, {}, [&](Call &changed) { changed = call; });
    };
    refuse_counts(HALYARD_ERROR_OVERFLOW,
                  {plan.get(), good.source, nullptr, clamp, INT64_MAX, INT64_MAX, rows.data(), INT64_MAX});
    refuse_counts(HALYARD_ERROR_OVERFLOW,
                  {plan.get(), good.source, nullptr, clamp, 1, INT64_MAX / 4, rows.data(), INT64_MAX});
    // In 64 bits, their number of floats wraps around to that of one token.
    const auto four = halyard::angle_source::table(halyard::frequencies::from_base(10000, 4), 0, 9);
    refuse_counts(HALYARD_ERROR_OVERFLOW,
                  {plan_of_four.get(), four.get(), nullptr, 0, 1, (1LL << 62) + 1, rows.data(), 64});
    refuse_counts(HALYARD_ERROR_OVERFLOW,
                  {plan_of_four.get(), four.get(), nullptr, 0, (1LL << 62) + 1, 1, rows.data(), 64});
    for (const std::int64_t negative : Numbers{-1, INT64_MIN}) {
        refuse_counts(HALYARD_ERROR_SHAPE, {plan.get(), good.source, nullptr, 0, negative, 1, rows.data(), 64});
        refuse_counts(HALYARD_ERROR_SHAPE, {plan.get(), good.source, nullptr, 0, 1, negative, rows.data(), 64});
        refuse_counts(HALYARD_ERROR_SHAPE, {plan.get(), good.source, nullptr, 0, negative, negative, rows.data(), 64});
    }

    for (const std::ptrdiff_t at : {0, 19}) {
        refuse(HALYARD_ERROR_OVERLAP, {}, [&](Call &call) {
            call.to = given.memory.data() + at;
            call.n_floats = 20;
        });
    }
    CHECK(rows_of(given.source, nullptr, 1, 10) == given.memory);
    std::vector<float> cos(4, 42.0f), sin = cos;
    const auto apart = halyard::angle_source::given(cos.data(), sin.data(), 4, 1, 2);
    for (std::vector<float> *const over : {&cos, &sin}) {
        refuse_counts(HALYARD_ERROR_OVERLAP, {plan.get(), apart.get(), nullptr, 0, 1, 2, over->data(), 4});
        CHECK(*over == std::vector<float>(4, 42.0f));
    }
    // There are floats in the place of positions, but none is read before the check.
    refuse_positions(HALYARD_ERROR_OVERLAP, [&](Description &positions) { positions.data = rows.data() + 11; });
    auto behind = valid;
    behind.data = rows.data() + 12;
    CHECK(Call{plan.get(), good.source, &behind, clamp, 2, 3, rows.data(), 64}.make(nullptr) == HALYARD_OK);
    CHECK(std::vector<float>(rows.begin() + 12, rows.end()) == std::vector<float>(52, 42.0f));
}

TEST_CASE("make_rows: nothing to do is fine", "[angles]") {
    const Given given(10);
    const auto plan = plan_for(2);
    const std::vector<std::int32_t> none = {};
    auto positions = positions_of(none);
    positions.data = nullptr;
    CHECK(halyard_make_rows(plan.get(), given.source.get(), &positions, 0, 5, 0, nullptr, 0, nullptr) == HALYARD_OK);
    positions.shape[0] = 0;
    positions.shape[1] = 7;
    CHECK(halyard_make_rows(plan.get(), given.source.get(), &positions, 0, 0, 7, nullptr, 0, nullptr) == HALYARD_OK);
    positions.shape[0] = INT64_MAX;  // as fast as the others
    positions.shape[1] = 0;
    positions.strides[0] = 1;
    CHECK(halyard_make_rows(plan.get(), given.source.get(), &positions, 0, INT64_MAX, 0, nullptr, 0, nullptr) ==
          HALYARD_OK);
    CHECK(halyard_make_rows(plan.get(), given.source.get(), nullptr, 0, INT64_MAX, 0, nullptr, 0, nullptr) ==
          HALYARD_OK);
    CHECK(halyard_make_rows(plan.get(), given.source.get(), nullptr, 0, 0, INT64_MAX, nullptr, 0, nullptr) ==
          HALYARD_OK);
}

TEST_CASE("make_rows: a given source reads back what a table wrote", "[angles]") {
    const auto frequencies = halyard::frequencies::from_base(10000, 8);
    const auto table = halyard::angle_source::table(frequencies, 0, 50);
    const auto rows = rows_of(table, nullptr, 1, 51);
    const auto given = halyard::angle_source::given(rows.data(), rows.data() + 4, 51, 8, 8);
    CHECK(rows_of(given, nullptr, 1, 51) == rows);
    CHECK(given.get()->identity_row == 0);
}

TEST_CASE("make_rows: given rows of 16 bits are widened", "[angles]") {
    const auto table = halyard::angle_source::table(halyard::frequencies::from_base(10000, 8), 0, 20);
    const auto exact = rows_of(table, nullptr, 1, 21);
    for (const auto dtype : {halyard::dtype::f16, halyard::dtype::bf16}) {
        const auto number = static_cast<std::int32_t>(dtype);
        std::vector<std::uint16_t> words;
        std::vector<float> widened;
        for (const float value : exact) {
            words.push_back(static_cast<std::uint16_t>(oracle::narrow(number, value)));
            widened.push_back(oracle::widen(number, words.back()));
        }
        const auto given = halyard::angle_source::given(words.data(), words.data() + 4, dtype, 21, 8, 8);
        CHECK(rows_of(given, nullptr, 1, 21) == widened);
        CHECK(widened != exact);
    }
}

TEST_CASE("make_rows: rows by token serve each batch row with its own, and only the shape that they were made for",
          "[angles]") {
    const auto frequencies = halyard::frequencies::from_base(10000, 8);
    const auto table = halyard::angle_source::table(frequencies, 0, 50);
    const auto plan = plan_for(8);
    const std::vector<std::int32_t> values = {7, 0, 50, 3, 19, 4};
    const auto of_batch = [&](std::int64_t n_batch) { return positions_of(values, n_batch); };
    for (const std::int64_t n_batch : {1, 2, 3, 6}) {
        CAPTURE(n_batch);
        const std::int64_t n_tokens = 6 / n_batch;
        const auto at = of_batch(n_batch);
        const auto rows = rows_of(table, &at, n_batch, n_tokens);
        const auto by_token = halyard::angle_source::given_by_token(rows.data(), 6, 8);
        const auto by_position = halyard::angle_source::given(rows.data(), rows.data() + 4, 6, 8, 8);
        std::vector<float> x(6 * 8, 1.0f), expected(x.size()), y(x.size(), 42.0f);
        const std::vector<float> untouched = y;
        const auto view = [&](std::vector<float> &data, std::int64_t batch, std::int64_t tokens) {
            return halyard::tensor(data.data(), halyard::dtype::f32, {batch, tokens, 1, 8});
        };
        halyard::run_options how;
        how.positions = &at;
        halyard::run(plan, table, view(x, n_batch, n_tokens), view(expected, n_batch, n_tokens), how);
        const auto run = [&](const halyard::angle_source &angles, std::int64_t batch, std::int64_t tokens,
                             const halyard_positions *positions) {
            auto args = halyard::make_struct<halyard_run_args>();
            const auto from = view(x, batch, tokens), to = view(y, batch, tokens);
            args.angles = angles.get();
            args.positions = positions;
            args.x = &from;
            args.y = &to;
            return [&plan, args, from, to](halyard_error *error) mutable {
                args.x = &from;
                args.y = &to;
                return halyard_run(plan.get(), &args, error);
            };
        };
        check_refused(HALYARD_ERROR_MISMATCH, {"args.positions is set", "by_token"},
                      run(by_token, n_batch, n_tokens, &at));
        check_refused(HALYARD_ERROR_SHAPE, {"6 rows by_token", "1 x 5"}, run(by_token, 1, 5, nullptr));
        check_refused(HALYARD_ERROR_SHAPE, {"6 rows by_token", "4 x 1"}, run(by_token, 4, 1, nullptr));
        if (n_batch > 1) {  // without positions every batch row would read row 0 on
            check_refused(HALYARD_ERROR_MISMATCH, {"args.positions is NULL", text(n_batch) + " batch rows"},
                          run(by_position, n_batch, n_tokens, nullptr));
        }
        CHECK(y == untouched);
        CHECK(run(by_token, n_batch, n_tokens, nullptr)(nullptr) == HALYARD_OK);
        CHECK(y == expected);
        CHECK(run(by_token, 0, n_tokens, nullptr)(nullptr) == HALYARD_OK);  // nothing to do
    }
    const auto rows = rows_of(table, nullptr, 1, 6);
    const auto by_token = halyard::angle_source::given_by_token(rows.data(), 6, 8);
    std::vector<float> again(6 * 8, 42.0f);
    check_refused(HALYARD_ERROR_MISMATCH, {"source has rows by_token"}, [&](auto *error) {
        return halyard_make_rows(plan.get(), by_token.get(), nullptr, 0, 1, 6, again.data(), 48, error);
    });
    CHECK(again == std::vector<float>(48, 42.0f));
}

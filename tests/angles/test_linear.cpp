// Angles that are linear in positions which need not be integers: their rows against mpmath's, every form of positions,
// and bad arguments.
#include "changes.h"
#include "checks/make_sources.h"
#include "checks/oracle.h"
#include "checks/rotate.h"
#include "data/golden.h"

#include <catch2/catch_get_random_seed.hpp>

#include <cmath>
#include <cstring>

namespace {

/// Angles of some tokens, with the memory that they point into.
template <typename Real>
struct Linear {
    std::int32_t n_axes = 1;
    std::int64_t n_batch = 1, n_tokens = 1, n_heads = 0, n_pairs = 1;
    double factor = 0;
    std::vector<Real> positions;  // [axes, batch, tokens]
    std::vector<double> matrix;   // [heads, axes, pairs]

    std::int64_t rotary_dim() const { return 2 * n_pairs; }
    std::int64_t rows_of_token() const { return std::max<std::int64_t>(n_heads, 1); }
    std::size_t n_floats() const {
        return static_cast<std::size_t>(n_batch * n_tokens * rows_of_token() * rotary_dim());
    }
    halyard_linear_angles describe() const {
        auto linear = halyard::linear_angles(positions.data(), n_batch, n_tokens, matrix.data(), n_axes, n_heads);
        linear.attention_factor = factor;
        return linear;
    }
    /// Of so many axes, whose terms are within 2^log_of_term.
    void draw(oracle::Random &random, int log_of_term) {
        const auto number = [&](int most) {
            return random.unit() * std::ldexp(1.0, static_cast<int>(random.in(most - 30, most)));
        };
        positions.clear();
        matrix.clear();
        for (std::int64_t i = 0; i < n_axes * n_batch * n_tokens; i++) {
            positions.push_back(static_cast<Real>(number(20)));
        }
        for (std::int64_t i = 0; i < rows_of_token() * n_axes * n_pairs; i++) {
            matrix.push_back(number(log_of_term - 20));
        }
    }
};

template <typename Real>
std::vector<float> rows_of(const Linear<Real> &linear, const char *target = nullptr, halyard::part_of_run part = {}) {
    Rotation rotation;
    rotation.rotary_dim = linear.rotary_dim();
    rotation.target = target;
    std::vector<float> rows(linear.n_floats(), NAN);
    halyard::make_rows(rotation.plan(), linear.describe(), linear.n_batch, linear.n_tokens, rows.data(),
                       static_cast<std::int64_t>(rows.size()), part);
    return rows;
}

/// Takes a case of mpmath's, and checks the rows of every target.
template <typename Real>
void check_golden(const golden::Section &section, const nlohmann::json &entry) {
    const std::string name = entry.at("name");
    CAPTURE(name);
    const auto positions = section.array<Real>(name + ".positions");
    const auto matrix = section.array<double>(name + ".matrix"), exact = section.array<double>(name + ".rows");
    Linear<Real> linear;
    linear.n_axes = static_cast<std::int32_t>(positions.shape[0]);
    linear.n_tokens = positions.shape[1];
    linear.n_heads = matrix.shape[0];
    linear.n_pairs = matrix.shape[2];
    linear.factor = entry.at("attention_factor");
    linear.positions = positions.values;
    linear.matrix = matrix.values;
    const std::vector<float> reference = rows_of(linear, "reference");
    for (const char *const target : targets_here()) {
        CAPTURE(target);
        const std::vector<float> rows = rows_of(linear, target);
        CHECK((rows == reference || std::strcmp(target, "x86_sse41") == 0));
        double worst = 0;
        const std::int64_t row = linear.rotary_dim();
        for (std::size_t i = 0; i < rows.size(); i++) {
            const auto at = static_cast<std::int64_t>(i), head = at / row % linear.n_heads;
            const std::int64_t token = at / row / linear.n_heads;
            const double value =
                exact.values[static_cast<std::size_t>((head * linear.n_tokens + token) * row + at % row)];
            worst = std::max(worst, std::fabs(static_cast<double>(rows[i]) - value));
        }
        CHECK(worst <= 1.2e-7 * linear.factor);
        CHECK(worst > 0);
    }
}

}  // namespace

TEST_CASE("linear angles: cos and sin are within 1.2e-7 of mpmath's on every target", "[angles]") {
    const golden::Section section("linear");
    CHECK(section.cases().size() == 10);
    for (const auto &entry : section.cases()) {
        const std::string name = entry.at("name");
        name.ends_with("float32") ? check_golden<float>(section, entry) : check_golden<double>(section, entry);
    }
}

TEST_CASE("linear angles: cos and sin are within 1.2e-7 of long double's", "[angles]") {
    oracle::Random random(Catch::getSeed());
    for (int trial = 0; trial < 60; trial++) {
        Linear<double> linear;
        constexpr std::int64_t pairs[] = {1, 7, 64, 128, 129, 300};
        linear.n_axes = static_cast<std::int32_t>(random.in(1, 4));
        linear.n_pairs = random.one_of(pairs);
        linear.n_tokens = random.one_in(6) ? 150 : random.in(1, 9);
        linear.n_heads = random.in(0, 3);
        linear.draw(random, 29);
        CAPTURE(trial, linear.n_axes, linear.n_pairs, linear.n_tokens, linear.n_heads);
        const auto rows = rows_of(linear);
        int n_wrong = 0;
        for (std::int64_t i = 0; i < linear.n_tokens * linear.rows_of_token(); i++) {
            const std::int64_t token = i / linear.rows_of_token(), head = i % linear.rows_of_token();
            for (std::int64_t k = 0; k < linear.n_pairs; k++) {
                long double theta = 0;  // off by at most 2^-31
                for (std::int64_t a = 0; a < linear.n_axes; a++) {
                    theta += static_cast<long double>(
                                 linear.positions[static_cast<std::size_t>(a * linear.n_tokens + token)]) *
                             linear.matrix[static_cast<std::size_t>((head * linear.n_axes + a) * linear.n_pairs + k)];
                }
                const auto at = static_cast<std::size_t>(i * linear.rotary_dim() + k);
                const bool is_right =
                    std::fabs(rows[at] - std::cos(theta)) <= 1.2e-7L &&
                    std::fabs(rows[at + static_cast<std::size_t>(linear.n_pairs)] - std::sin(theta)) <= 1.2e-7L;
                n_wrong += is_right ? 0 : 1;
            }
        }
        CHECK(n_wrong == 0);
    }
}

namespace {

/// Of three axes, two times five tokens and two heads, and the rows that they give.
struct LinearOfHeads {
    Linear<float> linear = {3, 2, 5, 2, 6, 0, {}, {}};
    halyard::plan plan = plan_for(12);
    std::vector<float> expected;

    LinearOfHeads() {
        oracle::Random random(Catch::getSeed());
        linear.draw(random, 10);
        expected = rows_of(linear);
    }
    std::vector<float> make(const halyard_linear_angles &form) const {
        std::vector<float> rows(expected.size(), NAN);
        halyard::make_rows(plan, form, 2, 5, rows.data(), static_cast<std::int64_t>(rows.size()));
        return rows;
    }
};

}  // namespace

TEST_CASE("linear angles: every form of positions and of the matrix", "[angles]") {
    LinearOfHeads of;
    auto &[linear, plan, expected] = of;
    CHECK(of.make(linear.describe()) == expected);

    SECTION("of float64, and at any address") {
        std::vector<char> numbers(30 * 8 + 3), matrix(36 * 8 + 1);
        for (std::size_t i = 0; i < 30; i++) {
            const double wide = static_cast<double>(linear.positions[i]);
            std::memcpy(numbers.data() + 3 + 8 * i, &wide, 8);
        }
        std::memcpy(matrix.data() + 1, linear.matrix.data(), 36 * 8);
        auto form = linear.describe();
        form.type = HALYARD_REAL64;
        form.positions = numbers.data() + 3;
        form.matrix = reinterpret_cast<const double *>(matrix.data() + 1);
        CHECK(of.make(form) == expected);
    }
    SECTION("backwards, with gaps") {
        std::vector<float> spread(200, NAN);
        auto form = linear.describe();
        form.positions = spread.data() + 199;
        form.stride_token = -2;
        form.stride_batch = -13;
        form.stride_axis = -60;
        for (std::int64_t i = 0; i < 30; i++) {
            spread[static_cast<std::size_t>(199 - i % 5 * 2 - i / 5 % 2 * 13 - i / 10 * 60)] =
                linear.positions[static_cast<std::size_t>(i)];
        }
        CHECK(of.make(form) == expected);
    }
    SECTION("shared by axes, batch rows and tokens") {
        auto form = linear.describe();
        form.stride_axis = form.stride_batch = form.stride_token = 0;
        std::fill(linear.positions.begin() + 1, linear.positions.end(), linear.positions[0]);
        CHECK(of.make(form) == rows_of(linear));
    }
    SECTION("an attention_factor of 1 is none") {
        auto form = linear.describe();
        form.attention_factor = 1;
        CHECK(of.make(form) == expected);
    }
}

TEST_CASE("linear angles: heads and parts", "[angles]") {
    LinearOfHeads of;
    auto &[linear, plan, expected] = of;
    SECTION("heads are what they are alone") {
        std::vector<float> alone;
        for (std::int64_t i = 0; i < 20; i++) {
            Linear<float> one = linear;
            one.n_heads = 0;
            one.matrix.assign(linear.matrix.begin() + i % 2 * 18, linear.matrix.begin() + (i % 2 + 1) * 18);
            const auto rows = rows_of(one);
            alone.insert(alone.end(), rows.begin() + i / 2 * 12, rows.begin() + (i / 2 + 1) * 12);
        }
        CHECK(alone == expected);
    }
    SECTION("parts write rows of their own") {
        std::vector<float> together(expected.size(), NAN);
        std::size_t n_written = 0;
        for (const std::int32_t part : {2, 0, 3, 1}) {
            const auto mine = rows_of(linear, nullptr, {part, 4});
            for (std::size_t i = 0; i < mine.size(); i++) {
                if (!std::isnan(mine[i])) {
                    together[i] = mine[i];
                    n_written++;
                }
            }
        }
        CHECK(together == expected);
        CHECK(n_written == expected.size());
    }
}

namespace {

/// A run of two times three tokens with rows for each of four heads, and what it gives.
struct RunByHead {
    std::vector<float> rows, x, y, expected;
    halyard::plan plan;
    halyard::angle_source angles;

    RunByHead() {
        oracle::Random random(Catch::getSeed());
        Linear<double> linear;
        linear.n_axes = 2;
        linear.n_batch = 2;
        linear.n_tokens = 3;
        linear.n_heads = 4;
        linear.n_pairs = 8;
        linear.draw(random, 12);
        rows = rows_of(linear);
        Rotation rotation;
        rotation.rotary_dim = 16;
        plan = rotation.plan();
        angles = by_token(rows);
        for (int i = 0; i < 6 * 4 * 16; i++) {
            x.push_back(static_cast<float>(random.unit()));
        }
        expected.resize(x.size());
        halyard::run(plan, angles, view(x), view(expected));
        y.assign(x.size(), 42.0f);
    }
    static halyard::angle_source by_token(const std::vector<float> &of) {
        return halyard::angle_source::given_by_token(of.data(), 6, 16, false, 4);
    }
    static halyard_tensor view(std::vector<float> &data, std::int64_t heads = 4) {
        return halyard::tensor(data.data(), halyard::dtype::f32, {2, 3, heads, 16});
    }
};

}  // namespace

TEST_CASE("linear angles: bound runs read the rows of each head, which may lie elsewhere", "[angles]") {
    RunByHead run;
    const halyard::bound_run bound(run.plan, run.angles, run.view(run.x), run.view(run.y));
    bound({run.x.data()}, {run.y.data()});
    CHECK(run.y == run.expected);
    const std::vector<float> moved = run.rows;
    const auto elsewhere = run.by_token(moved);
    auto args = sized<halyard_bound_run_args>();
    const void *const from = run.x.data();
    void *const to = run.y.data();
    args.n_tensors = 1;
    args.x = &from;
    args.y = &to;
    args.angles = elsewhere.get();
    std::fill(run.y.begin(), run.y.end(), 42.0f);
    CHECK(halyard_run_bound(bound.get(), &args, nullptr) == HALYARD_OK);
    CHECK(run.y == run.expected);
    auto other = halyard::angle_source::describe_rows(moved.data(), moved.data() + 8, halyard::dtype::f32, 6, 64, 16);
    other.by_token = 1;
    for (const char *const field : {"n_heads", "stride_head"}) {
        const auto unlike = halyard::angle_source::given(other);
        args.angles = unlike.get();
        check_refused(HALYARD_ERROR_MISMATCH, {std::string("args.angles has another ") + field},
                      [&](auto *error) { return halyard_run_bound(bound.get(), &args, error); });
        other.n_heads = 4;
        other.stride_head = 8;
    }
}

TEST_CASE("linear angles: runs have as many heads as the rows, and do not write over them", "[angles]") {
    RunByHead run;
    halyard::run(run.plan, run.angles, run.view(run.x), run.view(run.y));
    auto args = sized<halyard_run_args>();
    args.angles = run.angles.get();
    const auto refuse = [&](halyard_status status, const Words &words, const halyard_tensor &in,
                            const halyard_tensor &out) {
        args.x = &in;
        args.y = &out;
        check_refused(status, words, [&](auto *error) { return halyard_run(run.plan.get(), &args, error); });
    };
    refuse(HALYARD_ERROR_SHAPE, {"x[0] has 3 heads, but the angle source has rows for 4"}, run.view(run.x, 3),
           run.view(run.y, 3));
    std::vector<float> memory(run.rows);
    memory.resize(2 * run.rows.size());
    const auto of_memory = run.by_token(memory);
    args.angles = of_memory.get();
    auto over = run.view(run.y);
    over.data = memory.data() + run.rows.size() - 1;  // the last head's last sin
    refuse(HALYARD_ERROR_OVERLAP, {"the sin rows of the angle source"}, run.view(run.x), over);
    CHECK(run.y == run.expected);
}

TEST_CASE("linear angles: rows of each head are not made again", "[angles]") {
    RunByHead run;
    std::vector<float> again(run.rows.size(), 42.0f);
    const auto desc = [&] {
        auto given =
            halyard::angle_source::describe_rows(run.rows.data(), run.rows.data() + 8, halyard::dtype::f32, 6, 64, 16);
        given.n_heads = 4;
        given.stride_head = 16;
        return given;
    }();
    const auto by_position = halyard::angle_source::given(desc);
    const auto args = rows_args(by_position, nullptr, 1, 6, again.data(), 96);
    check_refused(HALYARD_ERROR_MISMATCH, {"angles has rows for each head"},
                  [&](auto *error) { return halyard_make_rows(run.plan.get(), &args, error); });
    CHECK(again == std::vector<float>(run.rows.size(), 42.0f));
}

namespace {

/// A call for rows of two times three tokens and two heads, into memory whose numbers must stay 42.
struct ValidCall {
    Linear<double> numbers = {2, 2, 3, 2, 4, 0, std::vector<double>(12, 1.5), std::vector<double>(16, 0.25)};
    halyard::plan plan = plan_for(8);
    std::vector<float> rows = std::vector<float>(6 * 2 * 8, 42.0f);
    halyard_linear_angles linear = numbers.describe();
    halyard_rows_args args = sized<halyard_rows_args>();

    ValidCall() {
        args.n_batch = 2;
        args.n_tokens = 3;
        args.rows = rows.data();
        args.n_floats = 96;
        args.linear = &linear;
    }
    ValidCall(const ValidCall &) = delete;

    halyard_status make(halyard_error *error) const { return halyard_make_rows(plan.get(), &args, error); }

    Table calls{[this](halyard_status status, const Words &words) {
        check_refused(status, words, [this](auto *error) { return make(error); });
        CHECK(rows == std::vector<float>(96, 42.0f));
    }};
};

}  // namespace

TEST_CASE("linear angles: arguments are checked before the first write", "[angles][errors]") {
    ValidCall call;
    auto &args = call.args;
    auto &linear = call.linear;
    const Table &calls = call.calls;
    const auto source = halyard::angle_source::phase(halyard::frequencies::from_base(10000, 8));
    const std::int32_t start = 0;
    const auto positions = halyard::consecutive_positions(&start, 1);
    calls.refuse_each(HALYARD_ERROR_STRUCT_SIZE, bad_sizes<halyard_linear_angles>(), {{"linear.size", linear.size}});
    calls.refuse_each(HALYARD_ERROR_UNKNOWN_VALUE, Numbers{0, 1, 4, -1, INT32_MAX}, {{"linear.type", linear.type}});
    calls.refuse_each(HALYARD_ERROR_UNKNOWN_VALUE, Numbers{1, -1}, {{"linear.reserved", linear.reserved}});
    calls.refuse_each(HALYARD_ERROR_SHAPE, Numbers{0, -1, 5, INT32_MIN}, {{"linear.n_axes", linear.n_axes}});
    calls.refuse_each(HALYARD_ERROR_SHAPE, Numbers{-1, INT64_MIN}, {{"linear.n_heads", linear.n_heads}});
    calls.refuse({
        {HALYARD_ERROR_MISMATCH, {"args.angles is set"}, {{args.angles, source.get()}}},
        {HALYARD_ERROR_MISMATCH, {"args.positions is set"}, {{args.positions, &positions}}},
        {HALYARD_ERROR_MISMATCH, {"args.bad_position is set"}, {{args.bad_position, 1}}},
        {HALYARD_ERROR_NULL_POINTER, {"args.rows"}, {{args.rows, nullptr}}},
        {HALYARD_ERROR_NULL_POINTER, {"linear.positions"}, {{linear.positions, nullptr}}},
        {HALYARD_ERROR_NULL_POINTER, {"linear.matrix"}, {{linear.matrix, nullptr}}},
        {HALYARD_ERROR_SHAPE, {"n_floats is 95, but the rows need 96"}, {{args.n_floats, 95}}},
        {HALYARD_ERROR_SHAPE, {"the rows need 144"}, {{linear.n_heads, 3}}},
        {HALYARD_ERROR_OVERFLOW, {"linear.matrix of"}, {{linear.n_heads, INT64_MAX}}},
        {HALYARD_ERROR_OVERFLOW,
         {"leave the address space"},
         {{linear.n_heads, 1LL << 40}, {args.n_tokens, 1LL << 50}, {linear.stride_token, 0}}},
    });
    for (std::int64_t *const stride : {&linear.stride_axis, &linear.stride_batch, &linear.stride_token}) {
        for (const std::int64_t value : Numbers{INT64_MIN, INT64_MAX, INT64_MAX / 4}) {
            calls.refuse(HALYARD_ERROR_OVERFLOW, {"linear.positions"}, {{*stride, value}});
        }
    }
    for (const double factor : {-1.0, 0x1p-61, 0x1.8p60, static_cast<double>(INFINITY), static_cast<double>(NAN)}) {
        calls.refuse(HALYARD_ERROR_FREQUENCY, {"linear.attention_factor is"}, {{linear.attention_factor, factor}});
    }
    // There are floats in the place of numbers, but none is read before the check.
    calls.refuse(HALYARD_ERROR_OVERLAP, {"shares memory with linear.positions"},
                 {{linear.positions, call.rows.data() + 95}});
    calls.refuse(HALYARD_ERROR_OVERLAP, {"shares memory with linear.matrix"},
                 {{linear.matrix, reinterpret_cast<const double *>(call.rows.data() + 94)}});
    CHECK(call.make(nullptr) == HALYARD_OK);
    CHECK(call.rows != std::vector<float>(96, 42.0f));
}

TEST_CASE("linear angles: numbers are checked before the first write, by every part", "[angles][errors]") {
    ValidCall call;
    auto &positions = call.numbers.positions;
    auto &matrix = call.numbers.matrix;
    const double infinity = INFINITY, nan = NAN;
    for (call.args.part = 0, call.args.n_parts = 3; call.args.part < 3; call.args.part++) {
        for (const double bad : {infinity, -infinity, nan}) {
            call.calls.refuse(HALYARD_ERROR_POSITION, {"linear.positions[axis 1, batch 0, token 2] is", "finite"},
                              {{positions[8], bad}});
            call.calls.refuse(HALYARD_ERROR_FREQUENCY, {"linear.matrix[head 1, axis 0, pair 3] is", "finite"},
                              {{matrix[11], bad}});
        }
        const double far = 0x1p33 + 0x1p6;  // times a quarter
        call.calls.refuse(HALYARD_ERROR_POSITION,
                          {"linear.positions[batch 1, token 1] turn pair 0 of head 0 by 2.14748", "beyond 2^31"},
                          {{positions[4], far}});
        call.calls.refuse(HALYARD_ERROR_POSITION, {"head 1", "beyond 2^31"}, {{matrix[11], -0x1p31}});
        call.calls.refuse(
            HALYARD_ERROR_POSITION,
            {"linear.positions[axis 0, batch 0, token 0] times linear.matrix[head 0, axis 0, pair 0]", "beyond 2^40"},
            {{positions[0], 0x1.8p42}, {positions[6], -0x1.8p42}});
    }
    // The largest that there may be, and larger terms that cancel.
    call.args.part = call.args.n_parts = 0;
    positions[0] = 0x1p33 - 1.5;
    CHECK(call.make(nullptr) == HALYARD_OK);
    positions[0] = 0x1p42;
    positions[6] = -0x1p42 + 1;
    CHECK(call.make(nullptr) == HALYARD_OK);
    CHECK(std::fabs(call.rows[0] - std::cos(0.25)) < 1.2e-7);
}

TEST_CASE("linear angles: nothing to do is fine", "[angles]") {
    const double one = 1;
    const auto plan = plan_for(8);
    std::vector<double> matrix(4, 1.0);
    for (const auto &[n_batch, n_tokens] : {std::pair<std::int64_t, std::int64_t>{0, 7}, {5, 0}, {INT64_MAX, 0}}) {
        auto linear = halyard::linear_angles(&one, 1, 1, matrix.data(), 1);
        linear.positions = nullptr;
        auto args = sized<halyard_rows_args>();
        args.n_batch = n_batch;
        args.n_tokens = n_tokens;
        args.linear = &linear;
        CHECK(halyard_make_rows(plan.get(), &args, nullptr) == HALYARD_OK);
    }
}

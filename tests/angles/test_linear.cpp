// Angles that are linear in positions which need not be integers: their rows against mpmath's, every form of positions,
// and bad arguments.
#include "changes.h"
#include "checks/make_sources.h"
#include "checks/oracle.h"
#include "checks/rotate.h"
#include "data/golden.h"

#include <catch2/catch_get_random_seed.hpp>

#include <cmath>

namespace {

/// Angles of some tokens, with the memory that they point into.
template <typename Real>
struct Linear {
    std::int32_t n_axes = 1;
    std::int64_t n_batch = 1, n_tokens = 1, n_pairs = 1;
    double factor = 0;
    std::vector<Real> positions;  // [axes, batch, tokens]
    std::vector<double> matrix;   // [axes, pairs]

    std::int64_t rotary_dim() const { return 2 * n_pairs; }
    std::size_t n_floats() const { return static_cast<std::size_t>(n_batch * n_tokens * rotary_dim()); }
    halyard_linear_angles describe() const {
        auto linear = halyard::linear_angles(positions.data(), n_batch, n_tokens, matrix.data(), n_axes);
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
        for (std::int64_t i = 0; i < n_axes * n_pairs; i++) {
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

/// Takes a case of mpmath's, whose heads each have a matrix, and checks the rows of every target.
template <typename Real>
void check_golden(const golden::Section &section, const nlohmann::json &entry) {
    const std::string name = entry.at("name");
    const auto positions = section.array<Real>(name + ".positions");
    const auto matrices = section.array<double>(name + ".matrix"), exact = section.array<double>(name + ".rows");
    Linear<Real> linear;
    linear.n_axes = static_cast<std::int32_t>(positions.shape[0]);
    linear.n_tokens = positions.shape[1];
    linear.n_pairs = matrices.shape[2];
    linear.factor = entry.at("attention_factor");
    linear.positions = positions.values;
    for (std::int64_t head = 0; head < matrices.shape[0]; head++) {
        const auto matrix = matrices.values.begin() + head * linear.n_axes * linear.n_pairs;
        linear.matrix.assign(matrix, matrix + linear.n_axes * linear.n_pairs);
        const std::vector<float> reference = rows_of(linear, "reference");
        for (const char *const target : targets_here()) {
            CAPTURE(name, head, target);
            const std::vector<float> rows = rows_of(linear, target);
            CHECK((rows == reference));
            double worst = 0;
            for (std::size_t i = 0; i < rows.size(); i++) {
                const double value = exact.values[static_cast<std::size_t>(head) * rows.size() + i];
                worst = std::max(worst, std::fabs(static_cast<double>(rows[i]) - value));
            }
            CHECK(worst <= 1.2e-7 * linear.factor);
            CHECK(worst > 0);
        }
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
        linear.draw(random, 29);
        CAPTURE(trial, linear.n_axes, linear.n_pairs, linear.n_tokens);
        const auto rows = rows_of(linear);
        int n_wrong = 0;
        for (std::int64_t token = 0; token < linear.n_tokens; token++) {
            for (std::int64_t k = 0; k < linear.n_pairs; k++) {
                long double theta = 0;  // off by at most 2^-31
                for (std::int64_t a = 0; a < linear.n_axes; a++) {
                    theta += static_cast<long double>(
                                 linear.positions[static_cast<std::size_t>(a * linear.n_tokens + token)]) *
                             linear.matrix[static_cast<std::size_t>(a * linear.n_pairs + k)];
                }
                const auto at = static_cast<std::size_t>(token * linear.rotary_dim() + k);
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

/// Of three axes and two times five tokens, and the rows that they give.
struct LinearRows {
    Linear<float> linear = {3, 2, 5, 6, 0, {}, {}};
    halyard::plan plan = plan_for(12);
    std::vector<float> expected;

    LinearRows() {
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
    LinearRows of;
    auto &[linear, plan, expected] = of;
    CHECK(of.make(linear.describe()) == expected);

    SECTION("of float64, and at any address") {
        std::vector<char> numbers(30 * 8 + 3), matrix(18 * 8 + 1);
        for (std::size_t i = 0; i < 30; i++) {
            const double wide = static_cast<double>(linear.positions[i]);
            std::memcpy(numbers.data() + 3 + 8 * i, &wide, 8);
        }
        std::memcpy(matrix.data() + 1, linear.matrix.data(), 18 * 8);
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

TEST_CASE("linear angles: parts write rows of their own", "[angles]") {
    const LinearRows of;
    std::vector<float> together(of.expected.size(), NAN);
    std::size_t n_written = 0;
    for (const std::int32_t part : {2, 0, 3, 1}) {
        const auto mine = rows_of(of.linear, nullptr, {part, 4});
        for (std::size_t i = 0; i < mine.size(); i++) {
            if (!std::isnan(mine[i])) {
                together[i] = mine[i];
                n_written++;
            }
        }
    }
    CHECK(together == of.expected);
    CHECK(n_written == of.expected.size());
}

namespace {

/// A call for rows of two times three tokens, into memory whose numbers must stay 42.
struct ValidCall {
    Linear<double> numbers = {2, 2, 3, 4, 0, std::vector<double>(12, 1.5), std::vector<double>(8, 0.25)};
    halyard::plan plan = plan_for(8);
    std::vector<float> rows = std::vector<float>(6 * 8, 42.0f);
    halyard_linear_angles linear = numbers.describe();
    halyard_rows_args args = sized<halyard_rows_args>();

    ValidCall() {
        args.n_batch = 2;
        args.n_tokens = 3;
        args.rows = rows.data();
        args.n_floats = 48;
        args.linear = &linear;
    }
    ValidCall(const ValidCall &) = delete;

    halyard_status make(halyard_error *error) const { return halyard_make_rows(plan.get(), &args, error); }

    Table calls{[this](halyard_status status, const Words &words) {
        check_refused(status, words, [this](auto *error) { return make(error); });
        CHECK(rows == std::vector<float>(48, 42.0f));
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
    calls.refuse({
        {HALYARD_ERROR_MISMATCH, {"args.angles is set"}, {{args.angles, source.get()}}},
        {HALYARD_ERROR_MISMATCH, {"args.positions is set"}, {{args.positions, &positions}}},
        {HALYARD_ERROR_MISMATCH, {"args.bad_position is set"}, {{args.bad_position, 1}}},
        {HALYARD_ERROR_NULL_POINTER, {"args.rows"}, {{args.rows, nullptr}}},
        {HALYARD_ERROR_NULL_POINTER, {"linear.positions"}, {{linear.positions, nullptr}}},
        {HALYARD_ERROR_NULL_POINTER, {"linear.matrix"}, {{linear.matrix, nullptr}}},
        {HALYARD_ERROR_SHAPE, {"n_floats is 47, but the rows need 48"}, {{args.n_floats, 47}}},
        {HALYARD_ERROR_OVERFLOW, {"linear.matrix"}, {{linear.matrix, before_the_end_of_memory<const double *>(63)}}},
        {HALYARD_ERROR_OVERFLOW, {"leave the address space"}, {{args.n_tokens, 1LL << 60}, {linear.stride_token, 0}}},
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
                 {{linear.positions, call.rows.data() + 47}});
    calls.refuse(HALYARD_ERROR_OVERLAP, {"shares memory with linear.matrix"},
                 {{linear.matrix, reinterpret_cast<const double *>(call.rows.data() + 46)}});
    CHECK(call.make(nullptr) == HALYARD_OK);
    CHECK(call.rows != std::vector<float>(48, 42.0f));
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
            call.calls.refuse(HALYARD_ERROR_FREQUENCY, {"linear.matrix[axis 1, pair 3] is", "finite"},
                              {{matrix[7], bad}});
        }
        const double far = 0x1p33 + 0x1p6;  // times a quarter
        call.calls.refuse(HALYARD_ERROR_POSITION,
                          {"linear.positions[batch 1, token 1] turn pair 0 by 2.14748", "beyond 2^31"},
                          {{positions[4], far}});
        call.calls.refuse(HALYARD_ERROR_POSITION, {"turn pair 3 by", "beyond 2^31"}, {{matrix[7], -0x1p31}});
        call.calls.refuse(
            HALYARD_ERROR_POSITION,
            {"linear.positions[axis 0, batch 0, token 0] times linear.matrix[axis 0, pair 0]", "beyond 2^40"},
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

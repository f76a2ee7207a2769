// Angles that are linear in positions which need not be integers: their rows against mpmath's, every form of positions,
// and bad arguments.
#include "changes.h"
#include "checks/make_sources.h"
#include "checks/oracle.h"
#include "checks/rotate.h"
#include "data/golden.h"

#include <catch2/catch_get_random_seed.hpp>

#include <cmath>
#include <tuple>

namespace {

halyard::plan plan_on(std::int64_t rotary_dim, const char *target) {
    return Rotation{.rotary_dim = rotary_dim, .target = target}.plan();
}

/// Takes a case of mpmath's, whose heads each have a matrix, and checks the rows of every target.
template <typename Real>
void check_golden(const golden::Section &section, const nlohmann::json &entry) {
    const std::string name = entry.at("name");
    const auto positions = section.array<Real>(name + ".positions");
    const auto matrices = section.array<double>(name + ".matrix"), exact = section.array<double>(name + ".rows");
    const std::int64_t n_axes = positions.shape[0], n_tokens = positions.shape[1], n_pairs = matrices.shape[2];
    const auto n_floats = static_cast<std::size_t>(n_tokens * 2 * n_pairs);
    for (std::int64_t head = 0; head < matrices.shape[0]; head++) {
        auto linear =
            halyard::linear_angles(positions.values.data(), 1, n_tokens,
                                   matrices.values.data() + head * n_axes * n_pairs, static_cast<std::int32_t>(n_axes));
        linear.attention_factor = entry.at("attention_factor");
        std::vector<float> reference;
        for (const char *const target : targets_here()) {
            CAPTURE(name, head, target);
            std::vector<float> rows(n_floats, NAN);
            halyard::make_rows(plan_on(2 * n_pairs, target), linear, 1, n_tokens, rows.data(), std::ssize(rows));
            reference = reference.empty() ? rows : reference;
            CHECK((rows == reference));
            double worst = 0;
            for (std::size_t i = 0; i < n_floats; i++) {
                const double value = exact.values[static_cast<std::size_t>(head) * n_floats + i];
                worst = std::max(worst, std::fabs(static_cast<double>(rows[i]) - value));
            }
            CHECK(worst <= 1.2e-7 * linear.attention_factor);
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

namespace {

/// Numbers at an odd address.
template <typename Real>
class OddNumbers {
public:
    OddNumbers(oracle::Random &random, std::int64_t n, int log_of_most) : bytes_(sizeof(Real) * n + 1) {
        for (std::int64_t i = 0; i < n; i++) {
            const auto number = static_cast<Real>(
                random.unit() * std::ldexp(1.0, static_cast<int>(random.in(log_of_most - 30, log_of_most))));
            std::memcpy(&bytes_[1 + sizeof(Real) * i], &number, sizeof(Real));
        }
    }
    const Real *data() const { return reinterpret_cast<const Real *>(&bytes_[1]); }
    long double at(std::int64_t i) const {
        Real number = 0;
        std::memcpy(&number, &bytes_[1 + sizeof(Real) * i], sizeof(Real));
        return number;
    }

private:
    std::vector<char> bytes_;
};

/// Rows of angles whose positions have any order, with gaps, backwards or shared, made in parts.
template <typename Real>
void check_random(oracle::Random &random) {
    constexpr std::int64_t pairs[] = {1, 7, 64, 128, 129, 300};
    const std::int64_t n_axes = random.in(1, 4), n_batch = random.in(1, 3), n_pairs = random.one_of(pairs);
    const std::int64_t n_tokens = random.one_in(6) ? 150 : random.in(1, 9);
    const std::int64_t counts[] = {n_axes, n_batch, n_tokens};
    std::int64_t strides[3] = {}, reach = 1, first = 0;
    int order[] = {2, 1, 0};
    std::swap(order[0], order[random.in(0, 2)]);
    for (const int d : order) {
        const std::int64_t stride = random.one_in(6) ? 0 : reach + random.in(0, 3), way = stride * (counts[d] - 1);
        reach += way;
        strides[d] = random.one_in(3) ? -stride : stride;
        first += strides[d] < 0 ? way : 0;
    }
    const OddNumbers<Real> positions(random, reach, 20);
    const OddNumbers<double> matrix(random, n_axes * n_pairs, 9);
    auto linear = halyard::linear_angles(positions.data() + first, n_batch, n_tokens, matrix.data(),
                                         static_cast<std::int32_t>(n_axes));
    std::tie(linear.stride_axis, linear.stride_batch, linear.stride_token) =
        std::tie(strides[0], strides[1], strides[2]);
    linear.attention_factor = random.one_of({0.0, 1.0, 1.3});
    const double factor = linear.attention_factor == 0 ? 1 : linear.attention_factor;
    const auto n_parts = static_cast<std::int32_t>(random.in(1, 5));
    CAPTURE(n_axes, n_batch, n_tokens, n_pairs, n_parts);
    std::vector<float> rows(static_cast<std::size_t>(n_batch * n_tokens * 2 * n_pairs), NAN);
    std::ptrdiff_t n_written = 0;
    for (std::int32_t part = 0; part < n_parts; part++) {
        std::vector<float> mine(rows.size(), NAN);
        halyard::make_rows(plan_on(2 * n_pairs, nullptr), linear, n_batch, n_tokens, mine.data(), std::ssize(mine),
                           {part, n_parts});
        for (std::size_t i = 0; i < rows.size(); i++) {
            n_written += std::isnan(mine[i]) ? 0 : 1;
            rows[i] = std::isnan(mine[i]) ? rows[i] : mine[i];
        }
    }
    CHECK(n_written == std::ssize(rows));
    int n_wrong = 0;
    for (std::int64_t i = 0; i < n_batch * n_tokens * n_pairs; i++) {
        const std::int64_t row = i / n_pairs, k = i % n_pairs;
        long double theta = 0;  // off by at most 2^-31
        for (std::int64_t a = 0; a < n_axes; a++) {
            theta += positions.at(first + a * strides[0] + row / n_tokens * strides[1] + row % n_tokens * strides[2]) *
                     matrix.at(a * n_pairs + k);
        }
        const float *const cos = &rows[static_cast<std::size_t>(row * 2 * n_pairs + k)];
        const auto is_far = [&](float is, long double exact) {
            return !(std::fabs(is - factor * exact) <= 1.2e-7L * factor);
        };
        n_wrong += is_far(cos[0], std::cos(theta)) || is_far(cos[n_pairs], std::sin(theta));
    }
    CHECK(n_wrong == 0);
}

}  // namespace

TEST_CASE("linear angles: cos and sin are within 1.2e-7 of long double's, in any form and in parts", "[angles]") {
    oracle::Random random(Catch::getSeed());
    for (int trial = 0; trial < 60; trial++) {
        random.one_in(2) ? check_random<float>(random) : check_random<double>(random);
    }
}

namespace {

/// A call for rows of two times three tokens, into memory whose numbers must stay 42.
struct ValidCall {
    std::vector<double> positions = std::vector<double>(12, 1.5), matrix = std::vector<double>(8, 0.25);
    halyard::plan plan = plan_for(8);
    std::vector<float> rows = std::vector<float>(6 * 8, 42.0f);
    halyard_linear_angles linear = halyard::linear_angles(positions.data(), 2, 3, matrix.data(), 2);
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
                },
                [this] { CHECK(make(nullptr) == HALYARD_OK); }};
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
    for (const auto &[n_batch, n_tokens] : {std::pair<std::int64_t, std::int64_t>{0, 7}, {5, 0}, {INT64_MAX, 0}}) {
        calls.accept({{args.n_batch, n_batch}, {args.n_tokens, n_tokens}, {linear.positions, nullptr}});
    }
    CHECK(call.rows == std::vector<float>(48, 42.0f));
    calls.accept({});
    CHECK(call.rows != std::vector<float>(48, 42.0f));
}

TEST_CASE("linear angles: numbers are checked before the first write, by every part", "[angles][errors]") {
    ValidCall call;
    auto &positions = call.positions;
    auto &matrix = call.matrix;
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

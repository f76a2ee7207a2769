// halyard_make_rows with angles that are linear in real-valued positions: rows are compared with mpmath, and with long
// double for every layout of positions. Also runs that use such rows. test_row_errors.cpp tests bad arguments.
#include "checks/make_sources.h"
#include "checks/oracle.h"
#include "checks/rotate.h"
#include "data/golden.h"
#include "runs/rotation_run.h"

#include <catch2/catch_get_random_seed.hpp>

#include <cmath>
#include <tuple>

namespace {

halyard::plan plan_on(std::int64_t rotary_dim, const char *target) {
    return Rotation{.rotary_dim = rotary_dim, .target = target}.plan();
}

/// Checks a golden case computed with mpmath, in which each head has a matrix of its own, on every target.
template <typename Real>
void check_golden(const golden::Section &section, const nlohmann::json &entry) {
    const std::string name = entry.at("name");
    const auto positions = section.array<Real>(name + ".positions");
    const auto matrices = section.array<double>(name + ".matrix"), exact = section.array<double>(name + ".rows");
    const std::int64_t n_axes = positions.shape[0], n_tokens = positions.shape[1], n_pairs = matrices.shape[2];
    const auto n_floats = static_cast<std::size_t>(n_tokens * 2 * n_pairs);
    for (std::int64_t head = 0; head < matrices.shape[0]; head++) {
        auto linear =
            halyard::linear_angles(positions.values.data(), {1, n_tokens},
                                   matrices.values.data() + head * n_axes * n_pairs, static_cast<std::int32_t>(n_axes));
        linear.attention_factor = entry.at("attention_factor");
        std::vector<float> reference;
        for (const char *const target : targets_here()) {
            CAPTURE(name, head, target);
            std::vector<float> rows(n_floats, NAN);
            halyard::make_rows(plan_on(2 * n_pairs, target), linear, {1, n_tokens}, rows.data(), std::ssize(rows));
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

/// Random numbers at an odd address.
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

/// Checks rows for positions with random strides: dimensions in any order, with gaps, negative or 0.
template <typename Real>
void check_random_rows(oracle::Random &random) {
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
    auto linear = halyard::linear_angles(positions.data() + first, {n_batch, n_tokens}, matrix.data(),
                                         static_cast<std::int32_t>(n_axes));
    std::tie(linear.stride_axis, linear.stride_batch, linear.stride_token) =
        std::tie(strides[0], strides[1], strides[2]);
    linear.attention_factor = random.one_of({0.0, 1.0, 1.3});
    const double factor = linear.attention_factor == 0 ? 1 : linear.attention_factor;
    CAPTURE(n_axes, n_batch, n_tokens, n_pairs);
    std::vector<float> rows(static_cast<std::size_t>(n_batch * n_tokens * 2 * n_pairs));
    halyard::make_rows(plan_on(2 * n_pairs, nullptr), linear, {n_batch, n_tokens}, rows.data(), std::ssize(rows));
    int n_wrong = 0;
    for (std::int64_t i = 0; i < n_batch * n_tokens * n_pairs; i++) {
        const std::int64_t row = i / n_pairs, k = i % n_pairs;
        long double theta = 0;  // its error is at most 2^-31
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

TEST_CASE("linear angles: cos and sin are within 1.2e-7 of long double's, in any form", "[angles]") {
    oracle::Random random(Catch::getSeed());
    for (int trial = 0; trial < 60; trial++) {
        random.one_in(2) ? check_random_rows<float>(random) : check_random_rows<double>(random);
    }
}

TEST_CASE("make_rows: rows by token serve only the shape that they were made for", "[angles]") {
    RotationRun s;  // two batch rows of three tokens
    const std::vector<float> rows(6 * RotationRun::rotary_dim, 0.5f);
    const auto of = [&](std::int64_t n_rows, bool is_shared) {
        return halyard::angle_source::given_by_token(rows.data(), n_rows, RotationRun::rotary_dim, is_shared);
    };
    const auto seven = of(7, false), six = of(6, false), one = of(1, true), three = of(3, true),
               by_batch = of(3, false);
    s.runs.refuse({
        {HALYARD_ERROR_SHAPE, {"7 rows by_token", "2 x 3"}, {{s.args.angles, seven.get()}}},
        {HALYARD_ERROR_SHAPE, {"1 rows by_token that batch rows share", "2 x 3"}, {{s.args.angles, one.get()}}},
        {HALYARD_ERROR_SHAPE, {"3 rows by_token", "2 x 3"}, {{s.args.angles, by_batch.get()}}},
    });
    for (const auto *const right : {&six, &three}) {
        s.runs.accept({{s.args.angles, right->get()}});
        s.runs.refuse(HALYARD_ERROR_MISMATCH, {"args.positions is set", "by_token"},
                      {{s.args.angles, right->get()}, {s.args.positions, &s.positions}});
    }
    std::vector<Change> empty = {{s.args.angles, six.get()}};
    for (auto *const tensors : {s.x, s.y}) {
        empty.insert(empty.end(), {{tensors[0].shape[0], 0}, {tensors[1].shape[0], 0}});
    }
    s.runs.accept(empty);
}

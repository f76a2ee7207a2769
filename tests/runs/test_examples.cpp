// The five worked examples that the project grew from, with their numbers.
#include "checks/rotate.h"
#include "data/golden.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include <cmath>
#include <vector>

namespace {

using Catch::Matchers::WithinAbs;

/// Compares with numbers that have six digits after the point.
void check_numbers(const Elements &got, const std::vector<double> &expected) {
    REQUIRE(got.count() == static_cast<std::int64_t>(expected.size()));
    for (std::size_t i = 0; i < expected.size(); i++) {
        INFO("element " << i);
        CHECK_THAT(got[static_cast<std::int64_t>(i)], WithinAbs(expected[i], 1.5e-6));
    }
}

halyard::angle_source table(double base, std::int64_t rotary_dim, std::int32_t last = 16) {
    return halyard::angle_source::table(halyard::frequencies::from_base(base, rotary_dim), 0, last + 1);
}

Rotation interleaved(std::int64_t rotary_dim, bool inverse = false) {
    Rotation rotation;
    rotation.rotary_dim = rotary_dim;
    rotation.pairing = HALYARD_PAIRING_INTERLEAVED;
    rotation.inverse = inverse;
    return rotation;
}

std::vector<float> repeat(const std::vector<float> &values, int times) {
    std::vector<float> result;
    for (int i = 0; i < times; i++) {
        result.insert(result.end(), values.begin(), values.end());
    }
    return result;
}

}  // namespace

TEST_CASE("example: interleaved, with cos and sin buffers [max_seq_len, d/2]", "[example]") {
    constexpr std::int64_t max_seq_len = 8, n_pairs = 2;
    std::vector<float> cos, sin;
    for (int position = 0; position < max_seq_len; position++) {
        for (const double inv_freq : {1.0, 0.01}) {
            cos.push_back(static_cast<float>(std::cos(position * inv_freq)));
            sin.push_back(static_cast<float>(std::sin(position * inv_freq)));
        }
    }
    const auto buffers = halyard::angle_source::given(cos.data(), sin.data(), max_seq_len, n_pairs, 2 * n_pairs);
    const Elements x(HALYARD_F32, {1, 3, 1, 4}, repeat({1, 2, 3, 4}, 3));

    // Without positions, token t has position t.
    check_numbers(rotate(interleaved(4), buffers, nullptr, x),
                  {1, 2, 3, 4, -1.142640, 1.922076, 2.959851, 4.029800, -2.234742, 0.077004, 2.919405, 4.059196});
    const std::int32_t chosen[] = {5, 0, 7};
    const auto positions = halyard::positions(chosen, {1, 3});
    check_numbers(rotate(interleaved(4), buffers, &positions, x),
                  {2.201511, -0.391600, 2.796334, 4.144939, 1, 2, 3, 4, -0.560071, 2.164791, 2.712882, 4.200033});
}

TEST_CASE("example: theta 10000, positions 2 and 9", "[example]") {
    const auto angles = table(10000, 4);
    const auto turn = [&](std::int32_t position, bool inverse, const Elements &x) {
        const auto positions = halyard::positions(&position, {1, 1});
        return rotate(interleaved(4, inverse), angles, &positions, x);
    };
    const Elements one(HALYARD_F32, {1, 1, 1, 4}, {1, 0, 0, 0});
    check_numbers(turn(2, false, one), {-0.416147, 0.909297, 0, 0});
    check_numbers(turn(9, false, one), {-0.911130, 0.412118, 0, 0});
    // Both orders of subtracting give seven radians, forward or back.
    check_numbers(turn(2, true, turn(9, false, one)), {0.753902, 0.656987, 0, 0});
    check_numbers(turn(9, true, turn(2, false, one)), {0.753902, -0.656987, 0, 0});
    check_numbers(turn(7, false, one), {0.753902, 0.656987, 0, 0});

    // An odd head_dim cannot be rotated as a whole.
    Rotation odd = interleaved(5);
    halyard_status status = HALYARD_OK;
    try {
        odd.plan();
    } catch (const halyard::error &error) {
        status = error.status();
    }
    CHECK(status == HALYARD_ERROR_ROTARY_DIM);

    // Positions per batch row.
    const std::int64_t rows[] = {2, 9};
    const auto positions = halyard::positions(rows, {2, 1});
    const Elements x(HALYARD_F32, {2, 1, 1, 4}, repeat({1, 0, 0, 1}, 2));
    check_numbers(rotate(interleaved(4), angles, &positions, x),
                  {-0.416147, 0.909297, -0.019999, 0.999800, -0.911130, 0.412118, -0.089879, 0.995953});
}

TEST_CASE("example: numpy seed 3, and half-split is interleaved after permuting columns", "[example]") {
    const golden::Section section("seeds");
    const auto x64 = section.array<double>("numpy_seed3.x");
    const auto printed = section.array<double>("numpy_seed3.y_as_printed");
    const Elements x(HALYARD_F32, {1, 5, 1, 4}, std::vector<float>(x64.values.begin(), x64.values.end()));
    const auto angles = table(10000, 4);
    const Elements y = rotate(interleaved(4), angles, nullptr, x);
    check_numbers(y, printed.values);
    check_numbers(y, {1.78862847,  0.43650985,  0.09649747,  -1.8634927,  0.1486459,  -0.42509122, -0.07646744,
                      -0.62779673, 0.45216792,  0.15874903,  -1.33129326, 0.85816992, -1.11375321, -1.5680929,
                      0.06214963,  -0.40299454, -0.81390684, 1.4235748,   1.02561261, -1.06090267});

    const auto permute = [](const Elements &interleaved_heads) {
        Elements half = interleaved_heads;
        for (std::int64_t row = 0; row < 5; row++) {
            for (std::int64_t i = 0; i < 4; i++) {
                half.set_word(row * 4 + i % 2 * 2 + i / 2, interleaved_heads.word(row * 4 + i));
            }
        }
        return half;
    };
    Rotation half;
    half.rotary_dim = 4;
    CHECK(rotate(half, angles, nullptr, permute(x)) == permute(y));

    // Tokens and heads on any axis: the five rows as tokens of strides 4 and as a transpose, where a token's elements
    // are five apart.
    Elements columns(HALYARD_F32, {1, 1, 4, 5});
    for (std::int64_t i = 0; i < 20; i++) {
        columns.set_word(i % 4 * 5 + i / 4, x.word(i));
    }
    const auto transposed = halyard::tensor(columns.bytes.data(), halyard::dtype::f32, {1, 5, 1, 4}, {20, 1, 20, 5});
    halyard::run(interleaved(4).plan(), angles, transposed, transposed);
    for (std::int64_t i = 0; i < 20; i++) {
        CHECK(columns.word(i % 4 * 5 + i / 4) == y.word(i));
    }
}

TEST_CASE("example: half-split in float16, where theta must not be", "[example]") {
    // float16 holds neither position 4097 nor the angle 40.97: it would make 4096 and 40.96875 of them, and the first
    // output would be 1.35449 instead of 1.31348.
    const auto angles = table(10000, 4, 4097);
    const std::int32_t position = 4097;
    const auto positions = halyard::positions(&position, {1, 1});
    Rotation rotation;
    rotation.rotary_dim = 4;
    rotation.dtype = HALYARD_F16;
    for (const char *target : targets_here()) {
        rotation.target = target;
        const Elements x(HALYARD_F16, {1, 1, 1, 4}, {1.5f, -0.75f, 0.25f, 2.0f});
        const Elements y = rotate(rotation, angles, &positions, x);
        INFO(target);
        CHECK(y[0] == 1.3134765625f);
        CHECK(y[1] == 1.001953125f);
        CHECK(y[2] == 0.7666015625f);
        CHECK(y[3] == -1.88671875f);
    }
}

TEST_CASE("example: base 100, head_dim 8, the block-diagonal matrix", "[example]") {
    const std::int32_t position = 3;
    const auto positions = halyard::positions(&position, {1, 1});
    const auto angles = table(100, 8);
    float rows[8];
    halyard::make_rows(interleaved(8).plan(), angles, &positions, 1, 1, rows, 8);
    const double cos[] = {-0.989992, 0.582754, 0.955336, 0.995503}, sin[] = {0.141120, 0.812649, 0.295520, 0.094726};
    for (int k = 0; k < 4; k++) {
        CHECK_THAT(rows[k], WithinAbs(cos[k], 0.6e-6));
        CHECK_THAT(rows[4 + k], WithinAbs(sin[k], 0.6e-6));
    }

    double matrix[8][8] = {};
    for (int k = 0; k < 4; k++) {
        matrix[2 * k][2 * k] = matrix[2 * k + 1][2 * k + 1] = std::cos(3 * std::pow(100, -2.0 * k / 8));
        matrix[2 * k + 1][2 * k] = std::sin(3 * std::pow(100, -2.0 * k / 8));
        matrix[2 * k][2 * k + 1] = -matrix[2 * k + 1][2 * k];
    }
    const std::vector<float> x = {1, 2, 3, 4, 5, 6, 7, 8};
    std::vector<double> matrix_times_x(8), x_times_matrix(8);
    for (std::size_t i = 0; i < 8; i++) {
        for (std::size_t j = 0; j < 8; j++) {
            matrix_times_x[i] += matrix[i][j] * x[j];
            x_times_matrix[j] += x[i] * matrix[i][j];
        }
    }
    const Elements forward = rotate(interleaved(8), angles, &positions, Elements(HALYARD_F32, {1, 1, 1, 8}, x));
    const Elements inverse = rotate(interleaved(8, true), angles, &positions, Elements(HALYARD_F32, {1, 1, 1, 8}, x));
    check_numbers(forward, matrix_times_x);
    check_numbers(inverse, x_times_matrix);
    check_numbers(forward, {-1.272233, -1.838865, -1.502335, 4.768961, 3.003561, 7.209620, 6.210715, 8.627110});
    check_numbers(inverse, {-0.707752, -2.121105, 4.998856, -0.106932, 6.549804, 4.254418, 7.726332, 7.300944});
}

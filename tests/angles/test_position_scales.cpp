// halyard_make_position_scales, the factors of q by position: compared with the formulas in long double.
#include "checks/oracle.h"
#include "config/read_config.h"
#include "every_field.h"

#include <catch2/catch_get_random_seed.hpp>

#include <cmath>

namespace {

std::string ministral(const std::string &beta, std::int64_t length) {
    return with_double_quotes(
        type("ministral3", "'rope_parameters': {'rope_type': 'yarn', 'factor': 16.0, 'rope_theta': 1e6, "
                           "'llama_4_scaling_beta': " +
                               beta + ", 'original_max_position_embeddings': " + text(length) + "}"));
}

long double exact(const halyard_frequencies_info &info, std::int64_t position) {
    const long double a = info.q_scale;
    const std::int64_t shifted = position + info.q_scale_shift, n = info.q_scale_length;
    return info.q_scale_rule == HALYARD_Q_SCALE_POWER
               ? std::pow(static_cast<long double>(n + shifted) / static_cast<long double>(n), a)
               : 1 + a * std::log1p(static_cast<long double>(shifted / n));
}

void check_scales(const halyard::frequencies &frequencies, const halyard_positions *view, std::int64_t n_batch,
                  std::int64_t n_tokens, const auto &position_of) {
    const auto made = halyard::position_scales(frequencies, view, n_batch, n_tokens);
    REQUIRE(std::ssize(made) == n_batch * n_tokens);
    for (std::int64_t i = 0; i < n_batch * n_tokens; i++) {
        const std::int64_t position = position_of(i / n_tokens, i % n_tokens);
        const long double should_be = exact(frequencies.info(), position);
        const float nearest = static_cast<float>(should_be), is = made[static_cast<std::size_t>(i)];
        // If a value is this near to the midpoint of two floats, long double cannot tell which of the two is nearest.
        const long double middle = (static_cast<long double>(nearest) + is) / 2;
        const bool is_midway = std::fabs(should_be - middle) < 1e-17L * std::fabs(should_be);
        CAPTURE(i, position, is, nearest);
        CHECK((is == nearest || is_midway));
    }
}

}  // namespace

// Forms: int64 with a negative stride, int32, consecutive from a start, and NULL (consecutive from 0).
TEST_CASE("position scales: the formulas, correctly rounded, for all forms of positions", "[angles]") {
    std::vector<std::int64_t> positions;
    for (const std::int64_t around : {0, 2048, 4096, 8192, 16384, 1 << 20, 3 << 23, INT32_MAX - 2}) {
        for (std::int64_t step = -2; step <= 2; step++) {
            positions.push_back(std::max<std::int64_t>(around + step, 0));
        }
    }
    oracle::Random random(Catch::getSeed());
    for (int i = 0; i < 2000; i++) {
        positions.push_back(random.in(0, random.one_in(2) ? INT32_MAX : 100000));
    }
    const std::int64_t n = std::ssize(positions);
    const std::vector<std::int32_t> narrow(positions.begin(), positions.end());
    const std::int32_t starts[] = {7, 8000};
    auto backwards = halyard::positions(&positions.back(), {1, n});
    backwards.strides[1] = -1;
    const auto batches = halyard::positions(narrow.data(), {2, n / 2}),
               in_order = halyard::consecutive_positions(starts, 2);
    for (const std::string &config :
         {read_fixture("llama-4-scout"), ministral("0.1", 16384), ministral("-2.5", 3), ministral("1e6", 1),
          with_double_quotes(
              type("beam", "'rope_parameters': {'full_attention': null, 'sliding_attention': {'rope_theta': 1e4}}"))}) {
        CAPTURE(config);
        const auto frequencies = read_good(config).frequencies;
        CHECK(halyard::position_scales(frequencies, nullptr, 0, 0).empty());
        check_scales(frequencies, &backwards, 2, n, [&](auto, auto t) { return *(&positions.back() - t); });
        check_scales(frequencies, &batches, 2, n / 2,
                     [&](auto b, auto t) { return *(&positions[0] + b * (n / 2) + t); });
        check_scales(frequencies, &in_order, 2, 300, [&](auto b, auto t) { return starts[b] + t; });
        check_scales(frequencies, nullptr, 2, 300, [&](auto, auto t) { return t; });
    }
}

TEST_CASE("errors: position scales", "[errors]") {
    const auto frequencies = read_good(ministral("0.1", 4)).frequencies;
    const auto none = halyard::frequencies::from_base(1e4, 8);
    std::int64_t numbers[6] = {0, 1, 2, 3, 4, INT32_MAX};
    float out[8];
    struct {
        const halyard_frequencies *frequencies;
        halyard_positions positions;
        const halyard_positions *given;
        float *out;
        std::int64_t n_batch = 2, n_tokens = 3, n_floats = 6;
    } s = {frequencies.get(), halyard::positions(numbers, {2, 3}), &s.positions, out};
    const auto call = [&](halyard_error *error) {
        return halyard_make_position_scales(s.frequencies, s.given, s.n_batch, s.n_tokens, s.out, s.n_floats, error);
    };
    const CallChecker table(
        [&](halyard_status status, const Words &words) {
            std::fill_n(out, 8, -7.0f);
            check_refused(status, words, call);
            CHECK(std::count(out, out + 8, -7.0f) == 8);
        },
        [&] { CHECK(call(nullptr) == HALYARD_OK); });
    table.accept_each({{}, {{s.given, nullptr}}, {{s.n_floats, 8}}});
    table.accept({{s.n_tokens, 0}, {s.given, nullptr}, {s.out, nullptr}, {s.n_floats, 0}});
    every_field::refuse(table, fields::places(fields::of<halyard_positions>(), &s.positions, 0, "positions"));
    table.refuse_each(HALYARD_ERROR_SHAPE, {-1}, {{"n_batch", s.n_batch}, {"n_tokens", s.n_tokens}});
    table.refuse_each(HALYARD_ERROR_SHAPE, {5, -1}, {{"n_floats", s.n_floats}}, {"6"});
    for (const std::int64_t position : {std::int64_t{-1}, std::int64_t{INT32_MAX} + 1, INT64_MIN, INT64_MAX}) {
        table.refuse(HALYARD_ERROR_POSITION, {"positions[batch 1, token 1] is " + text(position), "0 to 2^31 - 1"},
                     {{numbers[4], position}});
    }
    table.refuse({
        {HALYARD_ERROR_NULL_POINTER, {"frequencies is NULL"}, {{s.frequencies, nullptr}}},
        {HALYARD_ERROR_NULL_POINTER, {"out is NULL"}, {{s.out, nullptr}}},
        {HALYARD_ERROR_SHAPE, {"positions.shape"}, {{s.positions.shape[1], 2}}},
        {HALYARD_ERROR_SHAPE, {"positions.n_axes is 2"}, {{s.positions.n_axes, 2}}},
        {HALYARD_ERROR_MISMATCH, {"no rule"}, {{s.frequencies, none.get()}}},
        {HALYARD_ERROR_OVERLAP, {"positions.data"}, {{s.out, reinterpret_cast<float *>(numbers) + 1}}},
        {HALYARD_ERROR_OVERFLOW,
         {"address space"},
         {{s.given, nullptr}, {s.n_batch, INT64_MAX / 2}, {s.n_floats, INT64_MAX}}},
    });
}

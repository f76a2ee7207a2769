// halyard_make_position_scales: what models multiply q by, against the formulas in long double.
#include "changes.h"
#include "checks/oracle.h"
#include "checks/sized.h"
#include "config/read_config.h"

#include <catch2/catch_get_random_seed.hpp>

#include <cmath>

namespace {

const std::string llama4 = R"({"model_type": "llama4_text", "head_dim": 16, "num_hidden_layers": 4,
    "attn_scale": 0.1, "floor_scale": 8192})";
const std::string beam = R"({"model_type": "beam", "head_dim": 16, "rope_parameters":
    {"full_attention": null, "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}})";

std::string ministral(double beta, std::int64_t length) {
    return R"({"model_type": "ministral3", "head_dim": 16, "rope_parameters": {"rope_type": "yarn", "factor": 16.0,
        "rope_theta": 1e6, "llama_4_scaling_beta": )" +
           std::to_string(beta) + R"(, "original_max_position_embeddings": )" + std::to_string(length) + "}}";
}

long double exact(const halyard_frequencies_info &info, std::int64_t position) {
    const long double a = info.q_scale;
    const std::int64_t shifted = position + info.q_scale_shift, n = info.q_scale_length;
    return info.q_scale_rule == HALYARD_Q_SCALE_POWER
               ? std::pow(static_cast<long double>(n + shifted) / static_cast<long double>(n), a)
               : 1 + a * std::log1p(static_cast<long double>(shifted / n));
}

}  // namespace

// As int64 backwards, as int32, and in order from a start or from 0.
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
    const auto n = static_cast<std::int64_t>(positions.size());
    const std::vector<std::int32_t> narrow(positions.begin(), positions.end());
    const std::int32_t starts[] = {7, 8000};
    auto backwards = halyard::positions(&positions.back(), {1, n});
    backwards.strides[1] = -1;
    const auto batches = halyard::positions(narrow.data(), {2, n / 2}),
               in_order = halyard::consecutive_positions(starts, 2);
    for (const std::string &config : {llama4, beam, ministral(0.1, 16384), ministral(-2.5, 3), ministral(1e6, 1)}) {
        const auto outcome = read_good(config, config == beam ? "sliding_attention" : nullptr);
        CHECK(halyard::position_scales(outcome.frequencies, nullptr, 0, 0).empty());
        const auto check = [&](const halyard_positions *view, std::int64_t n_batch, std::int64_t n_tokens,
                               auto position_of) {
            const auto made = halyard::position_scales(outcome.frequencies, view, n_batch, n_tokens);
            REQUIRE(std::ssize(made) == n_batch * n_tokens);
            for (std::int64_t i = 0; i < n_batch * n_tokens; i++) {
                const std::int64_t position = position_of(i / n_tokens, i % n_tokens);
                const long double should_be = exact(outcome.info, position);
                const float nearest = static_cast<float>(should_be), is = made[static_cast<std::size_t>(i)];
                // A long double cannot tell on which side of a midpoint it is when it is this near to one.
                const long double middle = (static_cast<long double>(nearest) + is) / 2;
                const bool is_midway = std::fabs(should_be - middle) < 1e-17L * std::fabs(should_be);
                CAPTURE(config, i, position, is, nearest);
                CHECK((is == nearest || is_midway));
            }
        };
        check(&backwards, 2, n, [&](auto, auto t) { return positions[static_cast<std::size_t>(n - 1 - t)]; });
        check(&batches, 2, n / 2, [&](auto b, auto t) { return positions[static_cast<std::size_t>(b * (n / 2) + t)]; });
        check(&in_order, 2, 300, [&](auto b, auto t) { return starts[b] + t; });
        check(nullptr, 2, 300, [&](auto, auto t) { return t; });
    }
}

TEST_CASE("errors: position scales", "[errors]") {
    const auto frequencies = read_good(ministral(0.1, 4)).frequencies;
    const auto none = halyard::frequencies::from_base(1e4, 8);
    struct {
        const halyard_frequencies *frequencies;
        halyard_positions positions;
        const halyard_positions *given;
        std::int64_t n_batch = 2, n_tokens = 3;
        float *out;
        std::int64_t n_floats = 6;
    } s;
    std::int64_t numbers[6] = {0, 1, 2, 3, 4, INT32_MAX};
    float out[8];
    s.frequencies = frequencies.get();
    s.positions = halyard::positions(numbers, {2, 3});
    s.given = &s.positions;
    s.out = out;
    const auto call = [&](halyard_error *error) {
        return halyard_make_position_scales(s.frequencies, s.given, s.n_batch, s.n_tokens, s.out, s.n_floats, error);
    };
    const Table table(
        [&](halyard_status status, const Words &words) {
            std::fill_n(out, 8, -7.0f);
            check_refused(status, words, call);
            CHECK(std::count(out, out + 8, -7.0f) == 8);
        },
        [&] { CHECK(call(nullptr) == HALYARD_OK); });
    table.accept({});
    table.accept({{s.given, nullptr}});
    table.accept({{s.n_floats, 8}});
    table.accept({{s.n_tokens, 0}, {s.given, nullptr}, {s.out, nullptr}, {s.n_floats, 0}});
    table.refuse_each(HALYARD_ERROR_SHAPE, {-1, INT64_MIN}, {{"n_batch", s.n_batch}, {"n_tokens", s.n_tokens}});
    table.refuse_each(HALYARD_ERROR_SHAPE, {5, 0, -1}, {{"n_floats", s.n_floats}}, {"6"});
    for (const std::int64_t position : {std::int64_t{-1}, std::int64_t{INT32_MAX} + 1, INT64_MIN, INT64_MAX}) {
        table.refuse(HALYARD_ERROR_POSITION, {"positions[batch 1, token 1] is " + text(position), "0 to 2^31 - 1"},
                     {{numbers[4], position}});
    }
    table.refuse({
        {HALYARD_ERROR_NULL_POINTER, {"frequencies is NULL"}, {{s.frequencies, nullptr}}},
        {HALYARD_ERROR_NULL_POINTER, {"out is NULL"}, {{s.out, nullptr}}},
        {HALYARD_ERROR_NULL_POINTER, {"positions.data is NULL"}, {{s.positions.data, nullptr}}},
        {HALYARD_ERROR_STRUCT_SIZE, {"positions.size is 3"}, {{s.positions.size, 3}}},
        {HALYARD_ERROR_UNKNOWN_VALUE, {"positions.type is 2"}, {{s.positions.type, 2}}},
        {HALYARD_ERROR_SHAPE, {"positions.shape"}, {{s.positions.shape[1], 2}}},
        {HALYARD_ERROR_SHAPE, {"positions.n_axes is 2"}, {{s.positions.n_axes, 2}}},
        {HALYARD_ERROR_MISMATCH, {"no rule"}, {{s.frequencies, none.get()}}},
        {HALYARD_ERROR_OVERLAP, {"positions.data"}, {{s.out, reinterpret_cast<float *>(numbers) + 1}}},
        {HALYARD_ERROR_OVERFLOW,
         {"address space"},
         {{s.given, nullptr}, {s.n_batch, INT64_MAX / 2}, {s.n_tokens, 3}, {s.n_floats, INT64_MAX}}},
        {HALYARD_ERROR_OVERFLOW,
         {"address space"},
         {{s.given, nullptr}, {s.n_batch, 1}, {s.n_tokens, INT64_MAX}, {s.n_floats, INT64_MAX}}},
    });
}

// Joined angle sources: each batch row or token is turned by the source that the index says, to the bits that it gives
// alone, in runs, bound runs, parts and rows.
#include "angles/refused_source.h"
#include "checks/make_sources.h"
#include "checks/scene/ways.h"
#include "rotation_run.h"

#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <string>
#include <vector>

namespace {

using oracle::Random;

constexpr std::int64_t rotary_dim = 24, head_dim = 32, n_heads = 3;

/// Sources of every kind, each with frequencies of its own.
struct Sources {
    halyard::angle_source table =
        make_source(halyard::frequencies::from_base(10000, rotary_dim), HALYARD_ANGLES_TABLE, -50, 300);
    halyard::angle_source phase = make_source(halyard::frequencies::from_base(500000, rotary_dim), HALYARD_ANGLES_PHASE,
                                              least_position, greatest_position);
    halyard::angle_source scaled = make_source(with_factor(halyard::frequencies::from_base(100, rotary_dim), 1.25),
                                               HALYARD_ANGLES_PHASE, -5000, 5000);
    const halyard::angle_source &operator[](std::int32_t i) const { return i == 0 ? table : i == 1 ? phase : scaled; }
    halyard::angle_source join(const std::vector<std::int32_t> &index, bool by_token) const {
        return halyard::angle_source::joined({&table, &phase, &scaled}, index.data(),
                                             static_cast<std::int64_t>(index.size()), by_token);
    }
};

struct Case {
    std::int64_t n_batch, n_tokens;
    std::vector<float> x;
    std::vector<std::int32_t> positions, index;
    bool by_token;

    Case(std::int64_t batch, std::int64_t tokens, bool each_token, Random &random)
        : n_batch(batch), n_tokens(tokens), by_token(each_token) {
        for (std::int64_t i = 0; i < batch * tokens * n_heads * head_dim; i++) {
            x.push_back(static_cast<float>(random.unit() - 0.5));
        }
        for (std::int64_t i = 0; i < batch * tokens; i++) {
            positions.push_back(static_cast<std::int32_t>(random.in(-50, 300)));
        }
        for (std::int64_t i = 0; i < (each_token ? batch * tokens : batch); i++) {
            index.push_back(static_cast<std::int32_t>(random.in(0, 2)));
        }
    }
    halyard_tensor tensor(std::vector<float> &data) const {
        return halyard::tensor(data.data(), halyard::dtype::f32, {n_batch, n_tokens, n_heads, head_dim});
    }
};

halyard::plan make_plan() {
    return halyard::plan(halyard::plan_desc(
        rotary_dim, {halyard::describe_tensor(halyard::dtype::f32, head_dim, halyard::pairing::half, 4)}));
}

}  // namespace

// Of few tokens they are among the scenes of rotations (test_properties.cpp).
TEST_CASE("joined sources: every token is turned by its own", "[sources]") {
    Random random(Catch::getSeed());
    for (const auto &[n_batch, n_tokens] : std::vector<std::array<std::int64_t, 2>>{{5, 1}, {1, 300}, {40, 11}}) {
        for (int round = 0; round < 6; round++) {
            scenes::Choice choice = scenes::Choice::of_rotations();
            choice.level[scenes::of_source] = scenes::Angles::joined;
            choice.shape = {n_batch, n_tokens, n_heads};
            choice.rotary_dim = rotary_dim;
            choice.head_dim = head_dim;
            scenes::Draw draw(random);
            scenes::Scene scene(draw, choice);
            REQUIRE(fault_of_ways(scene) == "");
        }
    }
}

TEST_CASE("joined sources: rows, and bound runs whose index is rewritten", "[sources]") {
    Random random(Catch::getSeed());
    const Sources sources;
    const auto plan = make_plan();
    for (const auto &[batch, tokens] :
         std::vector<std::array<std::int64_t, 2>>{{1, 1}, {5, 1}, {3, 7}, {1, 300}, {40, 11}}) {
        for (const bool by_token : {false, true}) {
            CAPTURE(batch, tokens, by_token);
            Case of(batch, tokens, by_token, random);
            const auto joined = sources.join(of.index, by_token);
            CHECK(joined.info().kind == HALYARD_ANGLES_JOINED);
            CHECK(joined.info().first == -50);
            CHECK(joined.info().last == 300);
            const auto at = positions_of(of.positions, batch);
            auto y = of.x, expected = y;
            const auto in_place = of.tensor(y), other = of.tensor(expected);
            const halyard::bound_run bound(plan, joined, in_place, in_place, halyard::run_options().at(at));
            for (int i = 0; i < 2; i++) {
                std::rotate(of.index.begin(), of.index.begin() + 1, of.index.end());
                y = expected = of.x;
                bound({y.data()}, {y.data()}, of.positions.data());
                halyard::run(plan, joined, other, other, halyard::run_options().at(at));
                CHECK(y == expected);
            }
            const auto rows = rows_of(joined, &at, batch, tokens);
            for (std::int64_t token = 0; token < batch * tokens; token++) {
                const auto one = halyard::positions(&of.positions[static_cast<std::size_t>(token)], {1, 1});
                const std::int32_t its = of.index[static_cast<std::size_t>(by_token ? token : token / tokens)];
                const auto row = rows_of(sources[its], &one, 1, 1);
                CHECK(std::equal(row.begin(), row.end(), rows.begin() + token * rotary_dim));
            }
        }
    }
}

TEST_CASE("joined sources: with axes, and with positions that a source does not cover", "[sources][axes]") {
    auto describe = [](double base, std::int32_t last) {
        auto desc = describe_source(HALYARD_ANGLES_TABLE, 0, last);
        desc.axis_map = HALYARD_AXIS_MAP_INTERLEAVED;
        desc.n_axes = 2;
        desc.axis_counts[0] = desc.axis_counts[1] = rotary_dim / 4;
        return halyard::angle_source(halyard::frequencies::from_base(base, rotary_dim), desc);
    };
    const auto near = describe(10000, 9), far = describe(1000, 99);
    const std::int32_t index[] = {1, 0}, values[] = {50, 5, 60, 20};  // [axis][batch]
    const auto joined = halyard::angle_source::joined({&near, &far}, index, 2);
    auto at = halyard::positions(values, {2, 1});
    at.n_axes = 2;
    at.stride_axis = 2;
    for (const auto policy : {halyard::bad_position::clamp, halyard::bad_position::identity}) {
        const auto rows = rows_of(joined, &at, 2, 1, policy);
        for (const std::int64_t batch : {0, 1}) {
            auto one = halyard::positions(values + batch, {1, 1});
            one.n_axes = 2;
            one.stride_axis = 2;
            const auto row = rows_of(batch == 0 ? far : near, &one, 1, 1, policy);
            CHECK(std::equal(row.begin(), row.end(), rows.begin() + batch * rotary_dim));
        }
    }
    std::vector<float> rows(2 * rotary_dim, 7.0f);
    const auto plan = plan_for(rotary_dim);
    const auto args = rows_args(joined, &at, 2, 1, rows.data(), 2 * rotary_dim);
    check_refused(HALYARD_ERROR_POSITION, {"axis 1", "batch 1", "is 20", "0 to 9"},
                  [&](auto *error) { return halyard_make_rows(plan.get(), &args, error); });
    CHECK(rows == std::vector<float>(2 * rotary_dim, 7.0f));
}

TEST_CASE("joined sources: bad numbers, and an output over them, are refused", "[sources][errors]") {
    RotationRun s;
    auto *const index = reinterpret_cast<std::int32_t *>(s.at(3000));
    std::fill_n(index, 6, 1);
    const auto join = [&](std::int64_t n) {
        return halyard::angle_source::joined({&s.angles, &s.angles, &s.angles}, index, n, true);
    };
    const auto joined = join(6), too_few = join(5);
    s.args.angles = joined.get();
    s.runs.accept({});
    for (const std::int32_t policy : {HALYARD_BAD_POSITION_ERROR, HALYARD_BAD_POSITION_CLAMP}) {
        s.args.bad_position = policy;
        for (const std::int32_t wrong : {-1, 3, INT32_MAX, INT32_MIN}) {
            s.runs.refuse(HALYARD_ERROR_UNKNOWN_VALUE, {"index[5] is " + text(wrong), "3 sources"},
                          {{index[5], wrong}});
        }
        s.runs.refuse({
            {HALYARD_ERROR_SHAPE, {"5 tokens", "2 times 3"}, {{s.args.angles, too_few.get()}}},
            {HALYARD_ERROR_OVERLAP, {"y[1]", "index"}, {{s.y[1].data, s.at(2990)}}},
        });
    }
    BoundRun bound(s);
    bound.calls.refuse(HALYARD_ERROR_OVERLAP, {"y[1]", "index"}, {{bound.y[1], s.at(2990)}});
    const auto none = [&](std::int64_t n_batch, std::int64_t n_tokens) {  // an index that has too few for some
        const auto args = rows_args(too_few, nullptr, n_batch, n_tokens, s.at(2000), 0);
        return halyard_make_rows(plan_for(RotationRun::rotary_dim).get(), &args, nullptr);
    };
    CHECK(none(6, 0) == HALYARD_OK);
    CHECK(none(0, 6) == HALYARD_OK);
    const auto rows = rows_args(joined, nullptr, 2, 3, s.at(2990), 6 * RotationRun::rotary_dim);
    check_refused(HALYARD_ERROR_OVERLAP, {"index"}, [&](auto *error) {
        return halyard_make_rows(plan_for(RotationRun::rotary_dim).get(), &rows, error);
    });
}

TEST_CASE("joined sources: what cannot be joined is refused", "[sources][errors]") {
    const Sources sources;
    const std::vector<std::int32_t> one = {0};
    const auto joined = sources.join(one, true);
    const auto other_width = make_source(halyard::frequencies::from_base(10000, 26), HALYARD_ANGLES_PHASE, 0, 9);
    auto desc = describe_source(HALYARD_ANGLES_TABLE, 0, 9);
    const auto frequencies = halyard::frequencies::from_base(10000, rotary_dim);
    desc.reference = HALYARD_REFERENCE_HF_F32;
    const halyard::angle_source other_reference(frequencies, desc);
    desc.reference = HALYARD_REFERENCE_EXACT;
    desc.axis_map = HALYARD_AXIS_MAP_SECTIONS;
    desc.n_axes = 2;
    desc.axis_counts[0] = rotary_dim / 2;
    const halyard::angle_source other_axes(frequencies, desc);
    const float row[rotary_dim] = {};
    const auto given = halyard::angle_source::given(row, row, 1, rotary_dim / 2, rotary_dim);

    const halyard_angle_source *list[] = {sources.table.get(), sources.phase.get()};
    const halyard_angle_source *const *sources_given = list;
    const std::int32_t *index = one.data();
    std::int32_t n_sources = 2, by_token = 0;
    std::int64_t n_index = 1;
    auto *const untouched = reinterpret_cast<halyard_angle_source *>(16);
    halyard_angle_source *made = untouched, **out = &made;
    const Table calls([&](halyard_status status, const Words &words) {
        check_refused(status, words, [&](auto *error) {
            return halyard_create_joined_angle_source(sources_given, n_sources, index, n_index, by_token, out, error);
        });
        CHECK(made == untouched);
    });
    calls.refuse({
        {HALYARD_ERROR_MISMATCH, {"sources[1]", "rotary_dim 26"}, {{list[1], other_width.get()}}},
        {HALYARD_ERROR_MISMATCH, {"sources[1]", "n_axes 2"}, {{list[1], other_axes.get()}}},
        {HALYARD_ERROR_MISMATCH, {"sources[1]", "reference 1"}, {{list[1], other_reference.get()}}},
        {HALYARD_ERROR_UNSUPPORTED, {"sources[1]", "given rows"}, {{list[1], given.get()}}},
        {HALYARD_ERROR_UNSUPPORTED, {"sources[1]", "sources of its own"}, {{list[1], joined.get()}}},
        {HALYARD_ERROR_NULL_POINTER, {"sources[1]"}, {{list[1], nullptr}}},
        {HALYARD_ERROR_SHAPE, {"n_index is 0"}, {{n_index, 0}}},
        {HALYARD_ERROR_OVERFLOW, {"n_index is"}, {{n_index, INT64_MAX}}},
        {HALYARD_ERROR_NULL_POINTER, {"sources"}, {{sources_given, nullptr}, {n_sources, 1}}},
        {HALYARD_ERROR_NULL_POINTER, {"index"}, {{index, nullptr}, {n_sources, 1}}},
        {HALYARD_ERROR_NULL_POINTER, {"out"}, {{out, nullptr}, {n_sources, 1}}},
    });
    calls.refuse_each(HALYARD_ERROR_SHAPE, {0, -1, (1 << 20) + 1}, {{"n_sources", n_sources}});
    calls.refuse_each(HALYARD_ERROR_UNKNOWN_VALUE, {-1, 2}, {{"by_token", by_token}});
}

// Positions with several axes: each pair reads the axis that the map says, whatever the source. Scenes take any map,
// also with bad positions (test_properties.cpp).
#include "angles/count_wrong.h"
#include "angles/refused_source.h"
#include "changes.h"
#include "data/golden_elements.h"

#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>

#include <string>

namespace {

void set_axes(halyard_angle_source_desc &desc, std::int32_t axis_map, const std::vector<std::int64_t> &counts) {
    desc.axis_map = axis_map;
    desc.n_axes = static_cast<std::int32_t>(counts.size());
    std::fill(std::copy(counts.begin(), counts.end(), desc.axis_counts), std::end(desc.axis_counts), 0);
}

/// Dense positions [axes, batch, tokens].
template <typename Integer>
halyard_positions axis_positions(const std::vector<Integer> &data, std::int64_t n_axes, std::int64_t n_batch,
                                 std::int64_t n_tokens) {
    auto positions = halyard::positions(data.data(), {n_batch, n_tokens});
    positions.n_axes = n_axes;
    positions.stride_axis = n_batch * n_tokens;
    return positions;
}

}  // namespace

TEST_CASE("axis maps: golden mrope, by every source and target", "[axes][golden]") {
    const golden::Section section("mrope");
    REQUIRE(section.cases().size() == 5);
    std::int64_t n_apart = 0;
    for (const auto &entry : section.cases()) {
        INFO(entry.at("name").get<std::string>());
        Rotation rotation = golden::rotation_of(entry);
        const auto positions = section.array<std::int64_t>(entry.at("positions"));
        const std::int64_t n_axes = positions.shape.at(0), n_tokens = positions.shape.at(1);
        const auto axes = entry.at("axis_of_pair").get<std::vector<std::int64_t>>();
        const auto base = entry.at("base").get<long double>(), freq_dim = entry.at("freq_dim").get<long double>();
        std::vector<double> inv_freq;
        for (const auto &index : entry.at("inv_freq_index")) {
            inv_freq.push_back(static_cast<double>(std::pow(base, -2 * index.get<long double>() / freq_dim)));
        }
        const auto exact = [&](std::int64_t token, std::int64_t k) {
            const auto pair = static_cast<std::size_t>(k), at = static_cast<std::size_t>(axes[pair] * n_tokens + token);
            return exact_cos_sin(inv_freq[pair], positions.values[at]);
        };
        const auto promised = [](oracle::Pair<long double> pair, const ExactCosSin &, long double result) {
            return oracle::promised_bound(HALYARD_F32, pair, 1, result);
        };
        const Elements x = golden::read_elements(section, entry.at("x"));
        CHECK(count_wrong(rotation, x, golden::read_elements(section, entry.at("y_exact")), exact, promised) == 0);
        for (std::int64_t t = 0; t < n_tokens; t++) {
            n_apart += positions.values[static_cast<std::size_t>(t)] !=
                       positions.values[static_cast<std::size_t>(n_tokens + t)];
        }
        const auto at = axis_positions(positions.values, n_axes, 1, n_tokens);
        const auto greatest = *std::max_element(positions.values.begin(), positions.values.end());
        for (const std::int32_t kind : {HALYARD_ANGLES_TABLE, HALYARD_ANGLES_PHASE}) {
            auto desc = describe_source(kind, 0, static_cast<std::int32_t>(greatest));
            set_axes(desc,
                     entry.at("kind") == "interleaved_axes" ? HALYARD_AXIS_MAP_INTERLEAVED : HALYARD_AXIS_MAP_SECTIONS,
                     entry.at("section").get<std::vector<std::int64_t>>());
            const halyard::angle_source source(make_frequencies(inv_freq), desc);
            for (const char *target : targets_here()) {
                INFO("kind " << kind << ", " << target);
                rotation.target = target;
                CHECK(count_wrong(rotation, x, rotate(rotation, source, &at, x), exact, promised) == 0);
            }
        }
    }
    CHECK(n_apart > 20);  // equal positions would hide every mistake
}

// ---- What is refused -----------------------------------------------------------------------------------------------

namespace {

void check_map_refused(const halyard_angle_source_desc &desc, halyard_status status, const std::string &words) {
    check_source_refused(halyard::frequencies::from_base(10000, 128).get(), &desc, status, {words});
}

}  // namespace

TEST_CASE("axis maps: what is no map is refused", "[axes][errors]") {
    const auto frequencies = halyard::frequencies::from_base(10000, 128);
    for (const std::int32_t kind :
         {HALYARD_ANGLES_AUTO, HALYARD_ANGLES_TABLE, HALYARD_ANGLES_PHASE, HALYARD_ANGLES_GIVEN}) {
        INFO("kind " << kind);
        float rows[256] = {};
        auto desc = describe_given(rows, rows, 2, 64, 128);
        desc.kind = kind;
        desc.n_positions = 10;
        const auto refuse = [&](std::int32_t axis_map, const std::vector<std::int64_t> &counts,
                                const std::string &words, halyard_status status = HALYARD_ERROR_SHAPE) {
            set_axes(desc, axis_map, counts);
            check_map_refused(desc, status, words);
        };
        for (const std::int32_t axis_map : {-1, 5, 100}) {
            refuse(axis_map, {32, 32}, "desc.axis_map is " + text(axis_map), HALYARD_ERROR_UNKNOWN_VALUE);
        }
        for (const auto axis_map : {HALYARD_AXIS_MAP_SECTIONS, HALYARD_AXIS_MAP_INTERLEAVED}) {
            refuse(axis_map, {24, 20, 19}, "add up to 63, but rotary_dim / 2 is 64");
            refuse(axis_map, {24, 20, 21}, "add up to 65, but rotary_dim / 2 is 64");
            refuse(axis_map, {45, 20, -1}, "desc.axis_counts[2] is -1");
            refuse(axis_map, {65, 20, 0}, "desc.axis_counts[0] is 65");
            refuse(axis_map, {1, INT64_MAX}, "desc.axis_counts[1]");
            refuse(axis_map, {INT64_MIN, 64}, "desc.axis_counts[0]");
            set_axes(desc, axis_map, {16, 16, 16, 16});
            for (const std::int32_t n_axes : {0, -1, 5, INT32_MAX}) {
                desc.n_axes = n_axes;
                check_map_refused(desc, HALYARD_ERROR_SHAPE, "desc.n_axes is " + text(n_axes));
            }
        }
        refuse(HALYARD_AXIS_MAP_NONE, {32, 32}, "desc.n_axes is 2");
        refuse(0, {32, 32}, "desc.n_axes is 2, but desc.axis_map is not set", HALYARD_ERROR_MISMATCH);
        // Of 64 pairs, 21 are 1 modulo 3 and 21 are 2 modulo 3.
        refuse(HALYARD_AXIS_MAP_INTERLEAVED, {21, 22, 21},
               "desc.axis_counts[1] is 22, but of 64 pairs taken in turns by 3 axes, axis 1 has 21");
        refuse(HALYARD_AXIS_MAP_INTERLEAVED, {22, 20, 22}, "desc.axis_counts[2] is 22");
        refuse(HALYARD_AXIS_MAP_INTERLEAVED, {31, 33}, "desc.axis_counts[1] is 33");
        for (const auto &counts :
             std::vector<std::vector<std::int64_t>>{{64}, {32, 32}, {22, 21, 21}, {64, 0, 0}, {16, 16, 16, 16}}) {
            set_axes(desc, HALYARD_AXIS_MAP_INTERLEAVED, counts);
            CHECK_NOTHROW(halyard::angle_source(frequencies, desc));
            set_axes(desc, HALYARD_AXIS_MAP_SECTIONS, {counts.rbegin(), counts.rend()});
            CHECK_NOTHROW(halyard::angle_source(frequencies, desc));
        }
    }
}

TEST_CASE("axis maps: a list names an axis for each pair", "[axes][errors]") {
    std::vector<std::int32_t> list(64, 1);
    auto desc = describe_source(HALYARD_ANGLES_TABLE, 0, 9);
    set_axes(desc, HALYARD_AXIS_MAP_LIST, {0, 0});
    check_map_refused(desc, HALYARD_ERROR_NULL_POINTER, "desc.axis_of_pair is NULL");
    desc.axis_of_pair = list.data();
    for (const std::int32_t wrong : {-1, 2, INT32_MIN}) {
        list[63] = wrong;
        check_map_refused(desc, HALYARD_ERROR_SHAPE,
                          "desc.axis_of_pair[63] is " + text(wrong) + ", but it must be 0 to 1");
    }
    list[63] = 0;
    for (const std::int32_t n_axes : {0, 5}) {
        desc.n_axes = n_axes;
        check_map_refused(desc, HALYARD_ERROR_SHAPE, "desc.n_axes is " + text(n_axes));
    }
}

namespace {

constexpr std::int64_t rotary_dim = 128, n_batch = 2, n_tokens = 3;

/// A run of two times three tokens by sections of three axes, and rows for them; and the same without a map.
struct MappedRun {
    halyard::angle_source plain, mapped;
    halyard::plan plan = plan_for(rotary_dim);
    std::vector<float> x = std::vector<float>(n_batch * n_tokens * rotary_dim, 0.5f), out;
    std::vector<std::int64_t> data = std::vector<std::int64_t>(4 * n_batch * n_tokens, 5);
    halyard_positions at = axis_positions(data, 3, n_batch, n_tokens);
    const halyard::angle_source *source = &mapped;

    explicit MappedRun(std::int32_t kind) {
        const auto frequencies = halyard::frequencies::from_base(10000, rotary_dim);
        auto desc = describe_source(kind, 0, 99);
        plain = halyard::angle_source(frequencies, desc);
        set_axes(desc, HALYARD_AXIS_MAP_SECTIONS, {16, 24, 24});
        mapped = halyard::angle_source(frequencies, desc);
    }

    /// Runs, in place where there is no other place.
    halyard_status run(void *from, void *to, halyard_error *error) const {
        auto args = sized<halyard_run_args>();
        const auto in = halyard::tensor(from, halyard::dtype::f32, {n_batch, n_tokens, 1, rotary_dim});
        const auto into = halyard::tensor(to, halyard::dtype::f32, {n_batch, n_tokens, 1, rotary_dim});
        args.angles = source->get();
        args.positions = &at;
        args.x = &in;
        args.y = &into;
        return halyard_run(plan.get(), &args, error);
    }

    Table runs{[this](halyard_status status, const Words &words) {
        out.assign(x.size(), 7.0f);
        check_refused(status, words, [this](auto *error) { return run(x.data(), out.data(), error); });
        const auto args = rows_args(*source, &at, n_batch, n_tokens, out.data(), std::ssize(out));
        check_refused(status, words, [&](auto *error) { return halyard_make_rows(plan.get(), &args, error); });
        CHECK(out == std::vector<float>(x.size(), 7.0f));
    }};
};

constexpr std::int32_t mapped_kinds[] = {HALYARD_ANGLES_TABLE, HALYARD_ANGLES_PHASE};

}  // namespace

TEST_CASE("axis maps: positions that do not fit are refused, and messages name the axis", "[axes][errors]") {
    for (const std::int32_t kind : mapped_kinds) {
        CAPTURE(kind);
        MappedRun s(kind);
        CHECK(s.run(s.x.data(), s.x.data(), nullptr) == HALYARD_OK);
        const Named n_axes = {"positions.n_axes", s.at.n_axes};
        s.runs.refuse_each(HALYARD_ERROR_SHAPE, {2, 4, -1}, {n_axes},
                           {"but it must be 3, or 1 where all axes are equal"});
        s.runs.refuse(HALYARD_ERROR_SHAPE, {"but it must be {1 or 2, 3}, batch and tokens, on every axis"},
                      {{s.at.shape[0], 3}});
        s.source = &s.plain;
        s.runs.refuse_each(HALYARD_ERROR_SHAPE, {2, 3, -1}, {n_axes}, {"but it must be 1"});
        s.source = &s.mapped;
        s.runs.refuse(HALYARD_ERROR_OVERFLOW, {"positions"}, {{s.at.stride_axis, INT64_MAX / 4}});
        for (const std::int64_t stride : Numbers{INT64_MAX, INT64_MIN}) {
            s.runs.refuse(HALYARD_ERROR_OVERFLOW,
                          {"n_axes 3 and stride_axis " + text(stride) + " leave the address space"},
                          {{s.at.stride_axis, stride}});
        }
        for (std::int64_t i = 0; i < 3 * n_batch * n_tokens; i++) {
            s.runs.refuse_each(
                HALYARD_ERROR_POSITION, {100, -1, std::int64_t{1} << 32},
                {{"positions[axis " + text(i / 6) + ", batch " + text(i / 3 % 2) + ", token " + text(i % 3) + "]",
                  s.data[static_cast<std::size_t>(i)]}});
        }
        // An output may not overlap the positions of the last axis.
        std::vector<char> arena(64 * 1024);
        auto *const tensor = arena.data() + 4096;
        s.at.data = tensor - 8 * 2 * 6 - 8;  // axes 0 and 1 are before it, axis 2 begins 8 bytes before it
        CHECK(s.run(tensor, tensor, nullptr) == HALYARD_ERROR_OVERLAP);
        s.at.data = tensor - 8 * 3 * 6;
        CHECK(s.run(tensor, tensor, nullptr) == HALYARD_OK);
    }
}

TEST_CASE("axis maps: a source takes over what a config told its frequencies", "[axes]") {
    const std::string config = R"({"model_type": "qwen2_vl", "hidden_size": 512, "num_attention_heads": 4,
        "rope_theta": 1e6, "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}})";
    const auto frequencies = halyard::frequencies::from_config(config.data(), static_cast<std::int64_t>(config.size()));
    const auto stated = halyard::axis_map::sections({16, 24, 24});
    const auto plan = Rotation{.rotary_dim = 128}.plan();
    const std::int32_t text[] = {3, 4, 5, 10, 11, 12, 20, 21, 22};
    auto at = halyard::positions(text, {1, 3});
    at.n_axes = 3;
    at.stride_axis = 3;
    const auto rows = [&](const halyard::angle_source &source, const halyard_positions &positions) {
        std::vector<float> result(3 * 128);
        halyard::make_rows(plan, source, &positions, 1, 3, result.data(), 3 * 128);
        return result;
    };
    for (const std::int32_t kind : {HALYARD_ANGLES_AUTO, HALYARD_ANGLES_TABLE, HALYARD_ANGLES_PHASE}) {
        CAPTURE(kind);
        const halyard::angle_source taken(frequencies, halyard::describe_angles(kind, 0, 100));
        const halyard::angle_source same(frequencies, halyard::describe_angles(kind, stated, 0, 100));
        CHECK(rows(taken, at) == rows(same, at));
        // Text has one position on all axes, which is said by a stride of 0, or by leaving the axes out.
        const halyard::angle_source none(frequencies, halyard::describe_angles(kind, halyard::axis_map(), 0, 100));
        for (const std::int64_t n_axes : {0, 1, 3}) {
            auto one = at;
            one.n_axes = n_axes;
            one.stride_axis = n_axes == 3 ? 0 : INT64_MAX;
            CHECK(rows(taken, one) == rows(none, halyard::positions(text, {1, 3})));
        }
    }
    // Frequencies that no config told of have one axis.
    const halyard::angle_source base(halyard::frequencies::from_base(1e6, 128));
    CHECK(base.get()->axes.n_axes == 1);
    CHECK(base.info().kind == HALYARD_ANGLES_PHASE);
    CHECK(base.info().first == INT32_MIN);
    CHECK(base.info().last == INT32_MAX);
}

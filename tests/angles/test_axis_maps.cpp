// Positions with several axes: each pair reads the axis that the map says, whatever the source.
#include "angles/refused_source.h"
#include "changes.h"
#include "checks/make_sources.h"
#include "checks/oracle.h"
#include "checks/rotate.h"
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

/// A golden case of section mrope.
struct Case {
    Rotation rotation;
    std::int32_t axis_map;
    std::vector<std::int64_t> counts, positions;
    std::vector<double> inv_freq;
    std::int64_t n_axes, n_tokens;

    Case(const golden::Section &section, const nlohmann::json &entry) {
        rotation.rotary_dim = entry.at("rotary_dim");
        rotation.head_dim = entry.at("head_dim");
        rotation.offset = entry.at("offset");
        axis_map = entry.at("kind") == "interleaved_axes" ? HALYARD_AXIS_MAP_INTERLEAVED : HALYARD_AXIS_MAP_SECTIONS;
        counts = entry.at("section").get<std::vector<std::int64_t>>();
        const auto array = section.array<std::int64_t>(entry.at("positions"));
        positions = array.values;
        n_axes = array.shape.at(0);
        n_tokens = array.shape.at(1);
        const auto base = entry.at("base").get<long double>(), freq_dim = entry.at("freq_dim").get<long double>();
        for (const auto &index : entry.at("inv_freq_index")) {
            inv_freq.push_back(static_cast<double>(std::pow(base, -2 * index.get<long double>() / freq_dim)));
        }
    }

    halyard_positions at() const { return axis_positions(positions, n_axes, 1, n_tokens); }
    std::int64_t n_pairs() const { return rotation.rotary_dim / 2; }
};

}  // namespace

TEST_CASE("axis maps: golden mrope, exact, by every source and target", "[axes][golden]") {
    const golden::Section section("mrope");
    REQUIRE(section.cases().size() == 5);
    std::int64_t n_apart = 0;
    for (const auto &entry : section.cases()) {
        INFO(entry.at("name").get<std::string>());
        Case golden(section, entry);
        const auto axes = entry.at("axis_of_pair").get<std::vector<std::int64_t>>();
        CHECK(axis_of_pair(golden.axis_map, golden.counts) == axes);
        for (std::int64_t t = 0; t < golden.n_tokens; t++) {
            n_apart += golden.positions[static_cast<std::size_t>(t)] !=
                               golden.positions[static_cast<std::size_t>(golden.n_tokens + t)]
                           ? 1
                           : 0;
        }
        const auto frequencies = halyard::frequencies::from_list(golden.inv_freq.data(), golden.n_pairs());
        const Elements x = golden::read_elements(section, entry.at("x")),
                       want = golden::read_elements(section, entry.at("y_exact"));
        const auto at = golden.at();
        const auto greatest = *std::max_element(golden.positions.begin(), golden.positions.end());
        for (const std::int32_t kind : {HALYARD_ANGLES_TABLE, HALYARD_ANGLES_PHASE}) {
            auto desc = describe_source(kind, 0, static_cast<std::int32_t>(greatest));
            set_axes(desc, golden.axis_map, golden.counts);
            const halyard::angle_source source(frequencies, desc);
            for (const char *target : targets_here()) {
                golden.rotation.target = target;
                for (const bool in_place : {false, true}) {
                    INFO("kind " << kind << ", " << target << (in_place ? ", in place" : ", out of place"));
                    const Elements y = rotate(golden.rotation, source, &at, x, in_place);
                    std::int64_t n_wrong = 0;
                    for (std::int64_t head = 0; head < x.count(); head += x.shape[3]) {
                        for (std::int64_t k = 0; k < golden.n_pairs(); k++) {
                            const std::int64_t i0 = head + golden.rotation.index(HALYARD_PAIRING_HALF, k, 0);
                            const std::int64_t i1 = head + golden.rotation.index(HALYARD_PAIRING_HALF, k, 1);
                            // The golden value was rounded to float, and the list of frequencies to double.
                            const long double length = std::hypot(static_cast<long double>(x[i0]), x[i1]);
                            const long double bound = 2.51L * 0x1p-23L * length;
                            n_wrong +=
                                std::fabs(y[i0] - want[i0]) <= bound && std::fabs(y[i1] - want[i1]) <= bound ? 0 : 1;
                        }
                    }
                    CHECK(n_wrong == 0);
                }
            }
        }
    }
    CHECK(n_apart > 20);  // equal positions would hide every mistake
}

TEST_CASE("axis maps: golden mrope, with transformers' rounding and with its cos and sin", "[axes][golden]") {
    const golden::Section section("mrope");
    for (const auto &entry : section.cases()) {
        INFO(entry.at("name").get<std::string>());
        const Case golden(section, entry);
        const Elements x = golden::read_elements(section, entry.at("x")),
                       theirs = golden::read_elements(section, entry.at("y"));
        const auto cos = section.array<float>(entry.at("cos")), sin = section.array<float>(entry.at("sin"));
        const auto count_far = [&](const Elements &y, long double bound) {
            std::int64_t n = 0;
            for (std::int64_t i = 0; i < y.count(); i++) {
                n += std::fabs(static_cast<long double>(y[i]) - theirs[i]) <= bound ? 0 : 1;
            }
            return n;
        };
        // A given source has a row for each token, so all axes read row t. Both sides round three times, and |x| < 8.
        auto desc = describe_given(cos.values.data(), sin.values.data(), golden.n_tokens, cos.shape[1],
                                   golden.rotation.rotary_dim);
        set_axes(desc, golden.axis_map, golden.counts);
        const halyard::angle_source given{halyard::frequencies(), desc};
        CHECK(count_far(rotate(golden.rotation, given, nullptr, x), 2 * 8 * 0x1p-23L) == 0);

        // Hugging Face's frequencies, 1 / base^(float), and its float32 angles.
        std::vector<double> list;
        for (const auto &index : entry.at("inv_freq_index")) {
            list.push_back(1.0f / std::pow(entry.at("base").get<float>(),
                                           2 * index.get<float>() / entry.at("freq_dim").get<float>()));
        }
        const auto frequencies = halyard::frequencies::from_list(list.data(), golden.n_pairs());
        desc = describe_source(
            HALYARD_ANGLES_TABLE, 0,
            static_cast<std::int32_t>(*std::max_element(golden.positions.begin(), golden.positions.end())));
        desc.reference = HALYARD_REFERENCE_HF_F32;
        set_axes(desc, golden.axis_map, golden.counts);
        const auto at = golden.at();
        const Elements hf = rotate(golden.rotation, halyard::angle_source(frequencies, desc), &at, x);
        // pow may be off by an ulp on either side, which moves angles by position * 2^-24.
        desc.reference = HALYARD_REFERENCE_EXACT;
        const auto exact_frequencies = halyard::frequencies::from_list(golden.inv_freq.data(), golden.n_pairs());
        const Elements exact = rotate(golden.rotation, halyard::angle_source(exact_frequencies, desc), &at, x);
        const long double tight = 4 * 8 * 0x1p-23L;
        const std::int64_t n_hf = count_far(hf, tight), n_exact = count_far(exact, tight);
        INFO(n_hf << " and " << n_exact << " of " << x.count());
        CHECK(n_hf <= x.count() / 50);
        CHECK((n_exact > n_hf || n_exact == 0));
    }
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

TEST_CASE("axis maps: a list names an axis for each pair, and says what sections and turns say", "[axes][errors]") {
    const std::int64_t rotary_dim = 24;
    const auto frequencies = halyard::frequencies::from_base(10000, rotary_dim);
    const std::vector<std::int32_t> data = {1, 2, 3, 30, 20, 10, 7, 8, 9};
    const auto at = axis_positions(data, 3, 1, 3);
    for (const std::int32_t axis_map : {HALYARD_AXIS_MAP_SECTIONS, HALYARD_AXIS_MAP_INTERLEAVED}) {
        const std::vector<std::int64_t> counts = {5, 4, 3};
        std::vector<std::int32_t> list;
        for (const auto axis : axis_of_pair(axis_map, counts)) {
            list.push_back(static_cast<std::int32_t>(axis));
        }
        const auto source = [&](const halyard::axis_map &map) {
            return halyard::angle_source(frequencies, halyard::describe_angles(HALYARD_ANGLES_TABLE, map, 0, 100));
        };
        const auto by_counts = source({axis_map, counts, {}}), by_list = source(halyard::axis_map::list(list, 3));
        CHECK(rows_of(by_counts, &at, 1, 3) == rows_of(by_list, &at, 1, 3));
        CHECK(by_counts.info().bytes == by_list.info().bytes);
    }
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
    desc.n_axes = 2;
    desc.axis_of_pair = nullptr;
    check_map_refused(desc, HALYARD_ERROR_NULL_POINTER, "desc.axis_of_pair is NULL");
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

TEST_CASE("axis maps: policies apply to each axis by itself", "[axes]") {
    for (const std::int32_t kind : mapped_kinds) {
        CAPTURE(kind);
        MappedRun s(kind);
        const auto rows_at = [&](std::int64_t on_axis_0, std::int64_t on_axis_1, auto policy) {
            s.data[1] = on_axis_0;
            s.data[6] = on_axis_1;
            return rows_of(s.mapped, &s.at, n_batch, n_tokens, policy);
        };
        using enum halyard::bad_position;
        CHECK(rows_at(1000, -3, clamp) == rows_at(99, 0, error));
        CHECK(rows_at(1000, -3, identity) == rows_at(0, 0, error));
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

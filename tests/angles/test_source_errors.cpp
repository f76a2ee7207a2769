// Bad descriptions of angle sources.
#include "checks/make_sources.h"
#include "checks/rotate.h"
#include "every_field.h"

namespace {

using Desc = halyard_angle_source_desc;

/// Checks calls that make a source of these frequencies and this description: they must fail, or succeed, as a test
/// says.
CallChecker make_source_checker(const halyard::frequencies &frequencies, const Desc &desc) {
    return CallChecker(
        [&](halyard_status status, const Words &words) {
            auto *const untouched = reinterpret_cast<halyard_angle_source *>(16);
            halyard_angle_source *out = untouched;
            check_refused(status, words,
                          [&](auto *e) { return halyard_create_angle_source(frequencies.get(), &desc, &out, e); });
            CHECK(out == untouched);
        },
        [&] { CHECK_NOTHROW(halyard::angle_source(frequencies, desc)); });
}

/// Checks bad values in all fields that sources of this kind read (see every_field.h).
void refuse_fields(const CallChecker &sources, const Desc &desc) {
    auto places = fields::places(fields::of<Desc>(), &desc, 0);
    const bool is_given = desc.kind == HALYARD_ANGLES_GIVEN;
    std::erase_if(places, [&](const fields::Place &place) {
        const std::string name = place.field->name;
        const bool is_of_rows = name.find("row") != std::string::npos || name == "rotary_dim";
        if (desc.n_axes == 0 && (name == "n_axes" || name == "axis_counts")) {
            return true;
        }
        return is_given ? name == "n_positions" : is_of_rows;
    });
    every_field::refuse(sources, places);
}

}  // namespace

TEST_CASE("angle sources: arguments are checked", "[angles][errors]") {
    const auto frequencies = halyard::frequencies::from_base(10000, 4);
    auto table = describe_source(HALYARD_ANGLES_AUTO, 0, 3);
    const CallChecker tables = make_source_checker(frequencies, table);
    for (const std::int32_t kind : {HALYARD_ANGLES_AUTO, HALYARD_ANGLES_TABLE, HALYARD_ANGLES_PHASE}) {
        CallChecker::with({{table.kind, kind}}, [&] { refuse_fields(tables, table); });
    }
    tables.refuse_each(HALYARD_ERROR_POSITION, {0, std::int64_t{INT32_MAX} + 2, INT64_MAX},
                       {{"desc.n_positions", table.n_positions}});
    tables.refuse_each(HALYARD_ERROR_UNKNOWN_VALUE, {1, 2}, {{"desc.by_token", table.by_token}});
    tables.refuse({
        {HALYARD_ERROR_MISMATCH,
         {"HALYARD_ANGLES_PHASE", "HALYARD_REFERENCE_HF_F32"},
         {{table.kind, HALYARD_ANGLES_PHASE}, {table.reference, HALYARD_REFERENCE_HF_F32}}},
        {HALYARD_ERROR_POSITION, {"desc.n_positions is 4, but must be 1 to 3"}, {{table.first, INT32_MAX - 2}}},
    });
    // A table ignores the fields that only GIVEN sources use.
    tables.accept({{table.n_rows, -1}, {table.rotary_dim, 3}});
}

TEST_CASE("angle sources: given rows are checked", "[angles][errors]") {
    const auto frequencies = halyard::frequencies::from_base(10000, 4);
    const std::vector<float> rows(16);
    auto given = describe_given(rows.data(), rows.data() + 2, 4, 4, 4);
    const CallChecker sources = make_source_checker(frequencies, given);
    refuse_fields(sources, given);
    sources.refuse_each(HALYARD_ERROR_ROTARY_DIM, {0, 3, (1 << 20) + 2}, {{"desc.rotary_dim", given.rotary_dim}});
    sources.refuse_each(HALYARD_ERROR_SHAPE, {0}, {{"desc.n_rows", given.n_rows}});
    sources.refuse_each(HALYARD_ERROR_SHAPE, {1}, {{"desc.stride_row", given.stride_row}});
    sources.refuse_each(HALYARD_ERROR_OVERFLOW, {INT64_MAX, 1LL << 31, INT64_MAX / 8}, {given.n_rows});
    sources.refuse_each(HALYARD_ERROR_OVERFLOW, {INT64_MAX}, {given.stride_row});
    for (const void **const field : {&given.cos_rows, &given.sin_rows}) {
        sources.refuse(HALYARD_ERROR_OVERFLOW, {}, {{*field, before_the_end_of_memory(31)}});
    }
    // Given rows do not read the fields of a table.
    given.first = 7;
    given.n_positions = -7;
    const auto info = halyard::angle_source(halyard::frequencies(), given).info();
    CHECK(info.kind == HALYARD_ANGLES_GIVEN);
    CHECK((info.rotary_dim == 4 && info.first == 0 && info.last == 3 && info.n_rows == 4 && info.bytes == 0));
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // their allocators abort if memory runs out
TEST_CASE("angle sources: a table that no memory holds is an error", "[angles]") {
    const auto frequencies = halyard::frequencies::from_base(10000, 1 << 16);
    auto desc = describe_source(HALYARD_ANGLES_TABLE, 0, INT32_MAX - 1);
    const CallChecker tables = make_source_checker(frequencies, desc);
    tables.refuse(HALYARD_ERROR_OUT_OF_MEMORY, {}, {});
    tables.refuse(HALYARD_ERROR_OVERFLOW, {"2147483648"}, {{desc.n_positions, 1LL << 31}});
}
#endif

TEST_CASE("axis maps: what is no map is refused", "[axes][errors]") {
    const auto frequencies = halyard::frequencies::from_base(10000, 128);
    const std::vector<float> rows(256);
    auto desc = describe_given(rows.data(), rows.data(), 2, 64, 128);
    desc.n_positions = 10;
    const CallChecker sources = make_source_checker(frequencies, desc);
    using Counts = std::array<std::int64_t, 4>;
    for (const std::int32_t kind :
         {HALYARD_ANGLES_AUTO, HALYARD_ANGLES_TABLE, HALYARD_ANGLES_PHASE, HALYARD_ANGLES_GIVEN}) {
        CAPTURE(kind);
        desc.kind = kind;
        const auto with = [&](std::int32_t axis_map, std::int32_t n_axes, const Counts &counts) {
            return std::vector<Change>{{desc.axis_map, axis_map}, {desc.n_axes, n_axes}, {desc.axis_counts, counts}};
        };
        const auto refuse = [&](std::int32_t axis_map, std::int32_t n_axes, const Counts &counts, const char *words) {
            sources.refuse(HALYARD_ERROR_SHAPE, {words}, with(axis_map, n_axes, counts));
        };
        for (const auto axis_map : {HALYARD_AXIS_MAP_SECTIONS, HALYARD_AXIS_MAP_INTERLEAVED}) {
            CallChecker::with(with(axis_map, 4, {16, 16, 16, 16}), [&] { refuse_fields(sources, desc); });
            refuse(axis_map, 3, {24, 20, 19}, "add up to 63, but rotary_dim / 2 is 64");
            refuse(axis_map, 3, {24, 20, 21}, "add up to 65, but rotary_dim / 2 is 64");
            refuse(axis_map, 3, {65, 20, 0}, "desc.axis_counts[0] is 65");
            refuse(axis_map, 0, {16, 16, 16, 16}, "desc.n_axes is 0");
            refuse(axis_map, 5, {16, 16, 16, 16}, "desc.n_axes is 5");
        }
        refuse(HALYARD_AXIS_MAP_NONE, 2, {32, 32}, "desc.n_axes is 2");
        sources.refuse(HALYARD_ERROR_MISMATCH, {"desc.n_axes is 2, but desc.axis_map is not set"}, with(0, 2, {}));
        // Of the pairs 0 to 63, 21 have the remainder 1 modulo 3, and 21 the remainder 2.
        refuse(HALYARD_AXIS_MAP_INTERLEAVED, 3, {21, 22, 21},
               "desc.axis_counts[1] is 22, but of 64 pairs taken in turns by 3 axes, axis 1 has 21");
        refuse(HALYARD_AXIS_MAP_INTERLEAVED, 3, {22, 20, 22}, "desc.axis_counts[2] is 22");
        refuse(HALYARD_AXIS_MAP_INTERLEAVED, 2, {31, 33}, "desc.axis_counts[1] is 33");
        for (const auto &[n_axes, counts] : std::initializer_list<std::pair<std::int32_t, Counts>>{
                 {1, {64}}, {2, {32, 32}}, {3, {22, 21, 21}}, {3, {64, 0, 0}}, {4, {16, 16, 16, 16}}}) {
            sources.accept(with(HALYARD_AXIS_MAP_INTERLEAVED, n_axes, counts));
            sources.accept(with(HALYARD_AXIS_MAP_SECTIONS, 4, {counts[3], counts[2], counts[1], counts[0]}));
        }
    }
}

TEST_CASE("axis maps: a list names an axis for each pair", "[axes][errors]") {
    const auto frequencies = halyard::frequencies::from_base(10000, 128);
    std::vector<std::int32_t> list(64, 1);
    auto desc = describe_source(HALYARD_ANGLES_TABLE, 0, 9);
    desc.axis_map = HALYARD_AXIS_MAP_LIST;
    desc.n_axes = 2;
    desc.axis_of_pair = list.data();
    const CallChecker sources = make_source_checker(frequencies, desc);
    sources.accept({});
    sources.refuse(HALYARD_ERROR_NULL_POINTER, {"desc.axis_of_pair is NULL"}, {{desc.axis_of_pair, nullptr}});
    sources.refuse_each(HALYARD_ERROR_SHAPE, {-1, 2, INT32_MIN}, {{"desc.axis_of_pair[63]", list[63]}},
                        {"but it must be 0 to 1"});
    sources.refuse_each(HALYARD_ERROR_SHAPE, {0, 5}, {{"desc.n_axes", desc.n_axes}});
}

TEST_CASE("sources: rows of two bytes cannot be written through", "[sources][errors]") {
    // Outputs must not overlap given rows of f16: their span is in bytes, not in floats.
    std::vector<std::uint16_t> memory(64, 0x3c00);
    const halyard::angle_source source{halyard::frequencies(),
                                       describe_given(memory.data(), memory.data() + 4, 2, 8, 8, HALYARD_F16)};
    const halyard::plan plan = Rotation{.rotary_dim = 8, .dtype = HALYARD_F16}.plan();
    const auto try_at = [&](std::size_t at) {
        const auto tensor = halyard::tensor(memory.data() + at, halyard::dtype::f16, {1, 1, 1, 8});
        auto args = sized<halyard_run_args>();
        args.angles = source.get();
        args.x = args.y = &tensor;
        return halyard_run(plan.get(), &args, nullptr);
    };
    CHECK(try_at(15) == HALYARD_ERROR_OVERLAP);  // the last word of the last sin row
    CHECK(try_at(16) == HALYARD_OK);
}

// Bad descriptions of angle sources.
#include "angles/refused_source.h"
#include "checks/make_sources.h"
#include "checks/rotate.h"
#include "every_field.h"

namespace {

using Desc = halyard_angle_source_desc;

/// Of these frequencies and this description no source is made.
Table sources_of(const halyard::frequencies &frequencies, const Desc &desc) {
    return Table([&](halyard_status status, const Words &words) {
        check_source_refused(frequencies.get(), &desc, status, words);
    });
}

/// What no field may hold that sources of this kind read.
void refuse_fields(const Table &sources, const Desc &desc) {
    auto places = fields::places(fields::of<Desc>(), &desc, 0);
    const bool is_given = desc.kind == HALYARD_ANGLES_GIVEN;
    std::erase_if(places, [&](const fields::Place &place) {
        const std::string name = place.field->name;
        const bool is_of_rows = name.find("row") != std::string::npos || name == "rotary_dim";
        if (name == "n_axes" || name == "axis_counts") {  // without an axis map
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
    const Table tables = sources_of(frequencies, table);
    for (const std::int32_t kind : {HALYARD_ANGLES_AUTO, HALYARD_ANGLES_TABLE, HALYARD_ANGLES_PHASE}) {
        Table::with({{table.kind, kind}}, [&] { refuse_fields(tables, table); });
    }
    tables.refuse_each(HALYARD_ERROR_POSITION, {0, std::int64_t{INT32_MAX} + 2, INT64_MAX},
                       {{"desc.n_positions", table.n_positions}});
    tables.refuse_each(HALYARD_ERROR_UNKNOWN_VALUE, {1, 2}, {{"desc.by_token", table.by_token}});
    // What else is refused for given rows is not read for a table.
    table.n_rows = -1;
    table.rotary_dim = 3;
    const halyard::angle_source source(frequencies, table);
}

TEST_CASE("angle sources: given rows are checked", "[angles][errors]") {
    const auto frequencies = halyard::frequencies::from_base(10000, 4);
    const std::vector<float> rows(16);
    auto given = describe_given(rows.data(), rows.data() + 2, 4, 4, 4);
    const Table sources = sources_of(frequencies, given);
    const auto refuse = [&](halyard_status status, auto &field, const Numbers &values) {
        for (const auto value : values) {
            sources.refuse(status, {}, {{field, value}});
        }
    };
    refuse_fields(sources, given);
    refuse(HALYARD_ERROR_ROTARY_DIM, given.rotary_dim, {0, -2, 3, (1 << 20) + 2});
    refuse(HALYARD_ERROR_SHAPE, given.n_rows, {0});
    refuse(HALYARD_ERROR_SHAPE, given.stride_row, {1, 0});
    refuse(HALYARD_ERROR_OVERFLOW, given.n_rows, {INT64_MAX, 1LL << 31, INT64_MAX / 8});
    refuse(HALYARD_ERROR_OVERFLOW, given.stride_row, {INT64_MAX});
    for (const void **const field : {&given.cos_rows, &given.sin_rows}) {
        sources.refuse(HALYARD_ERROR_OVERFLOW, {}, {{*field, before_the_end_of_memory(31)}});
    }
    // What is refused for a table is not read for given rows.
    given.first = 7;
    given.n_positions = -7;
    const auto info = halyard::angle_source(halyard::frequencies(), given).info();
    CHECK(info.kind == HALYARD_ANGLES_GIVEN);
    CHECK((info.rotary_dim == 4 && info.first == 0 && info.last == 3 && info.n_rows == 4 && info.bytes == 0));
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // their allocators stop the program instead
TEST_CASE("angle sources: a table that no memory holds is an error", "[angles]") {
    const auto frequencies = halyard::frequencies::from_base(10000, 1 << 16);
    auto desc = describe_source(HALYARD_ANGLES_TABLE, 0, INT32_MAX - 1);
    check_source_refused(frequencies.get(), &desc, HALYARD_ERROR_OUT_OF_MEMORY);
    ++desc.n_positions;  // 2^31 rows
    check_source_refused(frequencies.get(), &desc, HALYARD_ERROR_OVERFLOW, {"2147483648"});
}
#endif

TEST_CASE("sources: what cannot be had is refused", "[sources][errors]") {
    const auto frequencies = halyard::frequencies::from_base(10000, 128);
    Desc desc;
    const Table sources = sources_of(frequencies, desc);
    desc = describe_source(HALYARD_ANGLES_PHASE, 0, 99);
    CHECK_NOTHROW(halyard::angle_source(frequencies, desc));
    sources.refuse({
        {HALYARD_ERROR_MISMATCH,
         {"HALYARD_ANGLES_PHASE", "HALYARD_REFERENCE_HF_F32"},
         {{desc.reference, HALYARD_REFERENCE_HF_F32}}},
        {HALYARD_ERROR_POSITION, {"desc.n_positions is 100, but must be 1 to 99"}, {{desc.first, INT32_MAX - 98}}},
    });
}

TEST_CASE("sources: rows of two bytes cannot be written through", "[sources][errors]") {
    // The span that outputs are kept away from counts bytes, not floats.
    std::vector<std::uint16_t> memory(64, 0x3c00);
    const halyard::angle_source source{halyard::frequencies(),
                                       describe_given(memory.data(), memory.data() + 4, 2, 8, 8, HALYARD_F16)};
    Rotation rotation;
    rotation.rotary_dim = 8;
    rotation.dtype = HALYARD_F16;
    const auto try_at = [&](std::size_t at) {
        const auto tensor = halyard::tensor(memory.data() + at, halyard::dtype::f16, {1, 1, 1, 8});
        auto args = sized<halyard_run_args>();
        args.angles = source.get();
        args.x = args.y = &tensor;
        const halyard::plan plan = rotation.plan();
        return halyard_run(plan.get(), &args, nullptr);
    };
    CHECK(try_at(15) == HALYARD_ERROR_OVERLAP);  // the last word of the last sin row
    CHECK(try_at(16) == HALYARD_OK);
}

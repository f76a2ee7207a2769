// Tables: which rows they hold, and which row serves a position.
#include "checks/make_sources.h"

#include <catch2/catch_test_macros.hpp>

#include <climits>
#include <utility>

namespace {

halyard::angle_source make_table(const halyard::frequencies &frequencies, std::int32_t first, std::int32_t last) {
    return make_source(frequencies, HALYARD_ANGLES_AUTO, first, last);
}

}  // namespace

TEST_CASE("tables: which rows they hold", "[angles]") {
    const auto frequencies = halyard::frequencies::from_base(10000, 16);
    const auto range = make_source(frequencies, HALYARD_ANGLES_TABLE, -40, 60);
    const std::vector<std::int32_t> positions = {60, -40, 7, 7, 0, 59, -1, 12};
    const auto asked = positions_of(positions);
    const auto rows = rows_of(range, &asked, 1, 8);
    for (std::size_t i = 0; i < positions.size(); ++i) {
        float expected[16];
        halyard::make_row(*frequencies.get(), positions[i], expected, expected + 8);
        CHECK(std::memcmp(expected, &rows[16 * i], sizeof(expected)) == 0);
    }
    const auto info = range.info();
    CHECK(info.kind == HALYARD_ANGLES_TABLE);
    CHECK(info.rotary_dim == 16);
    CHECK((info.first == -40 && info.last == 60 && info.n_rows == 101 && info.bytes == 101 * 64 + 8 * 8));
    CHECK(reinterpret_cast<std::uintptr_t>(range.get()->cos_rows) % 64 == 0);
}

TEST_CASE("tables: rows outlive the frequencies", "[angles]") {
    auto frequencies = halyard::frequencies::from_base(10000, 8);
    const auto source = make_table(frequencies, 0, 3);
    const auto before = rows_of(source, nullptr, 1, 4);
    frequencies = halyard::frequencies();
    CHECK(rows_of(source, nullptr, 1, 4) == before);
}

TEST_CASE("tables: position 0 always has a row, but is covered only where asked for", "[angles]") {
    const auto frequencies = make_frequencies({1.0, 0.5}, 1.25);
    for (const auto &source : {make_table(frequencies, 5, 9), make_table(frequencies, -9, -5)}) {
        CHECK(source.info().n_rows == 6);
        CHECK(!source.get()->covers(0));
        const auto rows = rows_of(source, nullptr, 1, 1, halyard::bad_position::identity);
        CHECK(rows == std::vector<float>{1.25f, 1.25f, 0.0f, 0.0f});
    }
}

TEST_CASE("tables: which row serves a position", "[angles]") {
    const auto frequencies = halyard::frequencies::from_base(10000, 4);
    using enum halyard::BadPosition;
    const auto range = make_table(frequencies, -3, 5);
    const struct {
        std::int64_t position, error, clamp, identity;
    } in_range[] = {{-3, 0, 0, 0},         {0, 3, 3, 3},          {5, 8, 8, 8},          {-4, -1, 0, 3},
                    {6, -1, 8, 3},         {INT32_MIN, -1, 0, 3}, {INT32_MAX, -1, 8, 3}, {INT64_MIN, -1, 0, 3},
                    {INT64_MAX, -1, 8, 3}, {4294967296, -1, 8, 3}};
    halyard::Positions one = {};
    one.n_batch = one.n_tokens = 1;
    one.is_given = one.is_int64 = true;
    for (const auto &entry : in_range) {
        CAPTURE(entry.position);
        const auto find = [&](halyard::BadPosition policy) {
            std::int32_t row = -1;
            return halyard::find_rows({range.get(), &one, &entry.position, policy}, 0, 0, 1, &row) ? row : -1;
        };
        CHECK(find(error) == entry.error);
        CHECK(find(clamp) == entry.clamp);
        CHECK(find(identity) == entry.identity);
    }
}

TEST_CASE("tables: the ends of int32", "[angles]") {
    const auto frequencies = halyard::frequencies::from_base(500000, 6);
    for (const auto &[first, last] : {std::pair{INT32_MIN, INT32_MIN + 2}, std::pair{INT32_MAX - 2, INT32_MAX}}) {
        const auto source = make_table(frequencies, first, last);
        CHECK(source.info().n_rows == 4);
        float expected[6];
        halyard::make_row(*frequencies.get(), last, expected, expected + 3);
        const std::vector<std::int32_t> at = {last};
        const auto positions = positions_of(at);
        CHECK(rows_of(source, &positions, 1, 1) == std::vector<float>(expected, expected + 6));
    }
}
